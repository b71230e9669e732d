"""Who asks about photos that many ask about, each with a question of their own?"""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated, Literal

from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.workload import Workload, WorkloadType, Zipf, workload

Count = Annotated[int, Range(ge=1, le=1_000_000)]
Side = Annotated[int, Range(ge=1, le=MAX_SIDE)]


@workload("photos")
class Photos(WorkloadType):
    """Photos of one catalogue, some far more popular than others, and a new question each time."""

    order: Literal["photos-first", "question-first"] = "photos-first"
    """What stands first in the user's message: a question before the photos leaves nothing for the KV cache
    but the system prompt, and all for the encoder cache."""
    num_photos: Annotated[int, Range(ge=1, le=64)] = 1
    """Photos of each request, each drawn by itself, so that they come in any order."""
    catalogue: Count = 4000
    """Photos that there are."""
    zipf: Annotated[float, Range(ge=0)] = 0.8
    """Exponent of their popularity."""
    width: Side = 1920
    """Pixels."""
    height: Side = 1080
    """Pixels."""
    system_tokens: Count = 64
    """Text of the system prompt, the same for all."""
    question_tokens: Count = 200
    """New text of each request."""
    closing_tokens: Annotated[int, Range(ge=0, le=1_000_000)] = 0
    """New text at each request's end."""
    output_tokens: Count = 120
    """Of each answer."""

    def make(self, seed: str) -> Workload:
        """The catalogue of that seed."""
        return _Photos(self, seed)


class _Photos:
    def __init__(self, spec: Photos, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        self._zipf = Zipf(spec.catalogue, spec.zipf)
        self._system = Message("system", (Text(f"{seed}-system", spec.system_tokens),))

    def asks(self, stage: int) -> Iterator[Ask]:
        """Photos by their popularity, and a question."""
        spec, rng = self._spec, Random(f"{self._seed}/asks/{stage}")
        for number in count():
            drawn = [self._zipf.draw(rng) for _ in range(spec.num_photos)]
            photos = [Image(f"{self._seed}-photo-{each}", spec.width, spec.height) for each in drawn]
            question = Text(f"{self._seed}-question-{stage}-{number}", spec.question_tokens)
            parts: tuple[Text | Image, ...] = (
                (*photos, question) if spec.order == "photos-first" else (question, *photos)
            )
            if spec.closing_tokens:
                parts = (
                    *parts,
                    Text(f"{self._seed}-closing-{stage}-{number}", spec.closing_tokens),
                )
            yield Ask((self._system, Message("user", parts)), spec.output_tokens)
