"""What goes further, what ties, and which is recommended."""

from dataclasses import replace

import pytest

from tessera.sim.advice.candidates import Candidate
from tessera.sim.advice.demand import Bound
from tessera.sim.advice.ranking import Result, beats, rank, servers_of
from tessera.sim.advice.search import Broken, Edge, Tried, index_of
from tessera.sim.topology import AGGREGATED, TOPOLOGIES


def result(topology, *rates, tpot_s=0.04):
    edges = []
    for seed, rate in enumerate(rates):
        place = index_of(rate)
        tried = (Tried(rate, None, 1.0, tpot_s), Tried(1.03 * rate, Broken.TPOT, 1.0, 0.051))
        edges.append(Edge(seed, place, tried))
    return Result(Candidate(topology, Bound(1.0, "all", "TPOT")), tuple(edges))


PLAIN = result(AGGREGATED, 2.652, 2.652, 2.652)
DATA = result(TOPOLOGIES["aggregated-encoder-data"], 2.985, 2.985, 2.985)
SIX = TOPOLOGIES["6e+5pd"]
THREE = TOPOLOGIES["4e+4p+2d"]


def test_a_lead_beyond_the_models_error_under_every_seed():
    assert beats(result(SIX, 2.898, 2.898, 2.898), PLAIN)


@pytest.mark.parametrize(
    "rates",
    [
        (2.732, 2.732, 2.732),  # 3 % more: the model cannot tell
        (3.075, 3.075, 2.652),  # 10 % more on the mean, but not under the last seed
        (2.652, 2.652, 2.652),
    ],
)
def test_what_is_no_lead_is_a_tie_and_the_simpler_one_is_taken(rates):
    split = result(SIX, *rates)
    assert not beats(split, PLAIN)
    ranking = rank([split, DATA, PLAIN])
    assert ranking.recommended is PLAIN
    assert ranking.ties == (split,)


def test_a_split_is_recommended_where_it_leads():
    split, further = result(SIX, 2.898, 2.898, 2.898), result(THREE, 2.985, 2.985, 2.985)
    ranking = rank([PLAIN, split, further])
    assert [each.name for each in ranking.results] == ["4e+4p+2d", "6e+5pd", "aggregated"]
    # Three pools lead by 3 % only: two are simpler.
    assert ranking.recommended is split
    assert ranking.ties == (further,)


def test_what_rests_on_an_assumption_is_ranked_and_never_recommended():
    ranking = rank([PLAIN, DATA])
    assert ranking.results[0] is DATA
    assert (ranking.recommended, ranking.ties) == (PLAIN, ())


def test_equal_rates_are_told_simplest_first():
    split = result(SIX, 2.652, 2.652, 2.652)
    assert rank([split, PLAIN]).results == (PLAIN, split)


def test_figures_of_a_result():
    found = result(SIX, 1.0, 1.03)
    assert (round(found.rate, 3), found.spread, found.broken) == (1.015, (1.0, 1.03), Broken.TPOT)
    assert found.tpot_s == pytest.approx(0.04)
    nothing = Result(found.candidate, (Edge(0, None, ()),))
    assert (nothing.rate, nothing.broken, nothing.tpot_s) == (0.0, None, None)


def test_servers_of_each_role():
    assert servers_of(AGGREGATED) == [{"role": "all", "servers": 8, "gpus_each": 2}]
    assert [(row["role"], row["servers"], row["gpus_each"]) for row in servers_of(THREE)] == [
        ("encode", 4, 1),
        ("prefill", 4, 2),
        ("decode", 2, 2),
    ]
    one_gpu = replace(SIX, gpus_per_server=1)
    assert [(row["role"], row["gpus_each"]) for row in servers_of(one_gpu)] == [("encode", 1), ("prefill-decode", 1)]
