"""Whose turn is it?"""

from collections.abc import Sequence

from tessera.core.plugin import Picker, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, Decision, PricedRequest


@plugin("round-robin-picker")
class RoundRobinPicker(Picker):
    """Take the candidates in turn, whatever their totals: the n-th decision goes to candidate n modulo their number.

    Turns are counted by decisions that were made, so that a dry run takes none.
    """

    def __post_init__(self) -> None:
        self._num_decisions = 0

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """The index of the candidate whose turn it is."""
        return [self._num_decisions % len(candidates)]

    def record(self, decision: Decision) -> None:
        """One turn is taken."""
        self._num_decisions += 1
