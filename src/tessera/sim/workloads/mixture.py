"""Who sends several kinds of requests to one fleet?"""

from collections.abc import Iterator
from random import Random
from typing import Annotated, Any

from tessera.core.errors import ConfigError
from tessera.core.plugin import Range
from tessera.sim.content import Ask
from tessera.sim.workload import Workload, WorkloadType, block, decode_workload, workload


@block
class Part:
    """A kind of request and how many of them there are."""

    share: Annotated[float, Range(gt=0, le=1_000_000)]
    """Weight among the parts."""
    workload: dict[str, Any]
    """``type`` and that type's parameters."""


@workload("mixture")
class Mixture(WorkloadType):
    """Requests of several workloads, each drawn by its share."""

    parts: tuple[Part, ...]
    """At least one."""

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("got no parts, expected at least one")
        try:
            self._types()
        except ConfigError as error:
            raise ValueError("; ".join(str(problem) for problem in error.problems)) from None

    def make(self, seed: str) -> Workload:
        """The parts' workloads, each with content of its own."""
        return _Mixture(self, seed, [each.make(f"{seed}.{index}") for index, each in enumerate(self._types())])

    def _types(self) -> list[WorkloadType]:
        return [decode_workload(part.workload, f"parts[{index}].workload") for index, part in enumerate(self.parts)]


class _Mixture:
    def __init__(self, spec: Mixture, seed: str, workloads: list[Workload]) -> None:
        self._weights = [part.share for part in spec.parts]
        self._workloads = workloads
        self._seed = seed

    def asks(self, stage: int) -> Iterator[Ask]:
        """What one of the parts asks."""
        rng = Random(f"{self._seed}/mixture/{stage}")
        streams = [each.asks(stage) for each in self._workloads]
        while True:
            yield next(rng.choices(streams, self._weights)[0])
