"""Which topology goes furthest, and which only seem to?"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from tessera.sim.advice.candidates import Candidate, Kind
from tessera.sim.advice.search import Broken, Edge
from tessera.sim.topology import Topology

MODEL_ERROR: Final = 0.055
"""Rates that are nearer to each other than this, as a share, tie. The model misses the published throughput that it was
fitted to by up to as much; a step of the search is less."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the simulator says of a candidate."""

    candidate: Candidate
    edges: tuple[Edge, ...]
    """By seed, the same seeds for all."""

    @property
    def name(self) -> str:
        """Of the topology."""
        return self.candidate.topology.name

    @property
    def is_assumed(self) -> bool:
        """Whether it rests on what ``--mm-encoder-tp-mode data`` is assumed to save."""
        return self.candidate.topology.has_parallel_encoder

    @property
    def rate(self) -> float:
        """Requests a second, mean over the seeds."""
        return fmean(edge.rate for edge in self.edges)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the most of the seeds."""
        rates = [edge.rate for edge in self.edges]
        return min(rates), max(rates)

    @property
    def broken(self) -> Broken | None:
        """What breaks first above the rate, under most of the seeds."""
        found = [edge.broken for edge in self.edges if edge.broken is not None]
        return max(Broken, key=found.count) if found else None

    @property
    def tpot_s(self) -> float | None:
        """Mean TPOT at the highest rate that keeps the objectives."""
        known = [edge.last_kept.tpot_mean_s for edge in self.edges if edge.last_kept is not None]
        found = [each for each in known if each is not None]
        return fmean(found) if found else None

    def as_json(self) -> dict[str, Any]:
        """As ``tessera advise --format json`` tells it."""
        topology, bound = self.candidate.topology, self.candidate.bound
        return {
            "topology": self.name,
            "kind": self.candidate.kind.value,
            "is_assumed": self.is_assumed,
            "servers": servers_of(topology),
            "num_gpus": topology.num_gpus,
            "max_rate": round(self.rate, 4),
            "max_rate_by_seed": [edge.rate for edge in self.edges],
            "breaks": self.broken,
            "tpot_mean_s": self.tpot_s,
            "bound_by_arithmetic": {"rate": round(bound.rate, 4), "pool": bound.pool, "cause": bound.cause},
            "edges": [edge.as_json() for edge in self.edges],
        }


def servers_of(topology: Topology) -> list[dict[str, Any]]:
    """Servers of each role and the GPUs of each."""
    each = topology.gpus_per_server
    answering = "decode" if topology.num_prefill else "prefill-decode" if topology.num_encode else "all"
    rows = [
        ("encode", topology.num_encode, 1),
        ("prefill", topology.num_prefill, each),
        (answering, topology.num_decode, each),
    ]
    return [{"role": role, "servers": number, "gpus_each": gpus} for role, number, gpus in rows if number]


def beats(one: Result, other: Result) -> bool:
    """Whether one goes further than another by more than the model can be trusted: by ``MODEL_ERROR`` on the mean, and
    under every seed. Else they tie, or the other goes further."""
    return one.rate > other.rate * (1 + MODEL_ERROR) and all(
        mine.rate > its.rate for mine, its in zip(one.edges, other.edges, strict=True)
    )


@dataclass(frozen=True, slots=True)
class Ranking:
    """The results in the order in which they are told, and what is recommended."""

    results: tuple[Result, ...]
    """By rate, falling; the simpler first where rates are equal."""
    recommended: Result
    """Of those that rest on no assumed flag: what no simpler one equals."""
    ties: tuple[Result, ...]
    """That the recommended one does not beat, and that do not beat it, those with the assumed flag left out."""

    def named(self, name: str) -> Result | None:
        """The result of a topology; nothing where it was not simulated."""
        return next((each for each in self.results if each.name == name), None)

    @property
    def aggregated(self) -> Result:
        """Plain aggregated servers, which are always simulated."""
        found = self.named("aggregated")
        assert found is not None, "plain aggregated servers are always a candidate"
        return found

    def best_of(self, kind: Kind) -> Result | None:
        """The furthest of a kind without the assumed flag; nothing where none was simulated."""
        return next((each for each in self.results if each.candidate.kind is kind and not each.is_assumed), None)


def rank(results: Sequence[Result]) -> Ranking:
    """The simplest topology that nothing more complex beats."""
    ordered = sorted(results, key=lambda each: (-each.rate, each.candidate.kind.complexity, each.name))
    measured = [each for each in ordered if not each.is_assumed]
    simplest_first = sorted(measured, key=lambda each: (each.candidate.kind.complexity, -each.rate))
    recommended = simplest_first[0]
    for each in simplest_first[1:]:
        if beats(each, recommended):
            recommended = each
    ties = tuple(
        each
        for each in measured
        if each is not recommended and not beats(recommended, each) and not beats(each, recommended)
    )
    return Ranking(tuple(ordered), recommended, ties)
