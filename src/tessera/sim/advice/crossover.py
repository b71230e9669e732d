"""How large must pictures be until encoders of their own pay? The same workload with smaller and larger ones."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Any, Final

from tessera.sim.advice.asked import Asked
from tessera.sim.advice.log import Replay, scaled_side
from tessera.sim.advice.ranking import Result, beats
from tessera.sim.workload import WorkloadType
from tessera.sim.workloads.repeats import Repeats

PIXELS: Final = (1280 * 720, 1920 * 1080, 2560 * 1440, 3840 * 2160)
"""That are tried, beside the workload's own."""
_SAME: Final = 1.2
"""Sizes nearer to the workload's own than this are not tried."""


@dataclass(frozen=True, slots=True)
class Variant:
    """The workload with pictures of another size."""

    workload: WorkloadType
    size: tuple[int, int]
    """Of the typical picture."""
    is_own: bool = False

    @property
    def num_pixels(self) -> int:
        """Of the typical picture."""
        return self.size[0] * self.size[1]

    @property
    def label(self) -> str:
        """Its size, as people write it."""
        return f"{self.size[0]}x{self.size[1]}"


def variants_of(asked: Asked) -> list[Variant]:
    """The workload as it is and at each other size, smallest first; only as it is where it has no pictures."""
    own = Variant(asked.workload, asked.size, is_own=True)
    if not asked.num_pictures:
        return [own]
    others = []
    for pixels in PIXELS:
        factor = sqrt(pixels / own.num_pixels)
        if max(factor, 1 / factor) ** 2 > _SAME:
            width, height = (scaled_side(side, factor) for side in asked.size)
            others.append(Variant(_scaled(asked.workload, factor), (width, height)))
    return sorted([own, *others], key=lambda each: each.num_pixels)


def _scaled(workload: WorkloadType, factor: float) -> WorkloadType:
    if isinstance(workload, Repeats):
        width, height = scaled_side(workload.width, factor), scaled_side(workload.height, factor)
        return replace(workload, width=width, height=height)
    assert isinstance(workload, Replay), "a question's workload is said or measured"
    return replace(workload, scale=workload.scale * factor)


@dataclass(frozen=True, slots=True)
class Point:
    """What the simulator says of one size."""

    variant: Variant
    ratio: float
    """Encode in parts of prefill: server seconds of one request."""
    aggregated: Result
    parallel: Result | None
    """With ``--mm-encoder-tp-mode data``, where that changes anything."""
    split: Result | None
    """The furthest with encoders of their own."""

    @property
    def is_won(self) -> bool:
        """Whether encoders of their own go further than plain aggregated servers."""
        return self.split is not None and beats(self.split, self.aggregated)

    def as_json(self) -> dict[str, Any]:
        """As ``tessera advise --format json`` tells it."""

        def told(result: Result | None) -> dict[str, Any] | None:
            return None if result is None else {"topology": result.name, "max_rate": round(result.rate, 4)}

        return {
            "size": self.variant.label,
            "is_own": self.variant.is_own,
            "encode_to_prefill": round(self.ratio, 4),
            "aggregated": told(self.aggregated),
            "aggregated_encoder_data": told(self.parallel),
            "encoders_apart": told(self.split),
            "is_won": self.is_won,
        }


@dataclass(frozen=True, slots=True)
class Crossover:
    """Between which sizes the answer changes."""

    below: Point
    """The largest size at which encoders of their own do not pay, while they do at every larger one."""
    above: Point
    """The next size, at which they do."""
    num_pixels: float
    """Where the rates would be equal, between two sizes by the logarithm of pixels."""


def crossover_of(points: Sequence[Point]) -> Crossover | None:
    """Where encoders of their own begin to pay for good; nothing where they always do, or not at the largest size."""
    won = [each.is_won for each in points]
    if not won or not won[-1] or all(won):
        return None
    last = max(place for place, is_won in enumerate(won) if not is_won)
    below, above = points[last], points[last + 1]
    return Crossover(below, above, _where_equal(below, above))


def _where_equal(below: Point, above: Point) -> float:
    """Pixels at which the split's rate would be the aggregated one's, if its lead grew evenly."""
    low, high = (log(max(_lead(each), 1e-9)) for each in (below, above))
    share = min(max(-low / (high - low), 0.0), 1.0) if high > low else 1.0
    first, second = log(below.variant.num_pixels), log(above.variant.num_pixels)
    return exp(first + share * (second - first))


def _lead(point: Point) -> float:
    """The split's rate in parts of the aggregated one's."""
    if point.split is None or not point.aggregated.rate:
        return 1.0
    return point.split.rate / point.aggregated.rate
