"""The published table of llm-d's multimodal guide: one set of parameters, both columns."""

import json
import os
from pathlib import Path

import pytest

from tessera.sim.report import report_of
from tessera.sim.run import perform, runs_of
from tessera.sim.scenario import load_scenario

RESULT = Path(__file__).parents[2] / "bench" / "results" / "article.json"


def cells(name, seeds, rates=None):
    scenario = load_scenario(name)
    scenario = scenario.with_rates(rates) if rates else scenario
    rows = [row for _, found in perform(runs_of(scenario, seeds), os.cpu_count() or 1) for row in found]
    return report_of(scenario, seeds, rows)["published"]


def beyond(found, extra=0.0):
    """The cells that miss their bound by more than ``extra``."""
    return [
        f"{cell['policy']} {cell['figure']} at {cell['rate']:g}: {cell['error']:+.1%}, bound {cell['within']:.0%}"
        for cell in found
        if abs(cell["error"]) > cell["within"] + extra
    ]


def test_three_rates_with_one_seed():
    """Where a single seed tells: below saturation. The ladder is cut, so that fewer questions are repeats."""
    found = cells("article", [0], rates=(5.0, 10.0, 15.0))
    assert len(found) == 18
    assert beyond(found, extra=0.05) == []


@pytest.mark.slow
def test_the_whole_table():
    """As the committed result has it, to the last digit."""
    found = cells("article", range(5))
    assert len(found) == 48
    assert beyond(found) == []
    assert found == committed()["fitted"]["cells"]


def test_the_committed_result_has_every_cell_within_its_bound():
    """With the seeds that were fitted, with those that were looked at, and with those that nobody saw."""
    by_seeds = committed()
    assert {name: each["seeds"] for name, each in by_seeds.items()} == {
        "fitted": [0, 1, 2, 3, 4],
        "looked_at": [10, 11, 12, 13, 14],
        "unseen": [20, 21, 22, 23, 24],
    }
    columns = load_scenario("article").document.published
    published = [
        (column.policy, column.figure, rate, value, column.within)
        for column in columns
        for rate, value in zip(column.rates, column.values, strict=True)
    ]
    for name, each in by_seeds.items():
        fields = ("policy", "figure", "rate", "published", "within")
        assert [tuple(cell[field] for field in fields) for cell in each["cells"]] == published
        for cell in each["cells"]:
            assert cell["error"] == pytest.approx(cell["simulated"] / cell["published"] - 1, abs=1e-4)
        assert beyond(each["cells"], extra=0.0 if name == "fitted" else 0.05) == []


def committed():
    """What ``bench/article.py`` wrote, by the name of its seeds."""
    return json.loads(RESULT.read_text())["by_seeds"]
