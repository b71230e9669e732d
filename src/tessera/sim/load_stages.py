"""When does the load generator send, stage after stage?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, cycle, islice, repeat
from random import Random
from typing import Literal

Spacing = Literal["poisson", "constant", "recorded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStage:
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


def offsets(stage: LoadStage, spacing: Spacing, rng: Random, recorded: Sequence[float] = ()) -> list[float]:
    """Seconds from the stage's start to each of its requests, in order; the last comes at the stage's end.

    ``poisson``: exponential gaps, scaled so that they fill the stage, which is what
    inference-perf 0.6.0 calls a constant rate. ``constant``: equal gaps. ``recorded``:
    those of a trace, again and again, scaled in the same way.

    >>> offsets(LoadStage(rate=2, duration_s=2), "constant", Random(0))
    [0.5, 1.0, 1.5, 2.0]
    >>> offsets(LoadStage(rate=2, duration_s=2), "recorded", Random(0), [0, 1, 3])
    [0.0, 0.5, 2.0, 2.0]
    """
    gaps = list(islice(_gaps(spacing, rng, recorded), stage.num_requests))
    total = sum(gaps)
    scale = stage.duration_s / total if total else 0.0
    return [each * scale for each in accumulate(gaps)]


def _gaps(spacing: Spacing, rng: Random, recorded: Sequence[float]) -> Iterator[float]:
    match spacing:
        case "poisson":
            return (rng.expovariate(1.0) for _ in repeat(None))
        case "constant":
            return repeat(1.0)
        case "recorded":
            return cycle(recorded)
