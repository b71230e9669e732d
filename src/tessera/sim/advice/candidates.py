"""Which ways to divide a number of GPUs are worth simulating for a workload?"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final

from tessera.engine.profiles import EngineProfile
from tessera.sim.advice.demand import Bound, Demand, bound_of
from tessera.sim.topology import Topology

MAX_GPUS: Final = 64
"""Of one question; a run takes time in proportion."""
MARGIN: Final = 1.3
"""How far arithmetic may fall short of the simulator: seen were 16 % on the five workloads of the bench."""


class Kind(Enum):
    """How stages are divided; the simpler the sooner."""

    AGGREGATED = "aggregated"
    E_PD = "E/PD"
    P_D = "P/D"
    E_P_D = "E/P/D"

    @property
    def complexity(self) -> int:
        """How many kinds of servers there are to run, and how much passes between them."""
        return list(Kind).index(self)


_MOST: Final = {Kind.E_PD: 3, Kind.P_D: 1, Kind.E_P_D: 1}
"""Splits of each kind that are simulated: those that arithmetic lets go furthest."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A topology, and how far arithmetic lets it go."""

    topology: Topology
    bound: Bound

    @property
    def kind(self) -> Kind:
        """How it divides the stages."""
        return kind_of(self.topology)


@dataclass(frozen=True, slots=True)
class Pruned:
    """Topologies that are not simulated."""

    names: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """What is compared, and what is not."""

    chosen: tuple[Candidate, ...]
    """Plain aggregated servers first, simple ones before others."""
    pruned: tuple[Pruned, ...]


def kind_of(topology: Topology) -> Kind:
    """How a topology divides the stages.

    >>> kind_of(Topology(name="", num_encode=2, num_decode=7)).value
    'E/PD'
    """
    if topology.num_encode:
        return Kind.E_P_D if topology.num_prefill else Kind.E_PD
    return Kind.P_D if topology.num_prefill else Kind.AGGREGATED


def candidates_of(num_gpus: int, base: EngineProfile, demand: Demand, tpot_s: float) -> Candidates:
    """Aggregated servers plain and with the encoder's data parallelism, and the best splits of each kind.

    Args:
        num_gpus: at least one server's.
        base: what a server with a language model is.
        demand: of one request.
        tpot_s: the mean that must be kept, seconds.
    """
    chosen = [Candidate(each, bound_of(each, demand, base, tpot_s)) for each in _aggregated(num_gpus, base)]
    pruned: list[Pruned] = []
    if base.num_gpus == 1:
        pruned.append(Pruned(("aggregated-encoder-data",), "with one GPU a server the flag changes nothing"))
    splits = [Candidate(each, bound_of(each, demand, base, tpot_s)) for each in _splits(num_gpus, base)]
    if not demand.encode_s:
        idle = tuple(each.topology.name for each in splits if each.topology.num_encode)
        splits = [each for each in splits if not each.topology.num_encode]
        pruned += [Pruned(idle, "there is nothing to encode")] if idle else []
    best = max(each.bound.rate for each in (*chosen, *splits))
    for kind, most in _MOST.items():
        kept, dropped = _best(kind, [each for each in splits if each.kind is kind], most, best)
        chosen += kept
        pruned += dropped
    return Candidates(tuple(chosen), tuple(pruned))


def _best(kind: Kind, splits: list[Candidate], most: int, best: float) -> tuple[list[Candidate], list[Pruned]]:
    """The best splits of a kind, at least one, and why not the others."""
    ordered = sorted(splits, key=lambda each: -each.bound.rate)
    kept = [each for place, each in enumerate(ordered[:most]) if not place or each.bound.rate * MARGIN >= best]
    dropped = [
        Pruned(
            (each.topology.name,),
            f"by arithmetic at most {each.bound.rate:.3g} req/s: {each.bound.pool} is out of {each.bound.cause}"
            if each.bound.cause != "TPOT"
            else f"by arithmetic TPOT is at its limit at {each.bound.rate:.3g} req/s",
        )
        for each in ordered[len(kept) : len(kept) + 3]
    ]
    rest = ordered[len(kept) + 3 :]
    if rest:
        names = tuple(each.topology.name for each in rest)
        dropped.append(Pruned(names, f"by arithmetic further behind the best {kind.value}"))
    return kept, dropped


def _aggregated(num_gpus: int, base: EngineProfile) -> Iterator[Topology]:
    number = num_gpus // base.num_gpus
    yield Topology(name="aggregated", num_decode=number, gpus_per_server=base.num_gpus)
    if base.num_gpus > 1:
        yield Topology(
            name="aggregated-encoder-data",
            num_decode=number,
            gpus_per_server=base.num_gpus,
            has_parallel_encoder=True,
        )


def _splits(num_gpus: int, base: EngineProfile) -> Iterator[Topology]:
    """Every way to use all the GPUs that whole servers can use."""
    per_server = base.num_gpus
    # Encoders take what is left of whole servers, and a server's GPUs more each time.
    for num_encode in range(num_gpus % per_server, num_gpus - per_server + 1, per_server):
        number = (num_gpus - num_encode) // per_server
        if num_encode:
            yield Topology(
                name=f"{num_encode}e+{number}pd",
                num_encode=num_encode,
                num_decode=number,
                gpus_per_server=per_server,
            )
        for num_prefill in range(1, number):
            num_decode = number - num_prefill
            encoders = f"{num_encode}e+" if num_encode else ""
            yield Topology(
                name=f"{encoders}{num_prefill}p+{num_decode}d",
                num_encode=num_encode,
                num_prefill=num_prefill,
                num_decode=num_decode,
                gpus_per_server=per_server,
            )
