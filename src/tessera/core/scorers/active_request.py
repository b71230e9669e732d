"""Which endpoint has the fewest of our requests in flight?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import InFlightLoad, facts_of
from tessera.core.plugin import NamedFacts, Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("active-request-scorer", reads=(InFlightLoad,))
class ActiveRequestScorer(Scorer):
    """Prefer the endpoint with the fewest requests in flight from this router.

    ``score = (M - c) / M * maxBusyScore`` with c = requests in flight there and
    M = the most among the candidates; 1 where c <= ``idleThreshold``.
    """

    idle_threshold: Annotated[int, Range(ge=0)] = 0
    """Requests in flight up to which an endpoint counts as idle."""
    max_busy_score: Annotated[float, Range(ge=0, le=1)] = 1.0
    """The highest score of an endpoint that is not idle."""
    request_timeout: str | None = None
    """Accepted for compatibility; requests end with their stream."""
    in_flight_load_producer_name: str = InFlightLoad.producer
    """The producer whose counts are read."""

    def reads_of(self) -> NamedFacts:
        """In-flight load, of the named producer."""
        return ((InFlightLoad, self.in_flight_load_producer_name),)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        loads = facts_of(InFlightLoad, candidates, self.in_flight_load_producer_name)
        counts = [load.num_requests for load in loads]
        most, idle, busy = max(counts, default=0), self.idle_threshold, self.max_busy_score
        return [1.0 if count <= idle else (most - count) / most * busy for count in counts]
