"""Up to which rate does a topology keep the objectives? Found on a grid of rates that all topologies share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from math import log
from typing import Any, Final

from tessera.engine.profiles import EngineProfile
from tessera.sim.client import Sent
from tessera.sim.figures import figures_of
from tessera.sim.load import StageRecord
from tessera.sim.load_stages import LoadStage
from tessera.sim.sidecar import Hops
from tessera.sim.topology import Topology, play_stages
from tessera.sim.workload import WorkloadType

STEP: Final = 1.03
"""From one rate of the grid to the next: what is told is a rate that keeps the objectives, the next one does not."""
_STRIDE: Final = 4
"""Grid steps that are taken at once while the edge is not between two rates that were tried."""
_LOWEST, _HIGHEST = -200, 250
"""Places on the grid: 0.003 to 1,600 requests a second."""
LATE_FRACTION: Final = 0.1
"""Of a stage's requests may be late: the 90th percentile is what counts."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """What must hold at a rate that counts as sustained."""

    ttft_s: float
    """The 90th percentile of the seconds to the first token is below this."""
    tpot_s: float
    """The mean over requests of the mean seconds for each further token is below this."""


class Broken(StrEnum):
    """The objective that a rate breaks."""

    TTFT = "TTFT"
    TPOT = "TPOT"


@dataclass(frozen=True, slots=True)
class Trial:
    """How long a topology is tried at one rate: coarser than the bench's, the same for all that are compared."""

    num_requests: int = 200
    """That are measured, more where ``min_duration_s`` asks for it."""
    min_duration_s: float = 20.0
    warm_fraction: float = 0.5
    """Of the measured time, at the same rate before it."""
    min_warm_s: float = 0.0
    """But not less: batches are as large as they get only when the first answers have ended."""

    def stages(self, rate: float) -> tuple[LoadStage, LoadStage]:
        """The load at one rate."""
        duration_s = max(self.min_duration_s, self.min_warm_s, self.num_requests / rate)
        warm_s = max(self.warm_fraction * duration_s, self.min_warm_s)
        warm = LoadStage(rate=rate, duration_s=warm_s, is_measured=False)
        return warm, LoadStage(rate=rate, duration_s=duration_s)


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one rate."""

    rate: float
    broken: Broken | None
    """Nothing where the objectives are kept; TTFT where both are broken."""
    ttft_p90_s: float | None = None
    """Nothing where the run was stopped, since a tenth of its requests was late."""
    tpot_mean_s: float | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """Where a topology's rates end, under one seed."""

    seed: int
    index: int | None
    """Of the highest rate on the grid that keeps the objectives; nothing where none does."""
    tried: tuple[Tried, ...] = field(repr=False)
    """By rate, rising."""

    @property
    def rate(self) -> float:
        """Requests a second; 0 where not even the lowest rate keeps the objectives."""
        return 0.0 if self.index is None else rate_at(self.index)

    @property
    def last_kept(self) -> Tried | None:
        """What came of the highest rate that keeps the objectives."""
        kept = [each for each in self.tried if each.broken is None]
        return kept[-1] if kept else None

    @property
    def broken(self) -> Broken | None:
        """What breaks first above it."""
        above = [each.broken for each in self.tried if each.broken is not None and each.rate > self.rate]
        return above[0] if above else None

    def as_json(self) -> dict[str, Any]:
        """As ``tessera advise --format json`` tells it."""
        return {
            "seed": self.seed,
            "max_rate": self.rate,
            "breaks": self.broken,
            "tried": [
                {
                    "rate": each.rate,
                    "broken": each.broken,
                    "ttft_p90_s": each.ttft_p90_s,
                    "tpot_mean_s": each.tpot_mean_s,
                }
                for each in self.tried
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One topology under one workload and seed: everything that a worker process needs to know."""

    topology: Topology
    workload: WorkloadType
    base: EngineProfile
    objectives: Objectives
    trial: Trial
    seed: int
    guess: float
    """Requests a second near which the edge is expected."""


def find_edge(search: Search) -> Edge:
    """The highest rate of the grid that keeps the objectives; the same for the same search, wherever it runs."""
    known: dict[int, Tried] = {}

    def keeps(index: int) -> bool:
        if index not in known:
            known[index] = try_rate(search, rate_at(index))
        return known[index].broken is None

    index = highest(keeps, index_of(search.guess))
    return Edge(search.seed, index, tuple(known[each] for each in sorted(known)))


def try_rate(search: Search, rate: float) -> Tried:
    """What comes of one rate."""
    objectives = search.objectives
    stages = search.trial.stages(rate)
    most_late = LATE_FRACTION * stages[-1].num_requests

    def is_hopeless(record: StageRecord, now: float) -> bool:
        return sum(_is_late(each, now, objectives.ttft_s) for each in record.sent) > most_late + 1

    record = play_stages(
        search.topology,
        search.workload,
        stages,
        seed=search.seed,
        hops=Hops(),
        base=search.base,
        watch=is_hopeless,
    )
    if not record.is_sent or record.num_over < len(record.sent):
        return Tried(rate, Broken.TTFT)
    figures = figures_of(record)
    ttft_s, tpot_s = figures.ttft_p90_s, figures.tpot_mean_s
    broken = None
    if figures.num_failed or ttft_s is None or ttft_s >= objectives.ttft_s:
        broken = Broken.TTFT
    elif tpot_s is not None and tpot_s >= objectives.tpot_s:
        broken = Broken.TPOT
    return Tried(rate, broken, ttft_s, tpot_s)


def _is_late(sent: Sent, now: float, limit_s: float) -> bool:
    waited_s = now - sent.sent_at if sent.ttft_s is None else sent.ttft_s
    return waited_s >= limit_s


def highest(keeps: Callable[[int], bool], start: int) -> int | None:
    """The highest place of the grid that keeps its promises, if all below keep them too; nothing where none does.

    >>> highest(lambda index: index <= 17, 3), highest(lambda index: index <= 17, 60), highest(lambda index: False, 0)
    (17, 17, None)
    """
    stride = _STRIDE
    low: int | None = None
    high: int | None = None
    index = min(max(start, _LOWEST), _HIGHEST)
    while low is None or high is None:
        if keeps(index):
            low = index
            if index == _HIGHEST:
                return index
            index = min(index + stride, _HIGHEST)
        else:
            high = index
            if index == _LOWEST:
                return None
            index = max(index - stride, _LOWEST)
        if low is None or high is None:
            stride *= 2
    while high - low > 1:
        middle = (low + high) // 2
        if keeps(middle):
            low = middle
        else:
            high = middle
    return low


def rate_at(index: int) -> float:
    """The rate at a place of the grid, rounded so that it reads well.

    >>> [rate_at(index) for index in (-1, 0, 1, 100)]
    [0.9709, 1.0, 1.03, 19.22]
    """
    return float(f"{STEP**index:.4g}")


def index_of(rate: float) -> int:
    """The place of the grid that is nearest.

    >>> index_of(1.0), index_of(19.0)
    (0, 100)
    """
    return min(max(round(log(max(rate, 1e-9)) / log(STEP)), _LOWEST), _HIGHEST)
