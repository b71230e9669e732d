"""What does llm-d add to a file that leaves it out? The same, but always the same way, and said aloud."""

from collections.abc import Sequence

from tessera.config.declarations import DECLARATIONS
from tessera.config.plan import Declared, Entry, Plan, Source, type_named
from tessera.core.filters.label_selector import LabelSelectorFilter
from tessera.core.filters.role import RoleFilter
from tessera.core.plugin import Filter, Handler, Picker, Scorer

DEFAULT_PROFILE = "default"
CACHED_MEDIA = "cached-media-filter"
SELECTORS = (RoleFilter, LabelSelectorFilter)
"""Filters whose answer is the same for every request."""
DEFAULT_PARSERS = ("openai-parser", "anthropic-parser", "vllmhttp-parser", "passthrough-parser")
DEFAULT_PICKER = "max-score-picker"
DEFAULT_DETECTOR = "utilization-detector"
SINGLE_HANDLER = "single-profile-handler"
METRICS_SOURCE = "metrics-data-source"
METRICS_EXTRACTOR = "core-metrics-extractor"
CLIENT_PROFILE = "decode"
"""The profile whose winner faces the client in each of llm-d's handlers of several profiles."""


def complete(plan: Plan) -> None:
    """Add profiles, pickers, a handler, parsers, a detector and the metrics source where they are left out."""
    _profile(plan)
    _cached_media(plan)
    _pickers(plan)
    _handler(plan)
    _handled(plan)
    _parsers(plan)
    _detector(plan)
    _metrics(plan)


def client_profile(names: Sequence[str]) -> str:
    """The profile that faces the client where its handler is not there to say: ``decode``, else the first."""
    return CLIENT_PROFILE if CLIENT_PROFILE in names else names[0]


Kind = type[Filter] | type[Scorer] | type[Picker] | type[Handler]


def runs_as(declared: Declared, kind: Kind | tuple[Kind, ...]) -> bool:
    """Whether an instance is of that class of ``core``, or of one of those, faults or not."""
    return declared.cls is not None and issubclass(declared.cls, kind)


def _profile(plan: Plan) -> None:
    if plan.profiles or plan.envelope.scheduling_profiles:
        return
    members = [
        each.name for each in plan.declared.values() if any(runs_as(each, kind) for kind in (Filter, Scorer, Picker))
    ]
    plan.profiles[DEFAULT_PROFILE] = [Entry(name, None, "") for name in members]
    listed = ", ".join(members) or "none"
    plan.additions.append(
        f"profile {DEFAULT_PROFILE!r} of all filters, scorers and pickers that are declared: {listed}"
    )


def _cached_media(plan: Plan) -> None:
    """Media that is named and not sent must go to who holds it, whatever the file is about.

    Behind filters by role and label: where a hash has to decide, it decides among
    endpoints that can serve.
    """
    if any(each.type == CACHED_MEDIA for each in plan.declared.values()) or not plan.profiles:
        return
    plan.add(CACHED_MEDIA)
    for entries in plan.profiles.values():
        entries.insert(_behind_selectors(plan, entries), Entry(CACHED_MEDIA, None, ""))
    plan.additions.append(f"filter {CACHED_MEDIA!r} in every profile: media may be named by uuid and not sent")


def _behind_selectors(plan: Plan, entries: Sequence[Entry]) -> int:
    """The place in front of the first filter that is not a selector."""
    place = 0
    for index, entry in enumerate(entries):
        if runs_as(plan.declared[entry.ref], SELECTORS):
            place = index + 1
        elif runs_as(plan.declared[entry.ref], Filter):
            break
    return place


def _pickers(plan: Plan) -> None:
    for index, (name, entries) in enumerate(plan.profiles.items()):
        pickers = [each for each in entries if runs_as(plan.declared[each.ref], Picker)]
        if len(pickers) > 1:
            refs = " and ".join(repr(each.ref) for each in pickers[:2])
            plan.problem(pickers[1].path or f"schedulingProfiles[{index}]", f"{refs} are both pickers; keep one")
        if pickers:
            continue
        declared = [each.name for each in plan.declared.values() if runs_as(each, Picker)]
        if not declared:
            plan.add(DEFAULT_PICKER)
            declared = [DEFAULT_PICKER]
        entries.append(Entry(declared[0], None, ""))
        plan.additions.append(f"picker {declared[0]!r} in profile {name!r}, which lists none")


def _handler(plan: Plan) -> None:
    handlers = plan.of_kind("handler")
    for extra in handlers[1:]:
        plan.problem(extra.path, f"{extra.name!r} is a second profile handler beside {handlers[0].name!r}; keep one")
    several = len(plan.profiles) > 1
    if not handlers and not several:
        plan.add(SINGLE_HANDLER)
        plan.additions.append(f"handler {SINGLE_HANDLER!r}: there is one profile")
    elif not handlers and not plan.of_kind("unknown"):
        need = "declare a profile handler such as disagg-profile-handler, or keep one profile"
        plan.problem("schedulingProfiles", f"got {len(plan.profiles)} profiles and no handler; {need}")
    elif handlers and handlers[0].type == SINGLE_HANDLER and several:
        plan.problem("schedulingProfiles", f"got {len(plan.profiles)} profiles, {SINGLE_HANDLER} runs one; keep one")


def _handled(plan: Plan) -> None:
    """Whether the handler finds the profiles that it runs and the deciders that it asks."""
    for declared in plan.of_kind("handler")[:1]:
        if isinstance(declared.made, Handler):
            path = f"{declared.path}.parameters"
            for where, name in declared.made.deciders_named():
                plan.refer_to("decider", name, f"{path}.{where}")
            for where, message in declared.made.check_profiles(tuple(plan.profiles)):
                plan.problem(f"{path}.{where}", message)


def _parsers(plan: Plan) -> None:
    if not plan.envelope.request_handler.parsers:
        plan.parsers += DEFAULT_PARSERS
        plan.additions.append(f"parsers {', '.join(DEFAULT_PARSERS)}")
        return
    catch_all = None
    types: set[str] = set()
    for ref in list(plan.parsers):
        type_name = plan.declared[ref].type if ref in plan.declared else ref
        parser = DECLARATIONS.get(type_name)
        if catch_all is not None:
            plan.warn("requestHandler.parsers", f"{ref!r} is never asked: {catch_all!r} before it claims every path")
        elif type_name in types:
            plan.warn("requestHandler.parsers", f"{ref!r} is never asked: a parser of its type stands before it")
        types.add(type_name)
        if parser is not None and not parser.suffixes:
            catch_all = catch_all or ref


def _detector(plan: Plan) -> None:
    reference = plan.envelope.flow_control.saturation_detector
    if reference is not None or type_named(DEFAULT_DETECTOR) is None:
        return
    if DEFAULT_DETECTOR not in plan.declared:
        plan.add(DEFAULT_DETECTOR)
        plan.additions.append(f"detector {DEFAULT_DETECTOR!r}: none is named")
    plan.detector = DEFAULT_DETECTOR


def _metrics(plan: Plan) -> None:
    listed = [each for each in plan.sources if plan.declared[each.ref].type == METRICS_SOURCE]
    for extra in listed[1:]:
        plan.warn("dataLayer.sources", f"{extra.ref!r} is not read: one metrics source is, {listed[0].ref!r}")
    if listed or not plan.envelope.data_layer.inject_defaults:
        return
    source, extractor = (_first(plan, type_name) for type_name in (METRICS_SOURCE, METRICS_EXTRACTOR))
    if source is not None and extractor is not None:
        plan.sources.append(Source(source.name, [extractor.name]))
        plan.additions.append(f"source {source.name!r} with extractor {extractor.name!r} in the data layer")


def _first(plan: Plan, type_name: str) -> Declared | None:
    """The first instance of a type; one is added where there is none."""
    return next((each for each in plan.declared.values() if each.type == type_name), None) or plan.add(type_name)
