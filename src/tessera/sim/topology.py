"""Which topologies are compared on a number of GPUs, for which requests, and what does one do at one rate?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final

from tessera.config.load import load_file
from tessera.core.types import FirstTokenSource
from tessera.engine.engine import Engine
from tessera.engine.profiles import PROFILES, EngineProfile, encoder_of, with_parallel_encoder, with_role
from tessera.engine.roles import Role
from tessera.sim.client import Client
from tessera.sim.connections import Connections
from tessera.sim.figures import Figures, figures_of, mean
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.load import LoadGenerator, StageRecord
from tessera.sim.load_stages import LoadStage
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import Server, endpoints_of
from tessera.sim.sidecar import Hops, Sidecars
from tessera.sim.workload import WorkloadType
from tessera.sim.workloads.documents import Documents

FOLDER: Final = Path(__file__).parent / "topologies"
"""How the routers choose."""
NUM_GPUS: Final = 16
"""Of every topology."""
BASE: Final = PROFILES["h200-tp2-qwen3-vl-32b"]
"""What a server with a language model is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """How many servers of which role. One that only encodes has one GPU, any other ``gpus_per_server``."""

    name: str
    num_encode: int = 0
    num_prefill: int = 0
    """Servers that compute prompts for others."""
    num_decode: int = 0
    """Servers that answer; they compute prompts too where nobody does it for them."""
    spreads: bool = True
    """Whether the pictures of one request are spread over the encoders. Else one encoder gets all of them, which is
    what llm-d's router chooses as its guides configure it."""
    decodes_bare: bool = False
    """Whether the server that answers gets pictures by their names, since another has computed the prompt. Else it gets
    them as the client sent them, which costs it CPU: that is what sidecars do, since the prompt may have to be computed
    after all."""
    gpus_per_server: int = 2
    """Of each server with a language model."""
    has_parallel_encoder: bool = False
    """``--mm-encoder-tp-mode data``: assumed to save a quarter of encoder time."""

    @property
    def num_gpus(self) -> int:
        """Of all servers."""
        return self.num_encode + self.gpus_per_server * (self.num_prefill + self.num_decode)

    @property
    def roles(self) -> list[Role]:
        """Of each server: who answers, who computes prompts, who encodes."""
        takes_kv = Role.DECODE if self.num_prefill else Role.PREFILL_DECODE
        answers = [takes_kv if self.has_stages else Role.ALL] * self.num_decode
        return [*answers, *[Role.PREFILL] * self.num_prefill, *[Role.ENCODE] * self.num_encode]

    @property
    def policy(self) -> str:
        """The router's configuration, a file of ``FOLDER``."""
        if not self.has_stages:
            return "aggregated"
        if self.num_prefill:
            return "e-p-d"
        return "e-pd" if self.spreads else "e-pd-one-encoder"

    @property
    def has_stages(self) -> bool:
        """Whether servers share a request."""
        return bool(self.num_encode or self.num_prefill)


AGGREGATED: Final = Topology(name="aggregated", num_decode=8)
TOPOLOGIES: Final[dict[str, Topology]] = {
    topology.name: topology
    for topology in (
        AGGREGATED,
        Topology(name="aggregated-encoder-data", num_decode=8, has_parallel_encoder=True),
        Topology(name="2e+7pd", num_encode=2, num_decode=7),
        Topology(name="4e+6pd", num_encode=4, num_decode=6),
        Topology(name="6e+5pd", num_encode=6, num_decode=5),
        Topology(name="4e+4p+2d", num_encode=4, num_prefill=4, num_decode=2),
        Topology(name="6e+5pd-one-encoder", num_encode=6, num_decode=5, spreads=False),
        Topology(name="4e+4p+2d-bare-decode", num_encode=4, num_prefill=4, num_decode=2, decodes_bare=True),
    )
}
"""By name, all of 16 GPUs."""

WORKLOADS: Final[dict[str, Documents]] = {
    name: Documents(
        num_pages=number,
        width=width,
        height=height,
        system_tokens=1,
        min_question_tokens=text,
        max_question_tokens=text,
        output_tokens=output,
    )
    for name, number, width, height, text, output in (
        ("1x360p", 1, 640, 360, 1000, 300),
        ("3x720p", 3, 1280, 720, 300, 300),
        ("10x1080p", 10, 1920, 1080, 60, 150),
        ("20x1080p", 20, 1920, 1080, 60, 150),
        ("2x4k", 2, 3840, 2160, 60, 150),
    )
}
"""By name: pictures that nobody has sent before, then text that is new too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How a topology is tried at one rate."""

    min_duration_s: float = 90.0
    """What is measured, at least."""
    max_duration_s: float = 240.0
    """At most: near the edge queues take minutes to become as long as they get."""
    num_requests: int = 3000
    """In between, so long that so many are sent."""
    seeds: tuple[int, ...] = (0,)
    """Of pictures, texts and gaps; figures are means over them."""
    hops: Hops = field(default_factory=Hops)

    def stages(self, rate: float) -> tuple[LoadStage, LoadStage]:
        """The load: half as long as is measured to warm up, and what is measured."""
        duration_s = min(max(self.num_requests / rate, self.min_duration_s), self.max_duration_s)
        warm = LoadStage(rate=rate, duration_s=duration_s / 2, is_measured=False)
        return warm, LoadStage(rate=rate, duration_s=duration_s)


def try_rate(
    topology: Topology, workload: WorkloadType, rate: float, trial: Trial, base: EngineProfile = BASE
) -> Figures:
    """The figures of a topology at one rate: means over the seeds."""
    return mean(_figures(topology, workload, trial.stages(rate), seed, trial.hops, base) for seed in trial.seeds)


def idle_ttft_s(workload: WorkloadType, base: EngineProfile = BASE) -> float:
    """Seconds to the first token of a request to aggregated servers that do nothing else."""
    alone = LoadStage(rate=1.0, duration_s=1.0)
    figures = _figures(AGGREGATED, workload, (alone,), 0, Hops(), base)
    assert figures.ttft_p50_s is not None, "one request is answered"
    return figures.ttft_p50_s


def profile_of(role: Role, topology: Topology, base: EngineProfile = BASE) -> EngineProfile:
    """What a server of that role is in a topology of ``base`` servers."""
    if role is Role.ENCODE:
        return encoder_of(base)
    return with_role(with_parallel_encoder(base) if topology.has_parallel_encoder else base, role)


Watch = Callable[[StageRecord, float], bool]
"""Told each second of virtual time of the last stage and the instant: whether enough was seen."""


def play_stages(
    topology: Topology,
    workload: WorkloadType,
    stages: tuple[LoadStage, ...],
    *,
    seed: int,
    hops: Hops,
    base: EngineProfile,
    watch: Watch | None = None,
) -> StageRecord:
    """What became of the last stage, on servers that begin cold; of a part of it where ``watch`` saw enough."""
    kernel = Kernel()
    phases = Random(f"{seed}/phases")
    roles = topology.roles
    # Pages are not read: what is chosen by are the router's own ledgers.
    servers = [
        Server(kernel, each, Engine(profile_of(role, topology, base)), scrape_interval_s=None, phase=phases.random())
        for each, role in zip(endpoints_of(roles), roles, strict=True)
    ]
    loaded = load_file(FOLDER / f"{topology.policy}.yaml")
    gateway = Gateway(loaded.router, servers, seed=seed, source=FirstTokenSource.BODY, tells_cached=False)
    sidecars = Sidecars(kernel, servers, hops=hops, decodes_bare=topology.decodes_bare)
    prompts = Prompts(loaded.profile, base.model.name, family_of(base), keeps_bodies=topology.has_stages)
    client = Client(kernel, gateway, sidecars, prompts, Connections(seed, num_workers=1))
    for server in servers:
        server.on_event = sidecars.hear
    generator = LoadGenerator(kernel, client, servers, workload.make(str(seed)), stages, spacing="poisson", seed=seed)
    record = generator.records[-1]
    if watch is not None:
        _look_each_second(kernel, record, watch)
    kernel.run()
    is_over = record.is_sent and record.num_over == len(record.sent)
    left = client.num_in_flight, gateway.num_open, sidecars.num_open
    assert not is_over or left == (0, 0, 0), "nothing is left to happen, yet requests are under way"
    return record


def _figures(
    topology: Topology,
    workload: WorkloadType,
    stages: tuple[LoadStage, ...],
    seed: int,
    hops: Hops,
    base: EngineProfile,
) -> Figures:
    return figures_of(play_stages(topology, workload, stages, seed=seed, hops=hops, base=base))


def _look_each_second(kernel: Kernel, record: StageRecord, watch: Watch) -> None:
    def look() -> None:
        if record.is_sent and record.num_over == len(record.sent):
            return
        if watch(record, kernel.now):
            kernel.stop()
        else:
            kernel.at(kernel.now + 1.0, look)

    kernel.at(kernel.now, look)
