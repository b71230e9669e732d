"""Which endpoints have room for another of our requests?"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from tessera.core.errors import DropReason
from tessera.core.facts import InFlightLoad, facts_of
from tessera.core.plugin import Filter, NamedFacts, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("concurrency-detector", reads=(InFlightLoad,))
class ConcurrencyDetector(Filter):
    """Keep endpoints below a number of requests or tokens in flight; where none is left, the client is told to wait.

    An endpoint is dropped at ``load >= 1 + headroom``, load = requests in flight /
    ``maxConcurrency``, or tokens / ``maxTokenConcurrency``, or the larger of the two.

    With ``scope: pool`` all are kept while the mean load is below the limit, and none from
    there on. Endpoint by endpoint, a full fleet sends every request to whoever has just
    ended one, away from what the caches hold, and does more work for less: bench/README.md
    has the figures, ``examples/tessera-overload.yaml`` the configuration.
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
    scope: Literal["endpoint", "pool"] = "endpoint"
    """What is full: each endpoint by itself, or all together. Ours; llm-d's filter knows the first."""
    in_flight_load_producer_name: str = InFlightLoad.producer
    """The producer whose counts are read."""

    def reads_of(self) -> NamedFacts:
        """In-flight load, of the named producer."""
        return ((InFlightLoad, self.in_flight_load_producer_name),)

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates with room, in their order; possibly none."""
        limit = 1.0 + self.headroom
        loads = facts_of(InFlightLoad, candidates, self.in_flight_load_producer_name)
        fullness = self._fullness(loads)
        if self.scope == "pool":
            return list(candidates) if sum(fullness) < limit * len(candidates) else []
        return [c for c, each in zip(candidates, fullness, strict=True) if each < limit]

    def _fullness(self, loads: Sequence[InFlightLoad]) -> list[float]:
        """How full each endpoint is; 1 is full."""
        requests = [load.num_requests / self.max_concurrency for load in loads]
        if self.concurrency_mode == "requests":
            return requests
        tokens = [load.num_uncached_tokens / self.max_token_concurrency for load in loads]
        return tokens if self.concurrency_mode == "tokens" else list(map(max, requests, tokens))
