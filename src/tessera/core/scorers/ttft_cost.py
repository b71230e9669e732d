"""Which endpoint would give this request's first token soonest, if its own work were dear?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import FirstTokenCost, facts_of
from tessera.core.plugin import Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("ttft-cost-scorer", reads=(FirstTokenCost,))
class TTFTCostScorer(Scorer):
    """Prefer the endpoint with the least predicted time to first token, in which own work costs more than waiting.

    ``cost = queued + (1 + ownWorkPrice) * own`` seconds, ``score = 1 - min(1, (cost - least) / rangeS)``
    with the least cost of all candidates. Without a price, the soonest first token would
    win, and each burst would copy what one endpoint holds to all others: caches thin out,
    work grows, and a busy fleet collapses. The score falls by the same amount for each
    second, so that with equal weights and ranges this and ``work-balance-scorer`` add up
    as seconds.
    """

    own_work_price: Annotated[float, Range(ge=0)] = 8.0
    """Seconds that a request would rather wait to spare an endpoint one second of work."""
    range_s: Annotated[float, Range(gt=0)] = 60.0
    """Seconds behind the best at which the score is 0."""

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 1 for the best."""
        price = 1.0 + self.own_work_price
        costs = [cost.queued_s + price * cost.own_s for cost in facts_of(FirstTokenCost, candidates)]
        least = min(costs, default=0.0)
        return [max(0.0, 1.0 - (cost - least) / self.range_s) for cost in costs]
