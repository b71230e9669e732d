"""What is worth simulating."""

from itertools import pairwise

import pytest

from tessera.engine.profiles import PROFILES
from tessera.sim.advice.candidates import MARGIN, Kind, candidates_of
from tessera.sim.advice.demand import demand_of
from tessera.sim.topology import BASE, WORKLOADS
from tessera.sim.workloads.repeats import Repeats


def found(num_gpus, base=BASE, workload=WORKLOADS["2x4k"]):
    return candidates_of(num_gpus, base, demand_of(workload, base), 0.05)


def test_sixteen_gpus_and_large_pictures():
    candidates = found(16)
    names = [each.topology.name for each in candidates.chosen]
    assert names[:2] == ["aggregated", "aggregated-encoder-data"]
    assert "6e+5pd" in names
    assert {each.kind for each in candidates.chosen} == set(Kind)
    assert {each.topology.num_gpus for each in candidates.chosen} == {16}
    told = {name: pruned.reason for pruned in candidates.pruned for name in pruned.names}
    assert told["2e+7pd"] == "by arithmetic at most 1.31 req/s: encode is out of encoder"
    # 7 splits with encoders, 7 of P/D, 21 of E/P/D (6 + 5 + ... + 1), and two without.
    assert len(names) + len(told) == 2 + 7 + 7 + 21


def test_what_is_kept_of_a_kind_goes_furthest_and_is_near_the_best():
    candidates = found(16)
    best = max(each.bound.rate for each in candidates.chosen)
    for kind in Kind:
        rates = [each.bound.rate for each in candidates.chosen if each.kind is kind]
        if kind is not Kind.AGGREGATED:
            assert all(first >= second for first, second in pairwise(rates))
            assert all(rate * MARGIN >= best for rate in rates[1:])


@pytest.mark.parametrize(("num_gpus", "names"), [(2, set()), (3, {"1e+1pd"}), (4, {"2e+1pd", "1p+1d"})])
def test_few_gpus_leave_few_ways(num_gpus, names):
    chosen = {each.topology.name: each.topology for each in found(num_gpus).chosen}
    assert chosen.keys() - {"aggregated", "aggregated-encoder-data"} == names
    assert chosen["aggregated"].num_decode == num_gpus // 2
    assert all(topology.num_gpus <= num_gpus for topology in chosen.values())


def test_without_pictures_no_encoders():
    candidates = found(8, workload=Repeats(num_pictures=0))
    assert {each.kind for each in candidates.chosen} == {Kind.AGGREGATED, Kind.P_D}
    assert candidates.pruned[0].reason == "there is nothing to encode"


def test_with_one_gpu_a_server_the_flag_changes_nothing():
    candidates = found(4, PROFILES["h200-tp1-qwen3-vl-8b"])
    assert "aggregated-encoder-data" not in [each.topology.name for each in candidates.chosen]
    assert "one GPU a server" in candidates.pruned[0].reason
