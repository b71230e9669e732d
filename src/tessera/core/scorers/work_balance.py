"""Which endpoint was given the least work of late?"""

import math
from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import FirstTokenCost, FleetEvent, Joined, Left
from tessera.core.matching.own_work import own_work
from tessera.core.plugin import Range, Scorer, plugin
from tessera.core.types import Candidate, Decision, PricedRequest


@plugin("work-balance-scorer", reads=(FirstTokenCost,))
class WorkBalanceScorer(Scorer):
    """Prefer endpoints that were given little work over the last minutes, so that no one gets all that is popular.

    An endpoint's ``work`` sums ``own + requestS`` seconds of all that it won, decaying
    with the time constant ``tauS``. ``behind = balanceS * (work - least) / tauS`` seconds
    with the least work of all candidates, ``score = 1 - min(1, behind / rangeS)``. Loads
    of one moment cannot do this: whose backlog is short now may have drawn the hottest
    pictures all the same. An endpoint that joins begins with the others' mean, one that
    leaves is forgotten. Memory: two numbers for each endpoint of the fleet.
    """

    balance_s: Annotated[float, Range(ge=0)] = 2.0
    """Seconds that an endpoint falls behind which has been busy for ``tauS`` seconds longer."""
    tau_s: Annotated[float, Range(gt=0)] = 60.0
    """Seconds in which past work fades to 1/e."""
    request_s: Annotated[float, Range(ge=0)] = 0.03
    """Work of every request beside its own prefill, encoding and preparing: its decoding."""
    range_s: Annotated[float, Range(gt=0)] = 60.0
    """Seconds behind the best at which the score is 0; that of ``ttft-cost-scorer``, so that both add up."""

    def __post_init__(self) -> None:
        self._work: dict[str, tuple[float, float]] = {}
        """Seconds, and when they were that many."""

    def __len__(self) -> int:
        """Endpoints whose work is known."""
        return len(self._work)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 1 for the one with the least work."""
        at = request.request.at
        works = [self.work_s(candidate.endpoint.id, at) for candidate in candidates]
        least = min(works, default=0.0)
        each_s = self.balance_s / self.tau_s / self.range_s
        return [max(0.0, 1.0 - each_s * (work - least)) for work in works]

    def work_s(self, endpoint_id: str, at: float) -> float:
        """Decayed seconds of work that an endpoint was given until ``at``."""
        work, since = self._work.get(endpoint_id, (0.0, at))
        return work * math.exp((since - at) / self.tau_s) if at > since else work

    def record(self, decision: Decision) -> None:
        """Give each endpoint the part of the request's own work that it does."""
        for each in own_work(decision):
            added = each.seconds + (self.request_s if each.decodes else 0.0)
            self._work[each.endpoint_id] = (self.work_s(each.endpoint_id, decision.at) + added, decision.at)

    def observe(self, event: FleetEvent) -> None:
        """Let who joins begin with the mean of the fleet, and forget who leaves."""
        if isinstance(event, Joined) and event.endpoint.id not in self._work:
            works = [self.work_s(name, event.at) for name in self._work]
            self._work[event.endpoint.id] = (sum(works) / len(works) if works else 0.0, event.at)
        elif isinstance(event, Left):
            self._work.pop(event.endpoint.id, None)
