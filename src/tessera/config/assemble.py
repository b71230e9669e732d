"""How does a complete plan become what runs: a Router, and the settings of what stands around it?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tessera.config.declarations import (
    CoreMetricsExtractor,
    Declaration,
    FileDiscovery,
    HeadersHandler,
    MetricsDataSource,
    ModelsDataSource,
)
from tessera.config.defaults import DEFAULT_PICKER, SINGLE_HANDLER, client_profile
from tessera.config.plan import Declared, Entry, Plan
from tessera.config.producers import PRICER, order
from tessera.config.schema import API_VERSION, KIND
from tessera.core.plugin import Decider, Filter, Handler, Picker, Plugin, Pricer, Producer, Scorer, configurable_types
from tessera.core.router import Router
from tessera.core.scheduler import Profile, Scheduler

D = TypeVar("D", bound=Declaration)
P = TypeVar("P", bound=Plugin)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataLayer:
    """Where data about endpoints comes from."""

    metrics: MetricsDataSource | None
    """How metrics pages are read; nothing where they are not."""
    engines: CoreMetricsExtractor
    """Which engine an endpoint runs, and changes to the tables of names."""
    models: ModelsDataSource | None
    discovery: FileDiscovery | None
    """The file that endpoints come from, where the configuration names one."""


def make_router(plan: Plan) -> Router:
    """The Router that the plan means; a plan with problems has none.

    Where its handler is a type that we lack, the profile that faces the client runs alone.
    """
    named = {entry.ref for entries in plan.profiles.values() for entry in entries} | {plan.detector}
    members = [
        (declared, plugin)
        for declared, plugin in plan.plugins()
        if declared.name in named or not isinstance(plugin, (Filter, Scorer, Picker))
    ]
    ordered = order(plan, members)
    pricers = [plugin for plugin in ordered if isinstance(plugin, Pricer)] or [_stand_in(PRICER, Pricer)]
    for extra in pricers[1:]:
        plan.warn(plan.declared[extra.name].path, f"{extra.name!r} is not asked: {pricers[0].name!r} prices already")
    handlers = [plugin for plugin in ordered if isinstance(plugin, Handler)]
    profiles = {name: _make_profile(plan, name, entries) for name, entries in plan.profiles.items()}
    if not handlers:
        name = client_profile(tuple(profiles))
        profiles = {name: profiles[name]}
        missing = plan.of_kind("handler")[0]
        plan.warn(missing.path, f"without {missing.type} only profile {name!r} runs")
        handlers = [_stand_in(SINGLE_HANDLER, Handler)]
    handlers[0].bind({plugin.name: plugin for plugin in ordered if isinstance(plugin, Decider)})
    return Router(
        pricer=pricers[0],
        producers=tuple(plugin for plugin in ordered if isinstance(plugin, Producer)),
        scheduler=Scheduler(profiles=profiles, handler=handlers[0], num_fallbacks=plan.envelope.routing.fallbacks),
        memories=tuple(plugin for plugin in ordered if _remembers(plugin) and plugin not in pricers[1:]),
        advising=tuple(plugin for plugin in ordered if _has_own(plugin, "request_headers")),
        answering=tuple(plugin for plugin in ordered if list(plugin.headers_written())),
    )


def make_data_layer(plan: Plan) -> DataLayer:
    """The settings that ``live`` reads endpoints by."""
    metrics = _listed(plan, MetricsDataSource)
    extractors = [plan.declared[name].made for source in plan.sources for name in source.extractors]
    engines = [each for each in extractors if isinstance(each, CoreMetricsExtractor)]
    discovery = plan.envelope.data_layer.discovery
    found = plan.declared[discovery.plugin_ref].made if discovery else None
    return DataLayer(
        metrics=metrics,
        engines=engines[0] if engines else CoreMetricsExtractor(),
        models=_listed(plan, ModelsDataSource),
        discovery=found if isinstance(found, FileDiscovery) else None,
    )


def detector_of(plan: Plan) -> Filter | None:
    """The filter that says how full the pool is, where there is one."""
    declared = plan.declared.get(plan.detector)
    return declared.plugin if declared and isinstance(declared.plugin, Filter) else None


def effective(plan: Plan, data: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with everything that was added, as plain data that loads to the same again."""
    rest = {key: value for key, value in data.items() if value is not None}
    flow_control = dict(rest.get("flowControl", {}))
    if plan.detector:
        flow_control["saturationDetector"] = {"pluginRef": plan.detector}
    data_layer = dict(rest.get("dataLayer", {}))
    data_layer["sources"] = [
        {"pluginRef": source.ref, "extractors": [{"pluginRef": name} for name in source.extractors]}
        for source in plan.sources
    ]
    routing = plan.envelope.routing
    made: dict[str, Any] = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "featureGates": [f"{name}={str(value).lower()}" for name, value in plan.gates.items()],
        "plugins": [_plugin_entry(each) for each in plan.declared.values()],
        "schedulingProfiles": [
            {"name": name, "plugins": [_profile_entry(plan, entry) for entry in entries]}
            for name, entries in plan.profiles.items()
        ],
        "dataLayer": data_layer,
        "flowControl": flow_control,
        "requestHandler": {"parsers": [{"pluginRef": ref} for ref in plan.parsers]},
        "routing": {
            "fallbacks": routing.fallbacks,
            "maxBodyBytes": routing.max_body_bytes,
            "maxBodiesInFlightBytes": routing.max_bodies_in_flight_bytes,
            "seed": routing.seed,
        },
    }
    return {key: value for key, value in made.items() if value not in ([], {})}


def _plugin_entry(declared: Declared) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": declared.name, "type": declared.type}
    return entry | {"parameters": declared.parameters} if declared.parameters else entry


def _profile_entry(plan: Plan, entry: Entry) -> dict[str, Any]:
    is_scorer = isinstance(plan.declared[entry.ref].made, Scorer)
    weight = 1.0 if entry.weight is None and is_scorer else entry.weight
    return {"pluginRef": entry.ref} | ({"weight": weight} if weight is not None else {})


def _make_profile(plan: Plan, name: str, entries: list[Entry]) -> Profile:
    plugins = [(plan.declared[entry.ref].plugin, entry) for entry in entries]
    pickers = [plugin for plugin, _ in plugins if isinstance(plugin, Picker)]
    return Profile(
        name=name,
        filters=tuple(plugin for plugin, _ in plugins if isinstance(plugin, Filter)),
        scorers=tuple(
            (plugin, 1.0 if entry.weight is None else entry.weight)
            for plugin, entry in plugins
            if isinstance(plugin, Scorer)
        ),
        picker=pickers[0] if pickers else _stand_in(DEFAULT_PICKER, Picker),
    )


def _stand_in(type_name: str, kind: type[P]) -> P:
    """An instance for one that cannot run."""
    made = configurable_types()[type_name]()
    assert isinstance(made, kind)
    return made


def _listed(plan: Plan, kind: type[D]) -> D | None:
    """The first listed source of that class."""
    made = (plan.declared[source.ref].made for source in plan.sources)
    return next((each for each in made if isinstance(each, kind)), None)


_HOOKS = ("observe", "record", "settle", "close")


def _remembers(plugin: Plugin) -> bool:
    """Whether a plugin's class has a hook of its own; the others need not be told."""
    return any(_has_own(plugin, hook) for hook in _HOOKS)


def _has_own(plugin: Plugin, hook: str) -> bool:
    return getattr(type(plugin), hook) is not getattr(Plugin, hook)


def unused(plan: Plan) -> Iterator[Declared]:
    """Declared instances that nothing refers to and that do nothing by themselves."""
    named = {entry.ref for entries in plan.profiles.values() for entry in entries} | {plan.detector, *plan.parsers}
    named |= {name for source in plan.sources for name in (source.ref, *source.extractors)}
    discovery = plan.envelope.data_layer.discovery
    named |= {discovery.plugin_ref} if discovery else set()
    for each in plan.declared.values():
        by_itself = each.cls is None or issubclass(each.cls, (Producer, Pricer, Handler, Decider, HeadersHandler))
        if not by_itself and each.name not in named:
            yield each
