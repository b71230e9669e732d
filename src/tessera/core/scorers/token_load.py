"""Which endpoint has the fewest prompt tokens to compute before it could answer this request?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import InFlightLoad, PrefixMatch, num_uncached_tokens
from tessera.core.plugin import NamedFacts, Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("token-load-scorer", reads=(InFlightLoad,), optional_reads=(PrefixMatch,))
class TokenLoadScorer(Scorer):
    """Prefer the endpoint with the fewest queued prompt tokens, this request's own included.

    ``score = 1 - min(x, Q) / Q`` with x = uncached tokens in flight + this
    request's uncached tokens there, and Q = ``queueThresholdTokens``.
    """

    queue_threshold_tokens: Annotated[int, Range(ge=1)] = 4_194_304
    """Tokens at which an endpoint's score is 0."""
    in_flight_load_producer_name: str = InFlightLoad.producer
    """The producer whose counts are read."""

    def reads_of(self) -> NamedFacts:
        """In-flight load, of the named producer."""
        return ((InFlightLoad, self.in_flight_load_producer_name),)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 1 where nothing is queued and nothing is asked."""
        key = (InFlightLoad, self.in_flight_load_producer_name)
        limit = self.queue_threshold_tokens
        queued = [c.facts[key].num_uncached_tokens + num_uncached_tokens(request, c) for c in candidates]
        return [1.0 - min(tokens, limit) / limit for tokens in queued]
