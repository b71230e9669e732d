"""Which of two that chance names is better?"""

from collections.abc import Sequence

from tessera.core.plugin import Picker, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("power-of-two-picker")
class PowerOfTwoPicker(Picker):
    """Draw two endpoints by lot and take the one with the higher total; the first drawn where they are equal.

    Almost as even as taking the best of all, and many routers that know nothing of each
    other do not all run to the same endpoint. Source: M. Mitzenmacher, "The Power of Two
    Choices in Randomized Load Balancing", 2001.
    """

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """The index of the better one."""
        first = rng.below(len(candidates))
        if len(candidates) == 1:
            return [first]
        second = (first + 1 + rng.below(len(candidates) - 1)) % len(candidates)
        return [second if totals[second] > totals[first] else first]
