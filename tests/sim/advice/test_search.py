"""The search on a shared grid."""

import pytest

from tessera.sim.advice.search import (
    Broken,
    Edge,
    Objectives,
    Search,
    Trial,
    Tried,
    find_edge,
    highest,
    index_of,
    rate_at,
    try_rate,
)
from tessera.sim.topology import BASE, Topology
from tessera.sim.workloads.repeats import Repeats

SHORT = Trial(num_requests=30, min_duration_s=5.0)
TWO = Topology(name="aggregated", num_decode=2)


def search(ttft_s=1.0, tpot_s=0.05, guess=4.0):
    return Search(
        topology=TWO,
        workload=Repeats(num_pictures=3, output_tokens=20),
        base=BASE,
        objectives=Objectives(ttft_s, tpot_s),
        trial=SHORT,
        seed=0,
        guess=guess,
    )


@pytest.mark.parametrize("start", [-250, -30, 16, 17, 18, 40, 300])
def test_the_edge_is_found_from_wherever_it_starts(start):
    tried = []
    assert highest(lambda index: tried.append(index) or index <= 17, start) == 17
    assert len(tried) == len(set(tried))
    assert {17, 18} <= set(tried)


def test_a_near_guess_takes_four_runs():
    tried = []
    highest(lambda index: tried.append(index) or index <= 17, 16)
    assert tried == [16, 20, 18, 17]


def test_no_rate_and_every_rate():
    assert highest(lambda index: False, 5) is None
    assert highest(lambda index: True, 5) == 250


def test_the_grid_rises_by_three_percent_and_finds_its_places_again():
    assert all(index_of(rate_at(index)) == index for index in range(-200, 251))
    assert rate_at(1) / rate_at(0) == pytest.approx(1.03)
    assert (index_of(0.0), index_of(1e9)) == (-200, 250)


def test_the_load_has_enough_requests_and_lasts_long_enough():
    warm, measured = Trial().stages(2.0)
    assert (warm.duration_s, measured.duration_s, measured.num_requests) == (50.0, 100.0, 200)
    assert (warm.is_measured, measured.is_measured) == (False, True)
    assert Trial().stages(50.0)[1].duration_s == 20.0
    # Answers of 300 tokens at 50 ms take 15 s: half as long again passes before the first is measured.
    warm, measured = Trial(min_warm_s=22.5).stages(50.0)
    assert (warm.duration_s, measured.duration_s) == (22.5, 22.5)


def test_a_rate_that_is_kept():
    tried = try_rate(search(), 2.0)
    assert tried.broken is None
    assert 0.3 < tried.ttft_p90_s < 1.0
    assert 0.0174 < tried.tpot_mean_s < 0.05


def test_a_run_is_stopped_when_a_tenth_is_late():
    # Two servers do 8 req/s: 40 leave queues that grow.
    assert try_rate(search(), 40.0) == Tried(40.0, Broken.TTFT)


def test_tokens_that_come_too_slowly():
    tried = try_rate(search(tpot_s=0.018), 3.0)
    assert tried.broken is Broken.TPOT
    assert tried.tpot_mean_s > 0.018


def test_an_edge_is_the_same_each_time_and_says_what_breaks():
    edge = find_edge(search())
    assert edge == find_edge(search())
    assert edge.broken in set(Broken)
    kept = [each.rate for each in edge.tried if each.broken is None]
    assert edge.rate == max(kept) == edge.last_kept.rate
    assert rate_at(edge.index + 1) in [each.rate for each in edge.tried if each.broken]


def test_objectives_that_nothing_keeps():
    edge = find_edge(search(ttft_s=0.01, guess=0.004))
    assert (edge.rate, edge.index, edge.last_kept) == (0.0, None, None)
    assert edge.as_json()["max_rate"] == 0.0


def test_an_edge_as_json():
    edge = Edge(3, 0, (Tried(1.0, None, 0.5, 0.02), Tried(1.03, Broken.TPOT, 0.6, 0.06)))
    told = edge.as_json()
    assert (told["seed"], told["max_rate"], told["breaks"]) == (3, 1.0, "TPOT")
    assert told["tried"][1] == {"rate": 1.03, "broken": "TPOT", "ttft_p90_s": 0.6, "tpot_mean_s": 0.06}
