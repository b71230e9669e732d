"""The search for the highest rate."""

from dataclasses import replace

import pytest

from tessera.sim import max_rate
from tessera.sim.figures import FIGURES, Figures
from tessera.sim.max_rate import MAX_RATE, find_cell, find_cells, highest, ttft_limit_s
from tessera.sim.topology import Trial

FINE = replace(Figures(**dict.fromkeys(FIGURES, 0.0)), ttft_p90_s=1.0, tpot_mean_s=0.02)


@pytest.mark.parametrize("limit", [0.02, 0.3, 0.5, 1.0, 17.3, 59.0])
def test_what_is_told_is_kept_and_little_more_is_not(limit):
    found = highest(lambda rate: rate <= limit)
    assert found <= limit <= found + 0.02 * max(found + 0.02, 0.5)


def test_what_is_kept_at_the_highest_rate_is_kept_beyond_it():
    tried = []
    assert highest(lambda rate: tried.append(rate) or True) == MAX_RATE
    assert tried == [0.5, 1, 2, 4, 8, 16, 32, 60]
    assert highest(lambda rate: False) == 0.0


def test_the_limit_follows_the_idle_fleet():
    assert ttft_limit_s(0.35) == pytest.approx(0.9)


@pytest.fixture
def figures(monkeypatch):
    """Fleets whose TTFT breaks above 10 req/s, and whose TPOT above 4."""
    asked = []

    def try_rate(topology, workload, rate, trial):
        asked.append(rate)
        return replace(FINE, ttft_p90_s=1.0 if rate <= 10 else 5.0, tpot_mean_s=0.02 if rate <= 4 else 0.051)

    monkeypatch.setattr(max_rate, "try_rate", try_rate)
    monkeypatch.setattr(max_rate, "idle_ttft_s", lambda workload: 0.6)
    return asked


def test_a_cell_has_both_rates_and_tries_none_twice(figures):
    cell = find_cell("2x4k", "aggregated", Trial())
    assert cell.ttft_max_rate == pytest.approx(10, rel=0.02)
    assert cell.max_rate == pytest.approx(4, rel=0.02)
    assert len(figures) == len(set(figures)) == len(cell.tried)
    assert [each.rate for each in cell.tried] == sorted(figures)
    told = cell.as_json()
    assert (told["ttft_limit_s"], told["is_censored"]) == (1.4, False)
    assert told["tried"][0] == {
        "rate": 0.5,
        "ttft_p50_s": 0.0,
        "ttft_p90_s": 1.0,
        "tpot_mean_s": 0.02,
        "num_failed": 0.0,
    }


def test_every_pair_has_its_cell(figures):
    cells = find_cells([("2x4k", "aggregated"), ("3x720p", "2e+7pd")], Trial(), 1)
    assert [(cell.workload, cell.topology) for cell in cells] == [("2x4k", "aggregated"), ("3x720p", "2e+7pd")]
