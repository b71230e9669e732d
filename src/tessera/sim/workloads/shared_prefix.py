"""Who asks about the same pictures? Groups of prompts that share pictures and text: the published benchmark."""

from collections.abc import Iterator
from itertools import count
from random import Random
from typing import Annotated, Final, Literal

from tessera.core.plugin import Range
from tessera.sim.content import MAX_SIDE, Ask, Image, Text, user
from tessera.sim.workload import Workload, WorkloadType, Zipf, workload

MAX_PROMPTS: Final = 1_000_000
"""Of all groups; and pictures of all groups. They are made before the first is sent."""

Count = Annotated[int, Range(ge=1, le=1_000_000)]
Side = Annotated[int, Range(ge=1, le=MAX_SIDE)]


@workload("shared-prefix")
class SharedPrefix(WorkloadType):
    """inference-perf's shared-prefix generator with pictures at the prefix's start.

    Each prompt is one user message: the pictures and the text of its group, then a
    question. The prompts of all groups are shuffled once, and every stage begins with
    the first of them. Source: ``shared_prefix_datagen.py`` and ``load_generator.py`` of
    inference-perf 0.6.0.
    """

    num_groups: Count = 600
    """Groups of prompts."""
    num_prompts_per_group: Count = 5
    """Questions to one group's pictures."""
    num_images: Annotated[int, Range(ge=0, le=64)] = 3
    """Pictures of each group."""
    width: Side = 1280
    """Pixels."""
    height: Side = 720
    """Pixels."""
    prefix_tokens: Count = 111
    """Text of each group; the role before the pictures adds one."""
    question_tokens: Count = 1200
    """Text of each question."""
    output_tokens: Count = 300
    """Of each answer."""
    questions: Literal["repeated", "new"] = "repeated"
    """``repeated``: the published generator, whose later stages send again what the former sent;
    ``new``: the same groups in the same order, but every question is asked once."""
    zipf: Annotated[float, Range(ge=0)] | None = None
    """Draw each prompt's group by this exponent instead of by the shuffled list; only with ``new`` questions."""

    def __post_init__(self) -> None:
        for what, number in (("prompts", self.num_prompts_per_group), ("pictures", self.num_images)):
            if self.num_groups * number > MAX_PROMPTS:
                raise ValueError(f"{self.num_groups:,} groups of {number:,} {what}, at most {MAX_PROMPTS:,} in all")
        if self.zipf is not None and self.questions == "repeated":
            raise ValueError("zipf needs questions: new")

    def make(self, seed: str) -> Workload:
        """The prompts, shuffled."""
        return _Groups(self, seed)


class _Groups:
    def __init__(self, spec: SharedPrefix, seed: str) -> None:
        self._spec = spec
        self._seed = seed
        groups = [n for n in range(spec.num_groups) for _ in range(spec.num_prompts_per_group)]
        Random(f"{seed}/shuffle").shuffle(groups)
        self._groups = groups
        self._prefixes = [self._prefix(group) for group in range(spec.num_groups)]
        self._repeated: dict[int, Ask] = {}
        self._zipf = None if spec.zipf is None else Zipf(spec.num_groups, spec.zipf)

    def asks(self, stage: int) -> Iterator[Ask]:
        """The prompts from the first on, again and again; or new ones."""
        if self._spec.questions == "repeated":
            for number in count():
                place = number % len(self._groups)
                if place not in self._repeated:
                    self._repeated[place] = self._ask(self._groups[place], f"{self._seed}-question-{place}")
                yield self._repeated[place]
        rng = Random(f"{self._seed}/asks/{stage}")
        for number in count():
            group = self._groups[number % len(self._groups)] if self._zipf is None else self._zipf.draw(rng)
            yield self._ask(group, f"{self._seed}-question-{stage}-{number}")

    def _prefix(self, group: int) -> tuple[Image | Text, ...]:
        spec, name = self._spec, f"{self._seed}-group-{group}"
        images = [Image(f"{name}-image-{n}", spec.width, spec.height) for n in range(spec.num_images)]
        return (*images, Text(name, spec.prefix_tokens))

    def _ask(self, group: int, question: str) -> Ask:
        spec = self._spec
        parts = (*self._prefixes[group], Text(question, spec.question_tokens))
        return user(*parts, num_output_tokens=spec.output_tokens)
