"""When does the load generator send, stage after stage?"""

from dataclasses import dataclass
from random import Random
from typing import Literal

Spacing = Literal["poisson", "constant"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A time at one rate."""

    rate: float
    """Requests a second."""
    duration_s: float
    is_measured: bool = True
    pause_s: float | None = None
    """How long after the stage's last answer the next stage begins; nothing: at once, with requests in flight."""

    @property
    def num_requests(self) -> int:
        """Requests of the stage: whole ones, as inference-perf counts."""
        return int(self.rate * self.duration_s)


def offsets(stage: Stage, spacing: Spacing, rng: Random) -> list[float]:
    """Seconds from the stage's start to each of its requests, in order; the last comes at the stage's end.

    ``poisson``: exponential gaps, scaled so that they fill the stage, which is what
    inference-perf 0.6.0 calls a constant rate. ``constant``: equal gaps.

    >>> offsets(Stage(rate=2, duration_s=2), "constant", Random(0))
    [0.5, 1.0, 1.5, 2.0]
    """
    number = stage.num_requests
    gaps = [rng.expovariate(1.0) if spacing == "poisson" else 1.0 for _ in range(number)]
    scale = stage.duration_s / sum(gaps) if gaps else 0.0
    at = 0.0
    times = []
    for gap in gaps:
        at += gap * scale
        times.append(at)
    return times
