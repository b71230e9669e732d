"""Do fleets that divide the stages go as far as the model of ``fleet-model.md`` says, and which way wins?"""

from collections.abc import Iterator
from functools import cache

import pytest

from tessera.core.flow.settings import FlowSettings
from tessera.engine.profiles import PROFILES
from tessera.engine.roles import Role
from tessera.sim.max_rate import Cell, find_cell, ttft_limit_s
from tessera.sim.topology import (
    AGGREGATED,
    BASE,
    NUM_GPUS,
    TOPOLOGIES,
    WORKLOADS,
    Trial,
    idle_ttft_s,
    profile_of,
    try_rate,
)

_find_cell = cache(find_cell)
SHORT = Trial(min_duration_s=20.0, max_duration_s=30.0, num_requests=100, seeds=(0,))


def test_every_topology_has_all_gpus() -> None:
    assert {topology.num_gpus for topology in TOPOLOGIES.values()} == {NUM_GPUS}


def test_servers_of_each_role() -> None:
    encoder = profile_of(Role.ENCODE, TOPOLOGIES["4e+6pd"])
    assert (encoder.name, encoder.num_gpus) == ("h200-tp1-qwen3-vl-32b-encoder", 1)
    assert encoder == PROFILES[encoder.name]
    assert profile_of(Role.ALL, AGGREGATED) == BASE
    assert profile_of(Role.PREFILL_DECODE, TOPOLOGIES["4e+6pd"]).role is Role.PREFILL_DECODE
    parallel = profile_of(Role.ALL, TOPOLOGIES["aggregated-encoder-data"])
    assert parallel.efficiency.vit_time_fraction == 0.75


def test_an_idle_fleet() -> None:
    # Latency 27, CPU 4 + 3 x (4 + 27); step 9.2, 2,953 tokens, attention, encoder 8 + 3 x (3 + 13.2).
    assert idle_ttft_s(WORKLOADS["3x720p"]) == pytest.approx(0.348, abs=0.002)


def test_the_load_lasts_as_long_as_it_must() -> None:
    def lasts(rate: float) -> tuple[float, float]:
        warm, measured = Trial().stages(rate)
        assert (warm.rate, warm.is_measured, measured.rate, measured.is_measured) == (rate, False, rate, True)
        return warm.duration_s, measured.duration_s

    assert [lasts(rate) for rate in (1.0, 20.0, 60.0)] == [(120.0, 240.0), (75.0, 150.0), (45.0, 90.0)]


def test_the_same_seed_gives_the_same_figures() -> None:
    workload, topology = WORKLOADS["2x4k"], TOPOLOGIES["4e+4p+2d"]
    assert try_rate(topology, workload, 1.5, SHORT) == try_rate(topology, workload, 1.5, SHORT)


def test_stages_apart_keep_tpot_flat_and_cost_an_idle_request_little() -> None:
    workload = WORKLOADS["2x4k"]
    together = try_rate(AGGREGATED, workload, 3.0, SHORT)
    apart = try_rate(TOPOLOGIES["4e+4p+2d"], workload, 3.0, SHORT)
    assert together.num_failed == apart.num_failed == 0
    assert together.tpot_mean_s is not None
    assert apart.tpot_mean_s is not None
    assert together.tpot_mean_s > 0.045
    assert apart.tpot_mean_s < 0.021
    alone = try_rate(AGGREGATED, WORKLOADS["1x360p"], 0.5, SHORT).ttft_p50_s
    encoded_apart = try_rate(TOPOLOGIES["4e+6pd"], WORKLOADS["1x360p"], 0.5, SHORT).ttft_p50_s
    assert alone is not None
    assert encoded_apart is not None
    assert 0.025 <= encoded_apart - alone <= 0.06


def test_at_4k_two_encoders_are_too_few_and_six_are_not() -> None:
    workload = WORKLOADS["2x4k"]
    limit_s = ttft_limit_s(idle_ttft_s(workload))
    few, many = (try_rate(TOPOLOGIES[name], workload, 2.8, SHORT) for name in ("2e+7pd", "6e+5pd"))
    assert few.ttft_p90_s is not None
    assert many.ttft_p90_s is not None
    assert few.ttft_p90_s > 2 * limit_s
    assert many.ttft_p90_s < limit_s


@pytest.mark.slow
@pytest.mark.parametrize(
    ("workload", "topology", "wins"),
    [
        ("3x720p", "2e+7pd", False),
        ("3x720p", "4e+6pd", False),
        ("3x720p", "6e+5pd", False),
        ("3x720p", "4e+4p+2d", False),
        ("10x1080p", "2e+7pd", False),
        ("10x1080p", "4e+6pd", False),
        ("10x1080p", "6e+5pd", False),
        ("10x1080p", "4e+4p+2d", False),
        ("20x1080p", "4e+6pd", False),
        ("20x1080p", "6e+5pd", False),
        ("2x4k", "2e+7pd", False),
        ("2x4k", "4e+6pd", False),
        ("2x4k", "6e+5pd", True),
        ("2x4k", "4e+4p+2d", False),
    ],
)
def test_which_way_wins(workload: str, topology: str, wins: bool) -> None:
    """Against plain aggregated servers, by both promises; where E/PD wins, by little, under three seeds."""
    trial = Trial(seeds=(0, 1, 2) if wins else (0,))
    together, apart = (_find_cell(workload, name, trial) for name in (AGGREGATED.name, topology))
    assert (apart.ttft_max_rate > together.ttft_max_rate) is wins
    assert (apart.max_rate > together.max_rate) is wins
    if TOPOLOGIES[topology].num_prefill:
        assert max(_tpots_s(apart)) < 0.022


def _tpots_s(cell: Cell) -> Iterator[float]:
    """At all rates but those so far beyond that sidecars give prefills up, and have who decodes compute prompts."""
    for each in cell.tried:
        ttft_s, tpot_s = each.figures.ttft_p90_s, each.figures.tpot_mean_s
        if ttft_s is not None and tpot_s is not None and ttft_s < FlowSettings().prefill_budget_s:
            yield tpot_s
