import pytest

from tessera.sim.figures import FIGURES, Figures
from tessera.sim.report import report_of
from tessera.sim.run import Row

PUBLISHED = """
published:
  - {policy: random, figure: output_tokens_per_s, rates: [4, 8, 99], values: [100, 200, 1], within: 0.09}
  - {policy: random, figure: ttft_p90_s, rates: [8], values: [2.0], within: 0.25}
"""


def figures(**given):
    return Figures(**(dict.fromkeys(FIGURES, 0.0) | given))


@pytest.fixture
def report(small):
    scenario = small(policies="[random, round-robin]", extra=PUBLISHED)
    rows = [
        Row(policy, rate, seed, figures(output_tokens_per_s=rate * 25 + seed * 20, ttft_p90_s=None if seed else 1.4))
        for policy in ("round-robin", "random")
        for rate in (8.0, 4.0)
        for seed in (1, 0)
    ]
    return report_of(scenario, [0, 1], rows)


def test_means_over_seeds_in_the_scenarios_order(report):
    assert [(row["policy"], row["rate"], row["output_tokens_per_s"]) for row in report["means"]] == [
        ("random", 4.0, 110.0),
        ("random", 8.0, 210.0),
        ("round-robin", 4.0, 110.0),
        ("round-robin", 8.0, 210.0),
    ]
    assert [(row["policy"], row["rate"], row["seed"]) for row in report["runs"]][:3] == [
        ("random", 4.0, 0),
        ("random", 4.0, 1),
        ("random", 8.0, 0),
    ]


def test_each_published_cell_that_was_run_has_its_error(report):
    assert [
        (cell["rate"], cell["figure"], cell["simulated"], cell["error"], cell["is_within"])
        for cell in report["published"]
    ] == [
        (4.0, "output_tokens_per_s", 110.0, 0.1, False),
        (8.0, "output_tokens_per_s", 210.0, 0.05, True),
        (8.0, "ttft_p90_s", 1.4, -0.3, False),
    ]


def test_what_it_is_a_report_of(report):
    assert (report["scenario"], report["profile"], report["is_fitted"]) == ("small", "h200-tp2-qwen3-vl-32b", True)
    assert report["policies"] == [
        {"name": "random", "first_token": "counter"},
        {"name": "round-robin", "first_token": "counter"},
    ]
