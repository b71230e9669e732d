"""Which endpoint has the fewest prompt tokens to compute before it could answer this request?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import InFlightLoad, PrefixMatch, facts_of, uncached_tokens
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
        loads = facts_of(InFlightLoad, candidates, self.in_flight_load_producer_name)
        limit = self.queue_threshold_tokens
        asked = uncached_tokens(request, candidates)
        queued = [load.num_uncached_tokens + tokens for load, tokens in zip(loads, asked, strict=True)]
        return [1.0 - tokens / limit if tokens < limit else 0.0 for tokens in queued]
