"""What is simulated? A scenario file: the fleet, what is asked at which rates, and under which policies."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from tessera.config import document
from tessera.config.blocks import decode, nearest, seen
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import Range
from tessera.engine.profiles import PROFILES, EngineProfile
from tessera.engine.roles import Role
from tessera.sim.connections import IDLE_S, NUM_WORKERS
from tessera.sim.load_stages import LoadStage, Spacing
from tessera.sim.policies import Policy, is_shipped, named, shipped_policies
from tessera.sim.workload import WorkloadType, block, decode_workload, located

FOLDER: Final = Path(__file__).parent / "scenarios"
"""The scenarios that are shipped."""
MAX_REQUESTS: Final = 2_000_000
"""Requests of one run; each takes about 200 bytes until the run is over."""
MAX_RATE: Final = 10_000
"""Requests a second."""
MAX_SERVERS: Final = 1000
"""Of one fleet."""
MIN_RECORDED_S: Final = 1e-6
"""A trace that takes less has no rhythm that could be stretched."""

Rate = Annotated[float, Range(gt=0, le=MAX_RATE)]
Seconds = Annotated[float, Range(gt=0, le=1_000_000)]


@block
class WarmUp:
    """Load that is not measured, before the first measured stage."""

    duration_s: Seconds
    rate: Rate | None = None
    """Requests a second; that of the measured stage where it is left out."""


@block
class Load:
    """Stages of the load generator."""

    rates: tuple[Rate, ...]
    """Requests a second of each measured stage."""
    duration_s: Seconds
    """Of each measured stage."""
    mode: Literal["ladder", "points"] = "ladder"
    """``ladder``: all rates one after another on one fleet; ``points``: each rate on a fleet of its own."""
    spacing: Spacing = "poisson"
    """``poisson``: exponential gaps that fill the stage exactly; ``constant``: equal gaps; ``recorded``: a trace's."""
    warm_up: WarmUp | None = None
    """Absent: the fleet starts cold."""
    pause_s: Annotated[float, Range(ge=0, le=1_000_000)] = 60.0
    """In a ladder: from a stage's last answer to the next stage."""

    def runs(self) -> list[tuple[LoadStage, ...]]:
        """The stages of each run, for one seed: one run for a ladder, one for each point."""
        if self.mode == "points":
            return [(*self._warm_up(rate, None), self._stage(rate, None)) for rate in self.rates]
        stages = [self._stage(rate, self.pause_s) for rate in self.rates]
        return [(*self._warm_up(self.rates[0], self.pause_s), *stages)]

    def _stage(self, rate: float, pause_s: float | None) -> LoadStage:
        return LoadStage(rate=rate, duration_s=self.duration_s, pause_s=pause_s)

    def _warm_up(self, rate: float, pause_s: float | None) -> tuple[LoadStage, ...]:
        warm = self.warm_up
        if warm is None:
            return ()
        return (LoadStage(rate=warm.rate or rate, duration_s=warm.duration_s, is_measured=False, pause_s=pause_s),)


@block
class ClientSpec:
    """The load generator's processes and patience."""

    timeout_s: Seconds | None = None
    """How long a client waits for a whole answer; absent: for ever."""
    num_workers: Annotated[int, Range(ge=1, le=10_000)] = NUM_WORKERS
    """Processes with keep-alive connections of their own."""
    idle_s: Seconds = IDLE_S
    """How long an unused connection is kept."""


@block
class ServerPool:
    """Servers of one role."""

    role: Literal["all", "encode", "prefill", "decode", "prefill-decode"]
    """Their label ``llm-d.ai/role``; ``all`` has none. One that encodes has one GPU and no language model."""
    num: Annotated[int, Range(ge=1, le=MAX_SERVERS)]


@block
class Published:
    """Cells of one column of a published table."""

    policy: str
    """The title of the policy that they are compared with."""
    figure: Literal["output_tokens_per_s", "ttft_p50_s", "ttft_p90_s"]
    rates: tuple[Rate, ...]
    """Requests a second of each cell."""
    values: tuple[Annotated[float, Range(gt=0)], ...]
    """What was published, one for each rate."""
    within: Annotated[float, Range(gt=0)]
    """The error that the model may have, as a share of the value."""

    def __post_init__(self) -> None:
        if len(self.values) != len(self.rates):
            raise ValueError(f"got {len(self.values)} values for {len(self.rates)} rates")


@block
class Document:
    """A scenario file."""

    description: str
    """What it shows, in a line."""
    workload: dict[str, Any]
    """``type`` and that type's parameters."""
    load: Load
    endpoints: Annotated[int, Range(ge=1, le=MAX_SERVERS)] = 8
    """Servers of the fleet."""
    servers: tuple[ServerPool, ...] = ()
    """Servers that divide the stages, instead of ``endpoints``; before those that answer stands a sidecar."""
    profile: str = "h200-tp2-qwen3-vl-32b"
    """Hardware and model of each server, one of the engine's profiles."""
    network_delay_s: Annotated[float, Range(ge=0, le=60)] = 0.0
    """One way between a client and the gateway; the fitted profile's own latency has it in it."""
    client: ClientSpec = ClientSpec()
    policies: tuple[Policy | str, ...] = ()
    """Names of shipped policies, paths, or mappings with more to say; absent: all that are shipped."""
    seeds: Annotated[int, Range(ge=1, le=1000)] = 5
    """Seeds of a whole run: 0 up to this number less 1."""
    published: tuple[Published, ...] = ()
    """What to compare the means with."""

    @property
    def roles(self) -> list[Role]:
        """Of each server, in order."""
        pools = self.servers or (ServerPool(role="all", num=self.endpoints),)
        return [Role(pool.role) for pool in pools for _ in range(pool.num)]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A scenario that can run."""

    name: str
    document: Document
    profile: EngineProfile
    workload: WorkloadType
    policies: tuple[Policy, ...]
    folder: Path
    """What paths in it are relative to."""

    def with_rates(self, rates: tuple[float, ...]) -> "Scenario":
        """The same at other rates; raises ConfigError where they ask for too much or nothing."""
        load = replace(self.document.load, rates=rates)
        if problems := _problems_of_load(load):
            raise ConfigError(problems)
        return replace(self, document=replace(self.document, load=load))

    def with_policies(self, configs: list[str]) -> "Scenario":
        """The same under these policies: titles of its own ones, names of shipped ones, or paths seen from here.

        Raises:
            ConfigError: one is no policy, or two have one title.
        """
        own = {policy.title: policy for policy in self.policies}
        chosen = tuple(own.get(config) or _here(config) for config in configs)
        if problems := _problems_of_policies(chosen, self.folder):
            raise ConfigError(problems)
        return replace(self, policies=chosen)


def shipped_scenarios() -> list[str]:
    """Their names, sorted."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def load_scenario(name: str) -> Scenario:
    """A shipped scenario by its name, or the one in a file.

    Raises:
        ConfigError: every problem of it, each with its path.
    """
    path = FOLDER / f"{name}.yaml"
    path = path if path.is_file() else Path(name)
    if not path.is_file():
        near = nearest(name, shipped_scenarios())
        known = near or f"; shipped are {', '.join(shipped_scenarios())}"
        raise ConfigError([Problem("", f"no scenario {name!r}: no such file{known}")])
    return parse_scenario(document.read_file(path), path.stem, path.parent)


def parse_scenario(text: str, name: str, folder: Path) -> Scenario:
    """The scenario in a YAML text; raises as ``load_scenario``."""
    data = document.parse(text)
    if not isinstance(data, dict):
        raise ConfigError([Problem("", f"got {seen(data)}, expected a mapping with description, workload and load")])
    made, problems = decode(Document, data, "")
    if made is None:
        raise ConfigError(problems)
    problems += _problems_of_fleet(made, is_number_given="endpoints" in data)
    problems += _problems_of_load(made.load)
    policies = tuple(each if isinstance(each, Policy) else named(each) for each in made.policies or shipped_policies())
    problems += _problems_of_policies(policies, folder)
    problems += _problems_of_published(made.published, policies)
    if problems:
        raise ConfigError(problems)
    workload = decode_workload(located(made.workload, folder), "workload")
    if made.load.spacing == "recorded" and sum(workload.gaps()) < MIN_RECORDED_S:
        raise ConfigError([Problem("load.spacing", f"got 'recorded', but workload {workload.type!r} has no times")])
    return Scenario(name, made, PROFILES[made.profile], workload, policies, folder)


def _problems_of_fleet(made: Document, *, is_number_given: bool) -> Iterator[Problem]:
    profile = PROFILES.get(made.profile)
    if profile is None:
        near = nearest(made.profile, list(PROFILES)) or f"; there are {', '.join(PROFILES)}"
        yield Problem("profile", f"unknown profile {seen(made.profile)}{near}")
    elif profile.role is Role.ENCODE:
        others = ", ".join(name for name, each in PROFILES.items() if each.role is not Role.ENCODE)
        yield Problem("profile", f"{made.profile} only encodes and never answers; take one of {others}")
    num_servers = sum(pool.num for pool in made.servers)
    if num_servers > MAX_SERVERS:
        yield Problem("servers", f"{num_servers:,} in all, at most {MAX_SERVERS:,} are simulated")
    elif made.servers and all(role is Role.ENCODE or role is Role.PREFILL for role in made.roles):
        yield Problem("servers", "nobody answers; add servers of role decode, prefill-decode or all")
    if made.servers and is_number_given:
        yield Problem("endpoints", "given together with servers, which says how many there are; leave one")


def _problems_of_published(columns: tuple[Published, ...], policies: tuple[Policy, ...]) -> Iterator[Problem]:
    titles = [policy.title for policy in policies]
    for index, column in enumerate(columns):
        if column.policy not in titles:
            what = f"{column.policy!r} is none of the scenario's policies, {', '.join(titles)}"
            yield Problem(f"published[{index}].policy", what)


def _problems_of_load(load: Load) -> list[Problem]:
    if not load.rates:
        return [Problem("load.rates", "got none, expected at least one rate")]
    for rate in load.rates:
        if not 0 < rate <= MAX_RATE:
            return [Problem("load.rates", f"got {rate:g}, expected requests/s above 0, at most {MAX_RATE:,}")]
        if load.rates.count(rate) > 1:
            return [Problem("load.rates", f"{rate:g} stands twice; name each rate once")]
    most = max(sum(stage.num_requests for stage in run) for run in load.runs())
    if most > MAX_REQUESTS:
        return [Problem("load", f"a run of {most:,} requests, at most {MAX_REQUESTS:,} are simulated")]
    empty = [stage for run in load.runs() for stage in run if not stage.num_requests]
    return [
        Problem("load", f"{each.rate:g} requests/s for {each.duration_s:g} s are none, ask for more")
        for each in empty[:1]
    ]


def _problems_of_policies(policies: tuple[Policy, ...], folder: Path) -> list[Problem]:
    problems = []
    titles = [policy.title for policy in policies]
    for index, policy in enumerate(policies):
        if titles.index(policy.title) != index:
            problems.append(Problem(f"policies[{index}]", f"{policy.title!r} stands twice; give one another name"))
        try:
            policy.path(folder)
        except ConfigError as error:
            problems += [Problem(f"policies[{index}].config", each.message) for each in error.problems]
    return problems


def _here(config: str) -> Policy:
    """A policy as the command line names it: a path is relative to where the command runs."""
    policy = named(config)
    if not is_shipped(config):
        policy = replace(policy, config=str(Path(config).absolute()))
        policy.path(Path())
    return policy
