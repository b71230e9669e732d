"""Who sends pictures of one size, some of which were sent before?"""

from collections import deque
from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated, Final

from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.workload import Workload, WorkloadType, workload

MAX_REMEMBERED: Final = 100
"""Sets of pictures that may be sent again: the last ones that were new."""

Side = Annotated[int, Range(ge=1, le=MAX_SIDE)]
Tokens = Annotated[int, Range(ge=1, le=100_000)]


@workload("repeats")
class Repeats(WorkloadType):
    """Pictures first, then a new question; a request's pictures are new, or all those of an earlier request."""

    num_pictures: Annotated[int, Range(ge=0, le=64)] = 1
    """Of each request."""
    width: Side = 1280
    """Pixels."""
    height: Side = 720
    """Pixels."""
    reuse: Annotated[float, Range(ge=0, le=1)] = 0.0
    """Share of the requests that send the pictures of an earlier one, in the same order: their KV and embeddings may
    be cached."""
    system_tokens: Tokens = 1
    """Text of the system prompt, the same for all."""
    question_tokens: Tokens = 300
    """New text of each request, behind the pictures."""
    output_tokens: Tokens = 300
    """Of each answer."""

    def make(self, seed: str) -> Workload:
        """The pictures and questions of that seed."""
        return _Repeats(self, seed)


class _Repeats:
    def __init__(self, spec: Repeats, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        self._system = Message("system", (Text(f"{seed}-system", spec.system_tokens),))
        self._sent: deque[tuple[Image, ...]] = deque(maxlen=MAX_REMEMBERED)
        """What an earlier stage has sent may be sent again in the next."""

    def asks(self, stage: int) -> Iterator[Ask]:
        """Pictures, new ones or known ones, and a question."""
        spec, rng = self._spec, Random(f"{self._seed}/asks/{stage}")
        for number in count():
            name = f"{self._seed}-{stage}-{number}"
            question = Text(f"{name}-question", spec.question_tokens)
            yield Ask((self._system, Message("user", (*self._pictures(name, rng), question))), spec.output_tokens)

    def _pictures(self, name: str, rng: Random) -> tuple[Image, ...]:
        spec = self._spec
        # Drawn even where there is no choice, so that a share of 0 and one of 0.1 differ in little.
        is_repeated = rng.random() < spec.reuse
        if is_repeated and self._sent:
            return rng.choice(self._sent)
        pictures = tuple(Image(f"{name}-{each}", spec.width, spec.height) for each in range(spec.num_pictures))
        self._sent.append(pictures)
        return pictures
