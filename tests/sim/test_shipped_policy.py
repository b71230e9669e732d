"""Two scenarios, cut short, in which the shipped policy is better than llm-d's by more than luck."""

from dataclasses import replace

import pytest

from tessera.sim.run import runs_of, simulate
from tessera.sim.scenario import load_scenario

PEER, OURS = "llm-d-multimodal", "tessera-multimodal"


@pytest.mark.parametrize(
    ("name", "rate", "warm_up_s", "duration_s", "ratio"),
    [("three-photos", 16.0, 60, 40, 1.5), ("zipf-groups", 40.0, 40, 40, 10.0)],
)
def test_its_slowest_first_tokens_come_sooner(name, rate, warm_up_s, duration_s, ratio):
    """The 90th percentile of one seed, and no fewer tokens."""
    scenario = load_scenario(name).with_policies([PEER, OURS])
    load = scenario.document.load
    warm_up = replace(load.warm_up, duration_s=warm_up_s)
    load = replace(load, rates=(rate,), duration_s=duration_s, warm_up=warm_up)
    scenario = replace(scenario, document=replace(scenario.document, load=load))
    peer, ours = (simulate(run)[0].figures for run in runs_of(scenario, [0]))
    assert peer.num_failed == ours.num_failed == 0
    assert peer.ttft_p90_s >= ratio * ours.ttft_p90_s
    assert ours.output_tokens_per_s >= peer.output_tokens_per_s
