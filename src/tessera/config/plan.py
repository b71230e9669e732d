"""What does the file declare, and what is added to it, before it is put together?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tessera.config.blocks import decode, nearest, seen
from tessera.config.declarations import DECLARATIONS, Declaration
from tessera.config.document import MAX_PROBLEMS
from tessera.config.llmd_types import LLMD_TYPES
from tessera.config.schema import Envelope, PluginEntry
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import Plugin, configurable_types

PluginClass = type[Plugin] | type[Declaration]


@dataclass(slots=True, kw_only=True)
class Declared:
    """A plugin instance: one of the file's, or one that was added."""

    name: str
    type: str
    path: str
    """Where it stands: ``plugins[2]``."""
    parameters: dict[str, Any]
    """As given."""
    cls: PluginClass | None
    """What its type is; nothing where we do not have it."""
    made: Plugin | Declaration | None = None
    """The instance; nothing where the type is unknown or its parameters have faults."""
    is_ready: bool = True
    """Whether everything that it reads from can be there."""

    @property
    def kind(self) -> str:
        """The word for what it is; ``unknown`` where nobody knows the type."""
        return self.cls.kind if self.cls else LLMD_TYPES.get(self.type, "unknown")

    @property
    def is_missing(self) -> bool:
        """Whether llm-d has the type and we do not."""
        return self.cls is None and self.type in LLMD_TYPES

    @property
    def plugin(self) -> Plugin | None:
        """The plugin of ``core`` that can run, if it is one."""
        return self.made if isinstance(self.made, Plugin) and self.is_ready else None


@dataclass(slots=True)
class Entry:
    """One line of a profile."""

    ref: str
    weight: float | None
    path: str
    """Where it stands, ``schedulingProfiles[0].plugins[1]``; empty where it was added."""


@dataclass(slots=True)
class Source:
    """A listed data source and its extractors."""

    ref: str
    extractors: list[str]


@dataclass(slots=True, kw_only=True)
class Plan:
    """The file as far as it is read; the steps of ``load`` fill it in."""

    envelope: Envelope
    declared: dict[str, Declared] = field(default_factory=dict)
    """By name, in declaration order; what was added comes last."""
    profiles: dict[str, list[Entry]] = field(default_factory=dict)
    parsers: list[str] = field(default_factory=list)
    """Names or types of parsers, in order."""
    sources: list[Source] = field(default_factory=list)
    detector: str = ""
    """Name of the saturation detector; empty where there is none."""
    gates: dict[str, bool] = field(default_factory=dict)
    """Feature gates that the file sets."""
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    additions: list[str] = field(default_factory=list)

    def problem(self, path: str, message: str) -> None:
        """Note something that must be changed before start; a hopeless file is not read to its end."""
        self.problems.append(Problem(path, message))
        if len(self.problems) >= MAX_PROBLEMS:
            raise ConfigError(self.problems)

    def warn(self, path: str, message: str) -> None:
        """Note something that an operator should read."""
        self.warnings.append(Problem(path, message))

    def declare(self, entry: PluginEntry, path: str) -> Declared | None:
        """Take up a plugin instance; its faults become problems."""
        name = entry.name or entry.type
        if not name:
            return None
        if name in self.declared:
            self.problem(f"{path}.name", f"{name!r} is the name of {self.declared[name].path} too; change one of them")
            return None
        made = Declared(name=name, type=entry.type, path=path, parameters=entry.parameters, cls=type_named(entry.type))
        self.declared[name] = made
        if made.cls is not None:
            self._make(made, made.cls)
        elif entry.type and not made.is_missing:
            known = [*configurable_types(), *DECLARATIONS, *LLMD_TYPES]
            near = nearest(entry.type, known) or "; `tessera plugins` lists all"
            self.problem(f"{path}.type", f"unknown type {seen(entry.type)}{near}")
        return made

    def add(self, type_name: str) -> Declared | None:
        """Take up an instance that the file leaves out, named as its type."""
        if type_name in self.declared:
            taken = self.declared[type_name]
            self.problem(taken.path, f"a {type_name} has to be added, but {taken.type} has its name; rename that")
            return None
        return self.declare(PluginEntry(type=type_name), f"plugins[{len(self.declared)}]")

    def of_kind(self, *kinds: str) -> list[Declared]:
        """Instances of these kinds, in declaration order, those with faults included."""
        return [each for each in self.declared.values() if each.kind in kinds]

    def plugins(self) -> Iterator[tuple[Declared, Plugin]]:
        """Every instance of ``core`` that can run, in declaration order."""
        for each in self.declared.values():
            if each.plugin is not None:
                yield each, each.plugin

    def refer(self, ref: str, path: str) -> Declared | None:
        """The instance of that name; a problem where there is none."""
        if ref and ref not in self.declared:
            near = nearest(ref, list(self.declared))
            if not near and (type_named(ref) or ref in LLMD_TYPES):
                near = f"; add {{type: {ref}}} to plugins"
            self.problem(path, f"no plugin is named {seen(ref)}{near or '; declare it under plugins'}")
        return self.declared.get(ref)

    def refer_to(self, kind: str, ref: str, path: str) -> Declared | None:
        """The instance of that name and kind; a problem where there is none."""
        found = self.refer(ref, path)
        if found is not None and found.kind not in {kind, "unknown"}:
            self.problem(path, f"{ref!r} is a {found.kind}, expected a {kind}")
            return None
        return found

    def _make(self, made: Declared, cls: PluginClass) -> None:
        path = f"{made.path}.parameters"
        try:
            made.made, problems = decode(cls, made.parameters, path)
            self.problems += problems
            if isinstance(made.made, Plugin):
                made.made.name = made.name
                self.problems += _placed(path, made.made.check())
                self.warnings += _placed(path, made.made.cautions())
        except Exception as error:  # a plugin's own code, perhaps a stranger's
            self.problem(path, f"{made.type} cannot be made of these: {type(error).__name__}: {error}")


def _placed(path: str, found: Iterable[tuple[str, str]]) -> list[Problem]:
    """What a plugin said of its parameters, where they stand; no name means all of them."""
    return [Problem(f"{path}.{where}" if where else path, message) for where, message in found]


def type_named(type_name: str) -> PluginClass | None:
    """The class of a type name, if we have it."""
    return configurable_types().get(type_name) or DECLARATIONS.get(type_name)
