"""From a configuration's text to everything that runs, or every problem of it at once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tessera.config import assemble, document
from tessera.config.blocks import decode, seen
from tessera.config.declarations import DECLARATIONS
from tessera.config.defaults import complete
from tessera.config.discover import discover
from tessera.config.furnish import furnish
from tessera.config.legacy import API_VERSIONS, modernise
from tessera.config.missing import MissingPlugin, missing_plugins, without_missing
from tessera.config.paths import reading_order
from tessera.config.plan import Plan
from tessera.config.producers import add_producers
from tessera.config.references import resolve
from tessera.config.salvage import salvage
from tessera.config.schema import FEATURE_GATES, KIND, Envelope, RoutingSpec
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import Dialect, Filter, registered
from tessera.core.router import Router
from tessera.core.types import ModelProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration that holds together."""

    router: Router
    """New plugin instances with empty memories; those of types that we lack are left out."""
    profile: ModelProfile
    """What is known of the served model."""
    routing: RoutingSpec
    data_layer: assemble.DataLayer
    parsers: tuple[str, ...]
    """Parser types, in the order in which they are asked."""
    feature_gates: Mapping[str, bool]
    """Every gate, on or off."""
    saturation_detector: Filter | None
    """What says how full the pool is; it may stand in no profile."""
    warnings: tuple[Problem, ...]
    """What works, but not as the file may suggest."""
    additions: tuple[str, ...]
    """What was added because the file leaves it out, in words."""
    missing_plugins: tuple[MissingPlugin, ...]
    """Types of the file that we lack: a server should not start, a check should warn."""
    effective: Mapping[str, Any] = field(repr=False)
    """The whole configuration after defaulting, as plain data."""

    def effective_yaml(self) -> str:
        """The whole configuration after defaulting; loads to the same again, with nothing added."""
        return document.dump(self.effective)


def load_file(path: Path, *, ignore_missing: bool = False) -> LoadedConfig:
    """The configuration in a YAML or JSON file of at most 1 MiB; raises as ``load_data``."""
    return load_text(document.read_file(path), ignore_missing=ignore_missing, folder=path.parent)


def load_text(text: str, *, ignore_missing: bool = False, folder: Path = Path()) -> LoadedConfig:
    """The configuration in a YAML or JSON text of at most 1 MiB; raises as ``load_data``."""
    return load_data(document.parse(text), ignore_missing=ignore_missing, folder=folder)


def load_data(data: Any, *, ignore_missing: bool = False, folder: Path = Path()) -> LoadedConfig:
    """The configuration in plain data, bounded as a document is; its ``path`` parameters are relative to ``folder``.

    A plugin of a type that llm-d has and we lack is left out, with whatever refers
    to it or reads from it. ``missing_plugins`` names it, and it stays in
    ``effective``; with ``ignore_missing`` it is a warning, and gone from there.

    Raises:
        ConfigError: everything that has to be changed, each with its path.
    """
    discover()
    document.check(data)
    if not isinstance(data, dict):
        raise ConfigError([Problem("", f"got {seen(data)}, expected a mapping with apiVersion, kind and plugins")])
    modern, rewritten = modernise(data)
    loaded, plan = _load(modern, rewritten, folder)
    if not (ignore_missing and loaded.missing_plugins):
        return loaded
    kept, _ = _load(without_missing(modern, plan), rewritten, folder)
    ignored = [Problem(f"{each.path}.type", f"ignored: {each.message}") for each in loaded.missing_plugins]
    return replace(kept, warnings=(*ignored, *loaded.warnings))


def _load(data: dict[str, Any], warnings: list[Problem], folder: Path) -> tuple[LoadedConfig, Plan]:
    envelope, problems = decode(Envelope, data, "")
    plan = Plan(envelope=envelope or salvage(Envelope, data), problems=problems, warnings=list(warnings))
    _head(plan, data)
    for index, entry in enumerate(plan.envelope.plugins):
        plan.declare(entry, f"plugins[{index}]")
    resolve(plan)
    complete(plan)
    add_producers(plan)
    _routing(plan)
    if plan.problems:
        raise ConfigError(_sorted(plan.problems))
    router = assemble.make_router(plan)
    router, profile = furnish(plan, router, ModelProfile(dialects=_dialects(plan)), folder)
    if plan.problems:
        raise ConfigError(_sorted(plan.problems))
    for each in assemble.unused(plan):
        plan.warn(each.path, f"{each.name!r} is declared and used nowhere")
    parsers = [plan.declared[ref].type if ref in plan.declared else ref for ref in plan.parsers]
    loaded = LoadedConfig(
        router=router,
        profile=profile,
        routing=plan.envelope.routing,
        data_layer=assemble.make_data_layer(plan),
        parsers=tuple(each for each in dict.fromkeys(parsers) if each in DECLARATIONS),
        feature_gates=FEATURE_GATES | plan.gates,
        saturation_detector=assemble.detector_of(plan),
        warnings=tuple(plan.warnings),
        additions=tuple(plan.additions),
        missing_plugins=missing_plugins(plan),
        effective=assemble.effective(plan, data),
    )
    return loaded, plan


def _dialects(plan: Plan) -> frozenset[str]:
    """The dialects that a configured parser claims a path of."""
    types = [plan.declared[ref].type if ref in plan.declared else ref for ref in plan.parsers]
    claimed = {f"/{suffix}" for name in types if name in DECLARATIONS for suffix in DECLARATIONS[name].suffixes}
    return frozenset(name for name, cls in registered(Dialect).items() if claimed & set(cls.paths))


def _head(plan: Plan, data: Mapping[str, Any]) -> None:
    """apiVersion and kind; ``legacy`` has rewritten each accepted version."""
    for key, accepted in (("apiVersion", API_VERSIONS), ("kind", (KIND,))):
        expected = " or ".join(repr(each) for each in accepted)
        if data.get(key) is None:
            plan.problem(key, f"missing, expected {expected}")
        elif isinstance(data[key], str) and data[key] not in accepted:
            plan.problem(key, f"got {seen(data[key])}, expected {expected}")


def _routing(plan: Plan) -> None:
    routing = plan.envelope.routing
    if routing.max_bodies_in_flight_bytes < routing.max_body_bytes:
        what = f"got {routing.max_bodies_in_flight_bytes}, expected at least maxBodyBytes, {routing.max_body_bytes}"
        plan.problem("routing.maxBodiesInFlightBytes", what)


def _sorted(problems: list[Problem]) -> list[Problem]:
    """Each problem once, in the order of the file's sections."""
    return sorted(dict.fromkeys(problems), key=reading_order)
