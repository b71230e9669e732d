"""Does chance alone decide?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.plugin import Picker, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


def shuffled(length: int, rng: Rng) -> list[int]:
    """The indices 0..``length`` - 1 in an order that is uniform over all orders."""
    order = list(range(length))
    for last in range(length - 1, 0, -1):
        other = rng.below(last + 1)
        order[last], order[other] = order[other], order[last]
    return order


@plugin("random-picker")
class RandomPicker(Picker):
    """Take endpoints by lot, whatever their totals."""

    max_num_of_endpoints: Annotated[int, Range(ge=1)] = 1
    """Winners to take."""

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """Indices of the winners."""
        return shuffled(len(totals), rng)[: self.max_num_of_endpoints]
