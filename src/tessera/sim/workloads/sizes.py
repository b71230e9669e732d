"""Who sends pictures of every size, from thumbnails to 4K?"""

import math
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated, Literal

from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.workload import Workload, WorkloadType, workload

Count = Annotated[int, Range(ge=1, le=1_000_000)]
Side = Annotated[int, Range(ge=16, le=MAX_SIDE)]


@workload("heavy-tail")
class HeavyTail(WorkloadType):
    """Pictures whose widths are lognormal, most of them new, some of a catalogue; 16 to 9."""

    delivery: Literal["inline", "link"] = "inline"
    """``link``: the router cannot see how large a picture is."""
    min_images: Annotated[int, Range(ge=1, le=64)] = 1
    """Pictures of each request, at least."""
    max_images: Annotated[int, Range(ge=1, le=64)] = 4
    """At most; evenly in between."""
    median_width: Side = 700
    """Pixels."""
    sigma: Annotated[float, Range(ge=0, le=4)] = 1.0
    """Of the width's logarithm."""
    min_width: Side = 64
    """Pixels."""
    max_width: Side = 3840
    """Pixels."""
    catalogue: Count = 3000
    """Pictures that are sent again and again."""
    catalogue_share: Annotated[float, Range(ge=0, le=1)] = 0.3
    """Share of the pictures that are of the catalogue."""
    system_tokens: Count = 200
    """Text of the system prompt, the same for all."""
    question_tokens: Count = 150
    """New text of each request, behind the pictures."""
    output_tokens: Count = 200
    """Of each answer."""

    def __post_init__(self) -> None:
        if self.min_images > self.max_images or self.min_width > self.max_width:
            raise ValueError("a least value is above its most; swap them")

    def make(self, seed: str) -> Workload:
        """The catalogue of that seed."""
        return _HeavyTail(self, seed)


class _HeavyTail:
    def __init__(self, spec: HeavyTail, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        rng = Random(f"{seed}/catalogue")
        self._catalogue = [self._image(f"{seed}-catalogue-{each}", rng) for each in range(spec.catalogue)]
        self._system = Message("system", (Text(f"{seed}-system", spec.system_tokens),))

    def asks(self, stage: int) -> Iterator[Ask]:
        """Pictures, new ones and known ones, and a question."""
        spec, rng = self._spec, Random(f"{self._seed}/asks/{stage}")
        for number in count():
            name = f"{self._seed}-{stage}-{number}"
            images = [
                rng.choice(self._catalogue)
                if rng.random() < spec.catalogue_share
                else self._image(f"{name}-image-{each}", rng)
                for each in range(rng.randint(spec.min_images, spec.max_images))
            ]
            parts: tuple[Text | Image, ...] = (*images, Text(f"{name}-question", spec.question_tokens))
            yield Ask((self._system, Message("user", parts)), spec.output_tokens)

    def _image(self, key: str, rng: Random) -> Image:
        spec = self._spec
        drawn = round(spec.median_width * math.exp(rng.gauss(0.0, spec.sigma)))
        width = min(max(drawn, spec.min_width), spec.max_width)
        return Image(key, width, max(1, round(width * 9 / 16)), is_link=spec.delivery == "link")
