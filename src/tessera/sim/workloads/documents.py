"""Who sends pages or text that nobody has sent before?"""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated

from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Message, Text
from tessera.sim.workload import Workload, WorkloadType, workload

Count = Annotated[int, Range(ge=1, le=1_000_000)]
Side = Annotated[int, Range(ge=1, le=MAX_SIDE)]


@workload("documents")
class Documents(WorkloadType):
    """Unique pages behind a system prompt that all share; without pages, chats of text."""

    num_pages: Annotated[int, Range(ge=0, le=64)] = 8
    """Pictures of each request, all new."""
    width: Side = 1920
    """Pixels."""
    height: Side = 1080
    """Pixels."""
    system_tokens: Count = 300
    """Text of the system prompt, the same for all."""
    min_question_tokens: Count = 60
    """New text of each request, at least."""
    max_question_tokens: Count = 60
    """At most; evenly in between."""
    output_tokens: Count = 400
    """Of each answer."""

    def __post_init__(self) -> None:
        if self.min_question_tokens > self.max_question_tokens:
            raise ValueError(
                f"min_question_tokens is {self.min_question_tokens}, more than max_question_tokens, "
                f"{self.max_question_tokens}; swap them"
            )

    def make(self, seed: str) -> Workload:
        """The documents of that seed."""
        return _Documents(self, seed)


class _Documents:
    def __init__(self, spec: Documents, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        self._system = Message("system", (Text(f"{seed}-system", spec.system_tokens),))

    def asks(self, stage: int) -> Iterator[Ask]:
        """New pages and a new question."""
        spec, rng = self._spec, Random(f"{self._seed}/asks/{stage}")
        for number in count():
            name = f"{self._seed}-{stage}-{number}"
            pages = [Image(f"{name}-page-{each}", spec.width, spec.height) for each in range(spec.num_pages)]
            tokens = rng.randint(spec.min_question_tokens, spec.max_question_tokens)
            parts: tuple[Text | Image, ...] = (*pages, Text(f"{name}-question", tokens))
            yield Ask((self._system, Message("user", parts)), spec.output_tokens)
