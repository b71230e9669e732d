"""Which topologies are compared on a number of GPUs, for which requests, and what does one do at one rate?"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from tessera.core.types import Endpoint
from tessera.engine.engine import Engine
from tessera.engine.profiles import PROFILES, EngineProfile, encoder_of, with_parallel_encoder, with_role
from tessera.engine.roles import Role
from tessera.sim.figures import Figures, figures_of, mean
from tessera.sim.kernel import Kernel
from tessera.sim.load import LoadGenerator, StageRecord
from tessera.sim.load_stages import LoadStage
from tessera.sim.pools import Pools
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import Server, endpoints
from tessera.sim.staged_client import Hops, StagedClient
from tessera.sim.workload import WorkloadType
from tessera.sim.workloads.documents import Documents

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
    found = iter(endpoints(topology.num_encode + topology.num_prefill + topology.num_decode))

    def pool(role: Role, number: int) -> list[Server]:
        return [_server(kernel, next(found), profile_of(role, topology, base), phases) for _ in range(number)]

    takes_kv = Role.DECODE if topology.num_prefill else Role.PREFILL_DECODE
    decode = pool(takes_kv if topology.has_stages else Role.ALL, topology.num_decode)
    prefill, encode = pool(Role.PREFILL, topology.num_prefill), pool(Role.ENCODE, topology.num_encode)
    pools = Pools(decode=decode, prefill=prefill, encode=encode, spreads=topology.spreads, seed=seed)
    prompts = Prompts(pools.profile, base.model.name, family_of(base))
    client = StagedClient(kernel, pools, prompts, hops, decodes_bare=topology.decodes_bare)
    servers = [*decode, *prefill, *encode]
    for server in servers:
        server.on_event = client.hear
    generator = LoadGenerator(kernel, client, servers, workload.make(str(seed)), stages, spacing="poisson", seed=seed)
    record = generator.records[-1]
    if watch is not None:
        _look_each_second(kernel, record, watch)
    kernel.run()
    is_over = record.is_sent and record.num_over == len(record.sent)
    assert not is_over or client.num_in_flight == pools.num_open == 0, "nothing is left to happen, yet requests are"
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


def _server(kernel: Kernel, endpoint: Endpoint, profile: EngineProfile, phases: Random) -> Server:
    # Pages are not read: what is chosen by are the router's own ledgers.
    return Server(kernel, endpoint, Engine(profile), scrape_interval_s=None, phase=phases.random())
