"""Does the best total win?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.pickers.random import shuffled
from tessera.core.plugin import Picker, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("max-score-picker")
class MaxScorePicker(Picker):
    """Take the endpoints with the highest totals; equal totals are drawn by lot."""

    max_num_of_endpoints: Annotated[int, Range(ge=1)] = 1
    """Winners to take."""

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """Indices of the winners, best first."""
        if self.max_num_of_endpoints == 1:
            best = max(totals)
            tied = [index for index, total in enumerate(totals) if total == best]
            return [tied[rng.below(len(tied))]]
        order = sorted(shuffled(len(totals), rng), key=lambda index: -totals[index])
        return order[: self.max_num_of_endpoints]
