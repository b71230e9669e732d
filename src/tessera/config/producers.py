"""Is everything that a plugin reads produced, and in which order do plugins learn?"""

import heapq
from collections import deque
from collections.abc import Collection, Sequence
from typing import Any

from tessera.config.declarations import DECLARATIONS
from tessera.config.plan import Declared, Plan
from tessera.core.plugin import NamedFacts, Plugin, Pricer, Producer, configurable_types

PRICER = "token-producer"


def add_producers(plan: Plan) -> None:
    """Add the pricer and default producers until every fact that is read has one; ``is_ready`` says where it cannot."""
    if not any(each.cls is not None and issubclass(each.cls, Pricer) for each in plan.declared.values()):
        plan.add(PRICER)
        plan.additions.append(f"pricer {PRICER!r}: every request is priced")
    todo = deque(plan.plugins())
    while todo:
        declared, plugin = todo.popleft()
        for fact, producer in _reads(plan, declared, plugin):
            added = _provide(plan, declared, fact, producer)
            if added is not None and added.plugin is not None:
                todo.append((added, added.plugin))
    _give_up_readers(plan)


def order(plan: Plan, members: Sequence[tuple[Declared, Plugin]]) -> list[Plugin]:
    """The plugins, each after those that it reads from, in declaration order otherwise; a circle is a problem."""
    position = {declared.name: index for index, (declared, _) in enumerate(members)}
    sources: list[set[int]] = []
    readers: list[list[int]] = [[] for _ in members]
    for index, (declared, plugin) in enumerate(members):
        names = [name for _, name in (*_reads(plan, declared, plugin), *plugin.optional_reads_of())]
        sources.append({position[name] for name in names if name in position} - {index})
        for source in sources[index]:
            readers[source].append(index)
    waiting = {index: len(each) for index, each in enumerate(sources)}
    ready = [index for index, count in waiting.items() if count == 0]
    ordered: list[Plugin] = []
    while ready:
        index = heapq.heappop(ready)
        del waiting[index]
        ordered.append(members[index][1])
        for reader in readers[index]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    if waiting:
        circle = [members[index][0].name for index in _circle(sources, waiting)]
        plan.problem("plugins", f"these read from each other in a circle: {', '.join(circle)}; break it")
    return ordered


def _circle(sources: Sequence[set[int]], waiting: Collection[int]) -> list[int]:
    """One circle among plugins that all wait for each other."""
    here, trail = min(waiting), dict[int, None]()
    while here not in trail:
        trail[here] = None
        here = min(source for source in sources[here] if source in waiting)
    way = list(trail)
    return way[way.index(here) :]


def _reads(plan: Plan, declared: Declared, plugin: Plugin) -> NamedFacts:
    try:
        return tuple((fact, name) for fact, name in plugin.reads_of() if name not in DECLARATIONS)
    except Exception as error:  # a plugin's own code, perhaps a stranger's
        plan.problem(declared.path, f"{declared.type} cannot say what it reads: {type(error).__name__}: {error}")
        return ()


def _provide(plan: Plan, reader: Declared, fact: Any, producer: str) -> Declared | None:
    """The producer that had to be added for this fact, if one had to."""
    found = plan.declared.get(producer)
    if found is None:
        cls = configurable_types().get(producer)
        if cls is not None and issubclass(cls, Producer) and cls.produces is fact:
            plan.additions.append(f"producer {producer!r}: {reader.name!r} reads {fact.__name__}")
            return plan.add(producer)
        known = [each.name for each in plan.declared.values() if _makes(each, fact)]
        expected = f"one of {', '.join(known)}" if known else f"a declared producer of {fact.__name__}"
        plan.problem(reader.path, f"{reader.name!r} reads {fact.__name__} of {producer!r}, expected {expected}")
    elif found.cls is not None and not _makes(found, fact):
        what = f"{reader.name!r} reads {fact.__name__}, which {producer!r} does not produce: it is a {found.type}"
        plan.problem(reader.path, what)
    return None


def _makes(declared: Declared, fact: Any) -> bool:
    return declared.cls is not None and issubclass(declared.cls, Producer) and declared.cls.produces is fact


def _give_up_readers(plan: Plan) -> None:
    """Mark whatever reads from a type that we lack, and whatever reads from that, as not ready."""
    again = True
    while again:
        again = False
        for declared, plugin in list(plan.plugins()):
            for _, name in _reads(plan, declared, plugin):
                source = plan.declared.get(name)
                if source is not None and (source.is_missing or not source.is_ready):
                    declared.is_ready = False
                    again = True
                    plan.warn(
                        declared.path, f"{declared.name!r} is dropped: it reads from {name!r}, which is not there"
                    )
                    break
