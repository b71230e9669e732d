"""Does each name in profiles and sections mean a plugin of the right kind?"""

from tessera.config.blocks import nearest, seen
from tessera.config.declarations import DECLARATIONS
from tessera.config.llmd_types import LLMD_TYPES
from tessera.config.plan import Declared, Entry, Plan, Source, type_named
from tessera.config.schema import FEATURE_GATES, FlowControlSpec, SourceSpec
from tessera.core.plugin import Filter, Picker, Plugin, Scorer

DETECTOR_SUFFIX = "-detector"
"""What the type name of a filter ends with that can also say how full the pool is."""
NOTIFICATIONS = "endpoint-notification-source"
_RUN_IN_PROFILES = (Filter, Scorer, Picker)


def resolve(plan: Plan) -> None:
    """Take up profiles, gates and sections of the file, each reference checked."""
    _gates(plan)
    _profiles(plan)
    _parsers(plan)
    _sources(plan)
    _detector(plan)
    _flow_control(plan)
    data_layer = plan.envelope.data_layer
    if data_layer.discovery:
        plan.refer_to("discovery", data_layer.discovery.plugin_ref, "dataLayer.discovery.pluginRef")
    if data_layer.peer_discovery:
        plan.refer(data_layer.peer_discovery.plugin_ref, "dataLayer.peerDiscovery.pluginRef")
        plan.warn("dataLayer.peerDiscovery", "ignored: Tessera's replicas share nothing")
    if data_layer.cross_replica_syncer_plugin_ref:
        plan.refer(data_layer.cross_replica_syncer_plugin_ref, "dataLayer.crossReplicaSyncerPluginRef")
        plan.warn("dataLayer.crossReplicaSyncerPluginRef", "ignored: Tessera's replicas share nothing")


def _gates(plan: Plan) -> None:
    for index, text in enumerate(plan.envelope.feature_gates):
        path = f"featureGates[{index}]"
        name, _, value = text.partition("=")
        name, value = name.strip(), value.strip().lower() if "=" in text else "true"
        if name not in FEATURE_GATES:
            near = nearest(name, list(FEATURE_GATES)) or f", expected one of {', '.join(FEATURE_GATES)}"
            plan.problem(path, f"unknown feature gate {seen(name)}{near}")
        elif value not in _BOOLS:
            plan.problem(path, f"got {seen(text)}, expected {name}=true or {name}=false")
        else:
            plan.gates[name] = _BOOLS[value]


_BOOLS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


def _profiles(plan: Plan) -> None:
    for index, spec in enumerate(plan.envelope.scheduling_profiles):
        path = f"schedulingProfiles[{index}]"
        if spec.name in plan.profiles:
            if spec.name:
                plan.problem(f"{path}.name", f"two profiles are named {seen(spec.name)}; change one of them")
            continue
        entries = plan.profiles.setdefault(spec.name, [])
        for position, line in enumerate(spec.plugins):
            where = f"{path}.plugins[{position}]"
            found = plan.refer(line.plugin_ref, f"{where}.pluginRef")
            if found is not None:
                entries.append(Entry(line.plugin_ref, line.weight, where))
                _judge_entry(plan, found, entries[-1])


def _judge_entry(plan: Plan, found: Declared, entry: Entry) -> None:
    if found.cls is None:
        return
    if not issubclass(found.cls, _RUN_IN_PROFILES):
        plan.warn(entry.path, f"{found.name!r} is a {found.kind}: it works without being listed, the entry is ignored")
    elif entry.weight is not None and not issubclass(found.cls, Scorer):
        plan.warn(f"{entry.path}.weight", f"ignored: {found.name!r} is a {found.kind}, only scorers are weighted")


def _parsers(plan: Plan) -> None:
    for index, reference in enumerate(plan.envelope.request_handler.parsers):
        ref, path = reference.plugin_ref, f"requestHandler.parsers[{index}].pluginRef"
        if not _is_type(ref, "parser") and plan.refer_to("parser", ref, path) is None:
            continue
        plan.parsers.append(ref)


def _is_type(ref: str, kind: str) -> bool:
    """Whether a reference means an undeclared instance by its type name, as llm-d allows for some kinds."""
    return ref in DECLARATIONS and DECLARATIONS[ref].kind == kind


def _sources(plan: Plan) -> None:
    listed: set[str] = set()
    for index, spec in enumerate(plan.envelope.data_layer.sources):
        path = f"dataLayer.sources[{index}]"
        found = plan.refer_to("source", spec.plugin_ref, f"{path}.pluginRef")
        if found is not None and found.name in listed:
            plan.problem(f"{path}.pluginRef", f"source {seen(found.name)} is listed twice; keep one")
        elif found is not None:
            listed.add(found.name)
            plan.sources.append(Source(found.name, _extractors(plan, spec, found, path)))


def _extractors(plan: Plan, spec: SourceSpec, source: Declared, path: str) -> list[str]:
    kept: list[str] = []
    types: set[str] = set()
    for index, reference in enumerate(spec.extractors):
        where = f"{path}.extractors[{index}].pluginRef"
        found = plan.refer(reference.plugin_ref, where)
        if found is None:
            continue
        if (fault := _misfit(found, source)) is not None:
            plan.problem(where, fault)
        elif found.type in types:
            plan.problem(where, f"a second extractor of type {found.type} on this source; keep one")
        else:
            types.add(found.type)
            kept.append(found.name)
    return kept


def _misfit(extractor: Declared, source: Declared) -> str | None:
    """Why an extractor cannot read a source."""
    if extractor.cls is None or source.cls is None:
        return None
    if source.type == NOTIFICATIONS:
        fits = issubclass(extractor.cls, Plugin)
        return None if fits else f"{extractor.name!r} is a {extractor.kind}, expected a plugin that keeps endpoints"
    if issubclass(extractor.cls, Plugin) or extractor.kind != "extractor":
        return f"{extractor.name!r} is a {extractor.kind}, expected an extractor"
    if extractor.cls.source_type != source.type:
        return f"{extractor.name!r} reads a {extractor.cls.source_type}, {source.name!r} is a {source.type}"
    return None


def _detector(plan: Plan) -> None:
    reference = plan.envelope.flow_control.saturation_detector
    if reference is None or not reference.plugin_ref:
        return
    ref, path = reference.plugin_ref, "flowControl.saturationDetector.pluginRef"
    if ref not in plan.declared and ref.endswith(DETECTOR_SUFFIX) and type_named(ref) is not None:
        plan.add(ref)
        plan.additions.append(f"detector {ref!r}: flowControl.saturationDetector names its type")
    found = plan.refer(ref, path)
    if found is None:
        return
    if found.kind in {"filter", "unknown"} and (found.cls is None or found.type.endswith(DETECTOR_SUFFIX)):
        plan.detector = found.name
    else:
        plan.problem(path, f"{ref!r} is a {found.type}, expected a detector such as utilization-detector")


def _flow_control(plan: Plan) -> None:
    spec = plan.envelope.flow_control
    _policies(plan, spec)
    priorities: set[int] = set()
    for index, band in enumerate(spec.priority_bands):
        if band.priority in priorities:
            plan.problem(f"flowControl.priorityBands[{index}].priority", f"a second band of priority {band.priority}")
        priorities.add(band.priority)
    if plan.gates.get("flowControl"):
        plan.warn("featureGates", "flowControl is on, but Tessera has no queue: requests are admitted at once")
    elif spec != FlowControlSpec(saturation_detector=spec.saturation_detector):
        plan.warn("flowControl", "ignored but for saturationDetector: the feature gate flowControl is off")


def _policies(plan: Plan, spec: FlowControlSpec) -> None:
    """llm-d makes a policy from its type name where none is declared; so any of its policies may be named."""

    def check(ref: str | None, path: str) -> None:
        if ref and LLMD_TYPES.get(ref) != "policy":
            plan.refer_to("policy", ref, f"flowControl.{path}")

    check(spec.usage_limit_policy_plugin_ref, "usageLimitPolicyPluginRef")
    bands = [(f"priorityBands[{index}]", band) for index, band in enumerate(spec.priority_bands)]
    bands += [("defaultPriorityBand", spec.default_priority_band)] if spec.default_priority_band else []
    negative = spec.default_negative_priority_band
    bands += [("defaultNegativePriorityBand", negative)] if negative else []
    for path, band in bands:
        check(band.fairness_policy_ref, f"{path}.fairnessPolicyRef")
        check(band.ordering_policy_ref, f"{path}.orderingPolicyRef")
