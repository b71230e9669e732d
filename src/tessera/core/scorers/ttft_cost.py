"""Which endpoint would give this request's first token soonest, if its own work were dear?"""

from collections.abc import Iterator, Sequence
from typing import Annotated

from tessera.core.facts import FirstTokenCost, facts_of
from tessera.core.plugin import Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("ttft-cost-scorer", reads=(FirstTokenCost,))
class TTFTCostScorer(Scorer):
    """Prefer the endpoint with the least predicted time to first token, in which own work costs more than waiting.

    ``cost = queued + (1 + price) * own`` seconds, ``score = 1 - min(1, (cost - least) / rangeS)``
    with the least cost of all candidates, and ``price = min(maxWorkPrice, ownWorkPrice +
    waitingPrice * waiting)`` with the mean number of requests that wait at a candidate.
    Without a price, the soonest first token would win, and each burst would copy what one
    endpoint holds to all others: caches thin out, work grows, and a busy fleet collapses.
    A second of work delays those who wait behind it, so it is dear where many wait, and on
    an idle fleet nobody waits for the sake of others who are not there. The score falls by
    the same amount for each second, so that with equal weights and ranges this and
    ``work-balance-scorer`` add up as seconds.
    """

    own_work_price: Annotated[float, Range(ge=0)] = 0.5
    """Seconds that a request would rather wait to spare an endpoint of an idle fleet one second of work."""
    waiting_price: Annotated[float, Range(ge=0)] = 1.0
    """What each request that waits at a candidate, on the mean of all, adds to that."""
    max_work_price: Annotated[float, Range(ge=0)] = 12.0
    """What both come to at most."""
    range_s: Annotated[float, Range(gt=0)] = 60.0
    """Seconds behind the best at which the score is 0."""

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 1 for the best."""
        facts = facts_of(FirstTokenCost, candidates)
        price = 1.0 + self.work_price(facts)
        costs = [cost.queued_s + price * cost.own_s for cost in facts]
        least = min(costs, default=0.0)
        return [max(0.0, 1.0 - (cost - least) / self.range_s) for cost in costs]

    def work_price(self, costs: Sequence[FirstTokenCost]) -> float:
        """Seconds of waiting that a second of own work weighs as much as, at these candidates."""
        waiting = sum(cost.num_waiting for cost in costs) / max(1, len(costs))
        return min(self.max_work_price, self.own_work_price + self.waiting_price * waiting)

    def cautions(self) -> Iterator[tuple[str, str]]:
        """Whether the least price is above the greatest."""
        if self.own_work_price > self.max_work_price:
            yield "ownWorkPrice", f"is above maxWorkPrice, {self.max_work_price:g}, which holds; raise that too"
