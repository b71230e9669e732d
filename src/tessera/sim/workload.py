"""What is a workload? A type name with parameters, that yields what clients ask, the same for the same seed."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Protocol, TypeVar, dataclass_transform

from tessera.config.blocks import decode, nearest, seen
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import STRICT
from tessera.sim.content import Ask

SNAKE: dict[str, Any] = {key: value for key, value in STRICT.items() if key != "alias_generator"}
"""How scenario files are decoded: strictly, keys as the fields are named."""

C = TypeVar("C")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def block(cls: type[C]) -> type[C]:
    """A part of a scenario file: a frozen keyword-only dataclass that decodes strictly."""
    cls.__pydantic_config__ = SNAKE  # type: ignore[attr-defined]
    return dataclass(frozen=True, kw_only=True)(cls)


class Workload(Protocol):
    """What clients ask under one seed."""

    def asks(self, stage: int) -> Iterator[Ask]:
        """What is asked in a stage, in order, without end. Content that recurs is the same object."""


class WorkloadType:
    """The parameters of a workload, as a scenario file gives them."""

    type: ClassVar[str]
    """Its name in a scenario file."""

    def make(self, seed: str) -> Workload:
        """The workload; another seed names other content and draws otherwise. It stands in the content's names."""
        raise NotImplementedError

    def gaps(self) -> tuple[float, ...]:
        """The rhythm in which it was recorded: seconds before each request; empty where it was not."""
        return ()


W = TypeVar("W", bound=WorkloadType)
_TYPES: dict[str, type[WorkloadType]] = {}


@dataclass_transform(kw_only_default=True, frozen_default=True)
def workload(type_name: str) -> Callable[[type[W]], type[W]]:
    """Make a class the workload of that type name."""

    def decorate(cls: type[W]) -> type[W]:
        assert type_name not in _TYPES, f"workload {type_name!r} stands twice"
        cls.type = type_name
        _TYPES[type_name] = made = block(cls)
        return made

    return decorate


@cache
def workload_types() -> Mapping[str, type[WorkloadType]]:
    """Every kind of workload by its type name, sorted: the modules of ``tessera.sim.workloads``."""
    package = importlib.import_module("tessera.sim.workloads")
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    return dict(sorted(_TYPES.items()))


def located(data: Any, folder: Path) -> Any:
    """The data with each ``path`` in it, however deep, relative to ``folder``."""
    if isinstance(data, list):
        return [located(each, folder) for each in data]
    if not isinstance(data, dict):
        return data
    return {
        key: str(folder / each) if key == "path" and isinstance(each, str) else located(each, folder)
        for key, each in data.items()
    }


def decode_workload(data: Mapping[str, Any], path: str) -> WorkloadType:
    """The workload that a scenario's ``{type: ..., ...}`` means.

    Raises:
        ConfigError: every problem, with its path below ``path``.
    """
    name, known = data.get("type"), workload_types()
    cls = known.get(name) if isinstance(name, str) else None
    if cls is None:
        near = nearest(name, list(known)) if isinstance(name, str) else ""
        expected = near or f"; there are {', '.join(known)}"
        raise ConfigError([Problem(f"{path}.type", f"unknown workload {seen(name)}{expected}")])
    made, problems = decode(cls, {key: value for key, value in data.items() if key != "type"}, path)
    if made is None or problems:
        raise ConfigError(problems)
    return made


class Zipf:
    """Draws 0..number-1, the first the most often: chances in proportion to ``1 / (n + 1) ** exponent``."""

    def __init__(self, number: int, exponent: float) -> None:
        self._numbers = range(number)
        self._sums = list(accumulate((n + 1) ** -exponent for n in range(number)))

    def draw(self, rng: Random) -> int:
        """One number."""
        return rng.choices(self._numbers, cum_weights=self._sums)[0]
