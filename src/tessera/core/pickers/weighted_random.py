"""Does a better total win more often?"""

import math
from collections.abc import Sequence
from typing import Annotated

from tessera.core.pickers.random import shuffled
from tessera.core.plugin import Picker, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("weighted-random-picker")
class WeightedRandomPicker(Picker):
    """Take endpoints by lot, each with a chance in proportion to its total.

    Key ``u ** (1 / total)`` with u uniform in (0, 1]; the largest keys win. A total
    of 0 or less has key 0; where all are, chance alone decides.

    Source: P. Efraimidis, P. Spirakis, "Weighted random sampling with a
    reservoir", 2006 (algorithm A-Res).
    """

    max_num_of_endpoints: Annotated[int, Range(ge=1)] = 1
    """Winners to take."""

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """Indices of the winners, largest key first."""
        # Compared by their logarithms: the keys of small totals are too small for a float.
        keys = [math.log(1.0 - rng.random()) / total if total > 0 else -math.inf for total in totals]
        order = sorted(shuffled(len(totals), rng), key=lambda index: -keys[index])
        return order[: self.max_num_of_endpoints]
