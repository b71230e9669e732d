"""Which endpoints have room for another of our requests?"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from tessera.core.errors import DropReason
from tessera.core.facts import InFlightLoad
from tessera.core.plugin import Filter, NamedFacts, Range, plugin
from tessera.core.types import Candidate, PricedRequest, Rng


@plugin("concurrency-detector", reads=(InFlightLoad,))
class ConcurrencyDetector(Filter):
    """Keep endpoints below a number of requests or tokens in flight; where none is left, the client is told to wait.

    An endpoint is dropped at ``load >= 1 + headroom``, load = requests in flight /
    ``maxConcurrency``, or tokens / ``maxTokenConcurrency``, or the larger of the two.
    """

    rejection: ClassVar = DropReason.SATURATED

    concurrency_mode: Literal["requests", "tokens", "hybrid"] = "requests"
    """What fills an endpoint: requests, uncached prompt tokens, or whichever is nearer its limit."""
    max_concurrency: Annotated[int, Range(ge=1)] = 100
    """Requests in flight that fill an endpoint."""
    max_token_concurrency: Annotated[int, Range(ge=1)] = 1_000_000
    """Uncached prompt tokens in flight that fill an endpoint."""
    headroom: Annotated[float, Range(ge=0)] = 0.0
    """Share above the limit that a profile's filter still lets through."""
    in_flight_load_producer_name: str = InFlightLoad.producer
    """The producer whose counts are read."""

    def reads_of(self) -> NamedFacts:
        """In-flight load, of the named producer."""
        return ((InFlightLoad, self.in_flight_load_producer_name),)

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates with room, in their order; possibly none."""
        limit = 1.0 + self.headroom
        return [c for c in candidates if self.load_of(c) < limit]

    def load_of(self, candidate: Candidate) -> float:
        """How full an endpoint is; 1 is full."""
        load: InFlightLoad = candidate.facts[InFlightLoad, self.in_flight_load_producer_name]
        requests = load.num_requests / self.max_concurrency
        tokens = load.num_uncached_tokens / self.max_token_concurrency
        match self.concurrency_mode:
            case "requests":
                return requests
            case "tokens":
                return tokens
            case "hybrid":
                return max(requests, tokens)
