"""The published table of llm-d's multimodal guide: one set of parameters, both columns."""

import os

import pytest

from tessera.sim.report import report_of
from tessera.sim.run import perform, runs_of
from tessera.sim.scenario import load_scenario


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
    found = cells("article", range(5))
    assert len(found) == 48
    assert beyond(found) == []
