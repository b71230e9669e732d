"""How is a scenario run? One run is a fleet, a policy and a seed; runs share nothing and go in parallel."""

from collections.abc import Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from random import Random

from tessera.config.declarations import MIN_INTERVAL_S
from tessera.config.load import LoadedConfig
from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Family
from tessera.core.pricing.served_model import guess
from tessera.core.types import FirstTokenSource
from tessera.engine.engine import Engine
from tessera.engine.profiles import EngineProfile, encoder_of, with_role
from tessera.engine.roles import Role
from tessera.sim.client import Client
from tessera.sim.connections import Connections
from tessera.sim.figures import Figures, figures_of
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.load import LoadGenerator, StageRecord
from tessera.sim.load_stages import LoadStage
from tessera.sim.policies import Policy
from tessera.sim.prompts import Prompts
from tessera.sim.scenario import Scenario
from tessera.sim.servers import Server, endpoints_of
from tessera.sim.sidecar import Sidecars
from tessera.sim.workers import workers


@dataclass(frozen=True, slots=True)
class Run:
    """One fleet in its virtual time."""

    scenario: Scenario
    policy: Policy
    seed: int
    stages: tuple[LoadStage, ...]

    @property
    def num_requests(self) -> int:
        """Requests that are sent in it."""
        return sum(stage.num_requests for stage in self.stages)


@dataclass(frozen=True, slots=True)
class Row:
    """The figures of one measured stage."""

    policy: str
    rate: float
    seed: int
    figures: Figures


def runs_of(scenario: Scenario, seeds: Sequence[int]) -> list[Run]:
    """Every run of a scenario."""
    policies, load = scenario.policies, scenario.document.load
    return [Run(scenario, policy, seed, stages) for policy in policies for seed in seeds for stages in load.runs()]


def perform(runs: Sequence[Run], num_jobs: int) -> Iterator[tuple[Run, list[Row]]]:
    """Each run with its rows, as they come to an end, in ``num_jobs`` processes; in this one where that is 1."""
    if num_jobs <= 1 or len(runs) <= 1:
        for run in runs:
            yield run, simulate(run)
        return
    # Long runs first, so that no core is left alone with one at the end: those with more requests, and of these those
    # whose policies ask more plugins.
    num_plugins = {run.policy: len(run.policy.load(run.scenario.folder).effective["plugins"]) for run in runs}
    ordered = sorted(runs, key=lambda run: (-run.num_requests, -num_plugins[run.policy]))
    with workers(num_jobs) as pool:
        pending = {pool.submit(simulate, run): run for run in ordered}
        for done in as_completed(pending):
            yield pending[done], done.result()


def simulate(run: Run) -> list[Row]:
    """The rows of one run; the same for the same run, wherever it runs."""
    records = play(run)
    measured = [record for record in records if record.stage.is_measured]
    return [Row(run.policy.title, each.stage.rate, run.seed, figures_of(each)) for each in measured]


def play(run: Run, loaded: LoadedConfig | None = None) -> list[StageRecord]:
    """What became of each stage, warm-up included.

    ``loaded`` is the policy's configuration with new plugin instances, for who wants to see
    afterwards what they have learned; it is loaded here where it is left out.
    """
    spec = run.scenario.document
    profile = run.scenario.profile
    loaded = loaded or run.policy.load(run.scenario.folder)
    metrics = loaded.data_layer.metrics
    interval_s = max(metrics.interval, MIN_INTERVAL_S) if metrics is not None else None
    kernel = Kernel()
    phases = Random(f"{run.seed}/phases")
    servers = [
        Server(kernel, each, Engine(_in_role(profile, role)), scrape_interval_s=interval_s, phase=phases.random())
        for each, role in zip(endpoints_of(spec.roles), spec.roles, strict=True)
    ]
    gateway = Gateway(
        loaded.router,
        servers,
        seed=run.seed,
        source=FirstTokenSource(run.policy.first_token),
        tells_cached=run.policy.tells_cached_tokens,
    )
    sidecars = Sidecars(kernel, servers)
    shares = any(role is not Role.ALL for role in spec.roles)
    prompts = Prompts(loaded.profile, profile.model.name, family_of(profile), keeps_bodies=shares)
    connections = Connections(run.seed, num_workers=spec.client.num_workers, idle_s=spec.client.idle_s)
    client = Client(
        kernel, gateway, sidecars, prompts, connections, delay_s=spec.network_delay_s, timeout_s=spec.client.timeout_s
    )
    for server in servers:
        server.on_event = sidecars.hear
    workload = run.scenario.workload
    generator = LoadGenerator(
        kernel,
        client,
        servers,
        workload.make(str(run.seed)),
        run.stages,
        spacing=spec.load.spacing,
        recorded=workload.gaps(),
        seed=run.seed,
    )
    kernel.run()
    assert client.num_in_flight == 0, f"{client.num_in_flight} requests are in flight and nothing is left to happen"
    assert gateway.num_open == 0, f"{gateway.num_open} requests are over and were not settled"
    return generator.records


def _in_role(profile: EngineProfile, role: Role) -> EngineProfile:
    """What a server of that role is; one that only encodes has one GPU."""
    return encoder_of(profile) if role is Role.ENCODE else with_role(profile, role)


def family_of(profile: EngineProfile) -> Family:
    """The family by which the profile's model turns pictures into tokens.

    Raises:
        ConfigError: no family is known for the model's name.
    """
    served = guess(profile.model.name)
    if served is None:
        raise ConfigError([Problem("profile", f"no family prices {profile.model.name!r}")])
    return served.family
