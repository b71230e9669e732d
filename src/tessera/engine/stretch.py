"""When does each of a run of like steps end? In closed form."""

from math import sqrt


class Stretch:
    """Steps of one batch, each longer than the one before by the KV read of one more token a sequence.

    ``end_at(j) = start_at + j * fixed_s + kv_s * (num_context * j + num_decodes * j (j - 1) / 2)``
    for all ``j``, always from the start, so that it matters to no bit where a driver stopped on the way.
    """

    __slots__ = ("_fixed_s", "_kv_s", "_num_context", "num_decodes", "num_steps", "start_at")

    def __init__(
        self, *, start_at: float, fixed_s: float, kv_s: float, num_decodes: int, num_context: int, num_steps: int
    ) -> None:
        """A run that begins at ``start_at``.

        Args:
            start_at: seconds.
            fixed_s: of each step, without KV read.
            kv_s: of each context token in a step.
            num_decodes: sequences that decode, each one token a step.
            num_context: their context tokens in the first step.
            num_steps: how many like steps there are; may be lowered later.
        """
        self.start_at = start_at
        self.num_decodes = num_decodes
        self.num_steps = num_steps
        self._fixed_s = fixed_s
        self._kv_s = kv_s
        self._num_context = num_context

    def end_at(self, num_steps: int) -> float:
        """When so many steps have ended."""
        num_read = self._num_context * num_steps + self.num_decodes * (num_steps * (num_steps - 1) // 2)
        return self.start_at + num_steps * self._fixed_s + self._kv_s * num_read

    def num_ended(self, at: float) -> int:
        """Steps that have ended at ``at``, that instant included."""
        grown_s = self._kv_s * self.num_decodes / 2
        first_s = self._fixed_s + self._kv_s * self._num_context - grown_s
        passed_s = max(0.0, at - self.start_at)
        # The root of the quadratic is off by rounding at most; the formula above decides.
        guess = int(2 * passed_s / (first_s + sqrt(first_s * first_s + 4 * grown_s * passed_s)))
        num_steps = min(guess, self.num_steps)
        while num_steps < self.num_steps and self.end_at(num_steps + 1) <= at:
            num_steps += 1
        while num_steps > 0 and self.end_at(num_steps) > at:
            num_steps -= 1
        return num_steps

    def cut(self, at: float) -> None:
        """Let the step that runs at ``at`` be the last; one that ends at ``at`` counts as running."""
        num_steps = self.num_ended(at)
        if num_steps == 0 or self.end_at(num_steps) < at:
            num_steps += 1
        self.num_steps = min(num_steps, self.num_steps)
