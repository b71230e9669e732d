"""Up to which rate does a topology keep its promises? Doubled until it breaks them, then halved in between."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass
from typing import Any, Final

from tessera.sim.figures import Figures
from tessera.sim.topology import TOPOLOGIES, WORKLOADS, Trial, idle_ttft_s, try_rate
from tessera.sim.workers import workers

FIRST_RATE: Final = 0.5
"""Requests a second that are tried first."""
MAX_RATE: Final = 60.0
"""No more are tried: what is kept there counts as kept beyond it."""
PRECISION: Final = 0.02
"""Between the rate that is told and one that breaks the promises, as a share."""
MAX_TPOT_S: Final = 0.050
"""A mean above this breaks the stricter promise."""


def ttft_limit_s(idle_s: float) -> float:
    """What the 90th percentile of TTFT must stay below: ``2 x`` that of an idle aggregated fleet ``+ 0.2 s``."""
    return 2 * idle_s + 0.2


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one rate."""

    rate: float
    figures: Figures


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One topology under one workload."""

    workload: str
    topology: str
    idle_ttft_s: float
    """Of an aggregated fleet that does nothing else."""
    ttft_max_rate: float
    """Requests a second up to which p90 TTFT is below its limit; 0: not even the least that was tried."""
    max_rate: float
    """The same, and mean TPOT below 50 ms."""
    tried: tuple[Tried, ...]
    """By rate, rising."""

    def as_json(self) -> dict[str, Any]:
        """As ``tessera simulate topology --format json`` tells it."""
        return {
            "workload": self.workload,
            "topology": self.topology,
            "idle_ttft_s": self.idle_ttft_s,
            "ttft_limit_s": ttft_limit_s(self.idle_ttft_s),
            "ttft_max_rate": self.ttft_max_rate,
            "max_rate": self.max_rate,
            "is_ttft_censored": self.ttft_max_rate >= MAX_RATE,
            "is_censored": self.max_rate >= MAX_RATE,
            "tried": [
                {
                    "rate": each.rate,
                    "ttft_p50_s": each.figures.ttft_p50_s,
                    "ttft_p90_s": each.figures.ttft_p90_s,
                    "tpot_mean_s": each.figures.tpot_mean_s,
                    "num_failed": each.figures.num_failed,
                }
                for each in self.tried
            ],
        }


def find_cell(workload: str, topology: str, trial: Trial) -> Cell:
    """Both rates of a topology under a workload."""
    spec, made = WORKLOADS[workload], TOPOLOGIES[topology]
    idle_s = idle_ttft_s(spec)
    limit_s = ttft_limit_s(idle_s)
    known: dict[float, Figures] = {}

    def figures(rate: float) -> Figures:
        if rate not in known:
            known[rate] = try_rate(made, spec, rate, trial)
        return known[rate]

    def keeps_ttft(rate: float) -> bool:
        return _keeps_ttft(figures(rate), limit_s)

    def keeps_both(rate: float) -> bool:
        tpot_s = figures(rate).tpot_mean_s
        return keeps_ttft(rate) and tpot_s is not None and tpot_s < MAX_TPOT_S

    return Cell(
        workload=workload,
        topology=topology,
        idle_ttft_s=idle_s,
        ttft_max_rate=highest(keeps_ttft),
        max_rate=highest(keeps_both),
        tried=tuple(Tried(rate, known[rate]) for rate in sorted(known)),
    )


def find_cells(pairs: Sequence[tuple[str, str]], trial: Trial, num_jobs: int) -> Iterator[Cell]:
    """The cell of each workload and topology, as they come to an end, in ``num_jobs`` processes; in this one if 1."""
    if num_jobs <= 1 or len(pairs) <= 1:
        for workload, topology in pairs:
            yield find_cell(workload, topology, trial)
        return
    with workers(num_jobs) as pool:
        pending = [pool.submit(find_cell, workload, topology, trial) for workload, topology in pairs]
        for done in as_completed(pending):
            yield done.result()


def highest(keeps: Callable[[float], bool]) -> float:
    """The highest rate that keeps its promises, to ``PRECISION``; ``MAX_RATE`` where that one does.

    >>> 7.0 * (1 - PRECISION) <= highest(lambda rate: rate <= 7.0) <= 7.0
    True
    """
    kept, broken = 0.0, FIRST_RATE
    while keeps(broken):
        if broken == MAX_RATE:
            return MAX_RATE
        kept, broken = broken, min(2 * broken, MAX_RATE)
    while broken - kept > PRECISION * max(broken, FIRST_RATE):
        middle = (kept + broken) / 2
        if keeps(middle):
            kept = middle
        else:
            broken = middle
    return kept


def _keeps_ttft(figures: Figures, limit_s: float) -> bool:
    return not figures.num_failed and figures.ttft_p90_s is not None and figures.ttft_p90_s < limit_s
