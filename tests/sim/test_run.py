"""Whole small fleets: nothing is lost, the same seed gives the same bytes, a fleet of one is its engine."""

import json
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from tessera.core.types import Ending
from tessera.engine.engine import Engine
from tessera.engine.events import Finished, FirstToken
from tessera.engine.profiles import PROFILES
from tessera.sim.load_stages import offsets
from tessera.sim.policies import named, shipped_policies
from tessera.sim.prompts import Prompts
from tessera.sim.report import report_of
from tessera.sim.run import family_of, perform, play, runs_of, simulate
from tessera.sim.scenario import parse_scenario


@pytest.mark.parametrize("policy", shipped_policies())
def test_every_request_of_every_policy_comes_to_an_end(small, policy):
    (run,) = runs_of(small(endpoints=3, policies=f"[{policy}]"), [1])
    records = play(run)
    assert [len(record.sent) for record in records] == [20, 40, 80]
    assert {sent.ending for record in records for sent in record.sent} == {Ending.FINISHED}
    assert all(sent.sent_at < sent.first_at < sent.ended_at for record in records for sent in record.sent)


@pytest.mark.parametrize("policy", ["llm-d-multimodal", "least-request"])
def test_impatient_clients_are_failures_and_nothing_stays_behind(small, policy):
    slow = "{type: documents, num_pages: 2, output_tokens: 20}"
    scenario = small(policies=f"[{policy}]", rates="[5]", workload=slow, extra="client: {timeout_s: 1.5}")
    (record,) = [each for each in play(runs_of(scenario, [0])[0]) if each.stage.is_measured]
    endings = [sent.ending for sent in record.sent]
    assert set(endings) == {Ending.FINISHED, Ending.ABORTED}
    assert len(endings) == 50
    assert all(sent.ended_at - sent.sent_at <= 1.5 + 1e-9 for sent in record.sent)


def bytes_of(scenario, seeds, num_jobs=1):
    """The report, as the command prints it."""
    rows = [row for _, found in perform(runs_of(scenario, seeds), num_jobs) for row in found]
    return json.dumps(report_of(scenario, seeds, rows))


def test_the_same_seeds_give_the_same_bytes_in_any_number_of_processes(small):
    scenario = small(policies="[llm-d-multimodal, power-of-two]", rates="[4]")
    once = bytes_of(scenario, [0, 1])
    assert bytes_of(scenario, [0, 1]) == once
    assert bytes_of(scenario, [0, 1], num_jobs=2) == once
    assert bytes_of(scenario, [2, 3]) != once


def test_a_policy_is_not_told_apart_by_who_ran_before(small):
    scenario = small(policies="[consistent-hash, llm-d-multimodal]")
    last = simulate(runs_of(scenario, [0])[1])
    assert simulate(runs_of(small(), [0])[0]) == last


def test_only_a_policy_that_predicts_is_held_to_its_predictions(small):
    scenario = small(policies="[tessera-multimodal, random]", rates="[4]")
    rows = [row for _, found in perform(runs_of(scenario, [0]), 1) for row in found]
    ours, random = (next(row for row in rows if row.policy == name) for name in ("tessera-multimodal", "random"))
    assert ours.figures.ttft_prediction_close_fraction > 0.9
    assert ours.figures.ttft_prediction_ratio_p50 == pytest.approx(1.0, abs=0.2)
    assert ours.figures.ttft_prediction_error_mean_s < 0.03
    assert random.figures.ttft_prediction_ratio_p50 is None
    (report,) = [row for row in report_of(scenario, [0], rows)["means"] if row["policy"] == "random"]
    assert report["ttft_prediction_error_mean_s"] is None


def test_a_prediction_is_the_clients_with_the_network_in_it(small):
    """The first request finds an idle fleet: 0.06 s that every request takes, its prefill and three pictures."""
    first = {}
    for delay_s in (0.0, 0.25):
        scenario = small(policies="[tessera-multimodal]", rates="[4]", extra=f"network_delay_s: {delay_s}")
        first[delay_s] = play(runs_of(scenario, [0])[0])[0].sent[0]
    assert first[0.0].predicted_ttft_s > 0.06
    assert first[0.25].predicted_ttft_s == pytest.approx(first[0.0].predicted_ttft_s + 0.5)
    assert first[0.25].ttft_s == pytest.approx(first[0.0].ttft_s + 0.5)


@pytest.mark.parametrize("policy", ["llm-d-multimodal", "kubernetes-service"])
def test_a_fleet_of_one_is_its_engine_alone(small, policy):
    """With one endpoint there is nothing to choose: the times are those of an engine that nobody routes to."""
    scenario = small(endpoints=1, rates="[8]", policies=f"[{policy}]", mode="points")
    (run,) = runs_of(scenario, [5])
    sent = [each for record in play(run) for each in record.sent]

    profile = PROFILES["h200-tp2-qwen3-vl-32b"]
    engine = Engine(profile)
    loaded = named(policy).load(scenario.folder)
    prompts = Prompts(loaded.profile, profile.model.name, family_of(profile))
    workload = scenario.workload.make("5")
    first, ended = {}, {}
    began_at, number = 0.0, 0
    for index, stage in enumerate(run.stages):
        gaps = offsets(stage, "poisson", Random(f"5/gaps/{index}"))
        for gap, ask in zip(gaps, islice(workload.asks(index), len(gaps)), strict=True):
            note(engine.advance(began_at + gap), first, ended)
            engine.submit(prompts.see(ask).engaged(f"r{number}"), began_at + gap)
            number += 1
        began_at += stage.duration_s
    while (at := engine.next_at) is not None:
        note(engine.advance(at), first, ended)
    assert [each.first_at for each in sent] == pytest.approx([first[f"r{n}"] for n in range(number)], abs=1e-9)
    assert [each.ended_at for each in sent] == pytest.approx([ended[f"r{n}"] for n in range(number)], abs=1e-9)


def note(events, first, ended):
    for event in events:
        if isinstance(event, FirstToken):
            first[event.request_id] = event.at
        elif isinstance(event, Finished):
            ended[event.request_id] = event.at


def test_the_network_adds_its_delay_to_an_idle_fleet(small):
    near = small(endpoints=1, rates="[0.2]", mode="points")
    far = small(endpoints=1, rates="[0.2]", mode="points", extra="network_delay_s: 0.1")
    (here,), (there,) = (
        [sent for record in play(runs_of(each, [0])[0]) if record.stage.is_measured for sent in record.sent][:1]
        for each in (near, far)
    )
    assert there.ttft_s - here.ttft_s == pytest.approx(0.2, abs=1e-9)


def test_a_full_miss_a_group_hit_and_a_replay_take_what_the_fit_says(small):
    """fleet model: 0.406, 0.121 and 0.060 s in an idle server."""
    one_group = "{type: shared-prefix, num_groups: 1, num_prompts_per_group: 2}"
    slow = "{{mode: points, spacing: constant, rates: [0.05], duration_s: 60}}"
    (run,) = runs_of(small(endpoints=1, workload=one_group, load=slow), [0])
    (record,) = play(run)
    assert [sent.ttft_s for sent in record.sent] == pytest.approx([0.406, 0.121, 0.060], abs=0.001)


def test_pools_under_shipped_policies_one_encoder_for_all_or_spread():
    text = """
description: six pages, three encoders
workload: {type: documents, num_pages: 6, output_tokens: 20}
servers: [{role: encode, num: 3}, {role: prefill-decode, num: 2}]
load: {mode: points, rates: [0.5], duration_s: 16}
policies: [llm-d-e-pd, e-pd-spread]
"""
    scenario = parse_scenario(text, "pools", Path())
    assert len(scenario.document.roles) == 5
    one, spread = (simulate(run)[0].figures for run in runs_of(scenario, [0]))
    assert (one.num_finished, one.num_failed) == (spread.num_finished, spread.num_failed) == (8, 0)
    assert one.ttft_p50_s is not None
    assert spread.ttft_p50_s is not None
    assert spread.ttft_p50_s < one.ttft_p50_s
