"""Seconds of one request, worked out by hand for three 720p pictures on the fitted profile."""

from dataclasses import replace

import pytest

from tessera.engine.profiles import PROFILES
from tessera.sim.advice.demand import bound_of, demand_of, prompt_seconds, tpot_s_at
from tessera.sim.topology import AGGREGATED, BASE, TOPOLOGIES, WORKLOADS, Topology
from tessera.sim.workloads.repeats import Repeats

DEMAND = demand_of(WORKLOADS["3x720p"], BASE)


def test_tokens_of_a_request():
    # 3 x (880 + 2); "system" and a token, 10 bytes: 3; "user", 4 bytes: 1; 300.
    assert DEMAND.num_prompt_tokens == 2950
    # The system prompt and the role are those of the request before.
    assert DEMAND.num_new_tokens == 2946
    assert (DEMAND.num_items, DEMAND.num_new_items, DEMAND.num_output_tokens) == (3, 3, 300)


def test_seconds_of_each_stage():
    # 8 ms a call, 3 ms and 13.2 ms a picture.
    assert DEMAND.encode_s == pytest.approx(8e-3 + 3 * 16.2e-3, abs=1e-4)
    assert DEMAND.parallel_encode_s == pytest.approx(0.75 * DEMAND.encode_s)
    # One GPU has half the speed; a call for each picture; a quarter is saved.
    assert DEMAND.encoder_s == pytest.approx(0.75 * 3 * (8e-3 + 3e-3 + 2 * 13.2e-3), abs=1e-4)
    # 9.2 + 2946 x 51.15e-3 + 2946 x (4 + 1473) x 1.72e-6 ms, less a step that only decodes, 17.4 ms.
    assert DEMAND.prefill_s == pytest.approx(0.1500, abs=2e-4)
    assert DEMAND.ratio == pytest.approx(0.377, abs=1e-3)
    assert DEMAND.prepare_s == pytest.approx(4e-3 + 3 * (4e-3 + 27e-3))
    assert DEMAND.token_s == pytest.approx(0.138)


def test_what_was_seen_costs_neither_encode_nor_prefill():
    again = demand_of(Repeats(num_pictures=3, reuse=1.0), BASE)
    assert (again.num_new_items, again.encode_s, again.encoder_s) == (0, 0, 0)
    assert again.num_new_tokens == 300
    assert again.prepare_s == pytest.approx(4e-3 + 3 * 4e-3)


def test_an_idle_server_needs_a_step_for_a_token_and_prompts_stretch_it():
    # 9.2 + 8.2 ms, and the KV of 3,100 tokens: 0.1 ms.
    assert tpot_s_at(0.0, 0.0, DEMAND, BASE, 0.05) == pytest.approx(17.5e-3, abs=1e-4)
    alone, held_up = (tpot_s_at(1.0, prompt_s, DEMAND, BASE, 0.05) for prompt_s in (0.0, 0.5))
    assert held_up == pytest.approx(2 * alone)
    assert tpot_s_at(2.0, 0.5, DEMAND, BASE, 0.05) == float("inf")


def test_aggregated_servers_end_where_prompts_stretch_tpot_to_its_limit():
    # 2.74 req/s a server: 41 sequences, a step of 21.7 ms, 56.5 % of the time spent on prompts: 50 ms.
    bound = bound_of(AGGREGATED, DEMAND, BASE, 0.05)
    assert (bound.pool, bound.cause) == ("all", "TPOT")
    assert bound.rate == pytest.approx(21.9, abs=0.1)


@pytest.mark.parametrize(
    ("topology", "pool", "cause", "rate"),
    [
        # Each encoder's CPU prepares 97 ms for a request, its GPU needs 84: 0.9 x 2 / 0.097.
        (TOPOLOGIES["2e+7pd"], "encode", "CPU", 18.56),
        # Two CPUs prepare and stream: 2 x 0.9 / (0.097 + 0.9 x 0.138).
        (TOPOLOGIES["4e+4p+2d"], "decode", "CPU", 8.14),
        # 0.9 x 1 / (0.150 + 0.057).
        (Topology(name="1p+7d", num_prefill=1, num_decode=7), "prefill", "GPU", 4.36),
    ],
)
def test_the_first_pool_that_is_full_bounds_a_topology(topology, pool, cause, rate):
    bound = bound_of(topology, DEMAND, BASE, 0.05)
    assert (bound.pool, bound.cause) == (pool, cause)
    assert bound.rate == pytest.approx(rate, abs=0.01)


def test_a_prompt_costs_its_server_no_encoding_where_encoders_do_it():
    assert prompt_seconds(AGGREGATED, DEMAND) == DEMAND.prefill_s + DEMAND.encode_s
    assert prompt_seconds(TOPOLOGIES["2e+7pd"], DEMAND) == DEMAND.prefill_s
    data = replace(AGGREGATED, has_parallel_encoder=True)
    assert prompt_seconds(data, DEMAND) == DEMAND.prefill_s + 0.75 * DEMAND.encode_s


def test_text_alone_is_not_encoded():
    chat = demand_of(Repeats(num_pictures=0), BASE)
    assert (chat.encode_s, chat.ratio, chat.num_prompt_tokens) == (0, 0, 304)


def test_a_smaller_model_has_an_encoder_that_weighs_more():
    small = demand_of(WORKLOADS["3x720p"], PROFILES["h200-tp1-qwen3-vl-8b"])
    assert small.ratio > 2 * DEMAND.ratio
    # With one GPU a server nothing is exchanged, so nothing is saved: half a picture's speed, a call for each.
    assert small.encoder_s - small.encode_s == pytest.approx(2 * 8e-3)
