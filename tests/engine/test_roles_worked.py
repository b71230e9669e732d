"""The worked examples of servers that share a request: what each stage takes on idle servers."""

from dataclasses import replace

import pytest

from tessera.engine.engine import Engine
from tessera.engine.events import EngineEvent, Failed, FailureReason, Finished, FirstToken, KVPulled
from tessera.engine.profiles import PROFILES, Network, encoder_of, with_parallel_encoder, with_role
from tessera.engine.requests import EngineRequest, Handover, MediaSegment, TextSegment
from tessera.engine.roles import Role

FITTED = PROFILES["h200-tp2-qwen3-vl-32b"]
ENCODER = PROFILES["h200-tp1-qwen3-vl-32b-encoder"]
PICTURE = MediaSegment("picture", num_tokens=882, num_embeds=880, width=1280, height=720)
OTHER = MediaSegment("other", num_tokens=882, num_embeds=880, width=1280, height=720)
TEXT = TextSegment(key=1, num_tokens=100)
BYTES = 880 * 40_960
"""A row is 5,120 numbers of 2 bytes and as many for each of 3 deepstack levels."""


def run(engine: Engine, request: EngineRequest, at: float = 0.0) -> list[EngineEvent]:
    engine.submit(request, at)
    return finish(engine)


def finish(engine: Engine) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    while (next_at := engine.next_at) is not None:
        events += engine.advance(next_at)
    return events


def test_one_gpu_encodes_in_half_the_flops_and_without_exchange() -> None:
    engine = Engine(ENCODER)
    (event,) = run(engine, EngineRequest("r", (PICTURE,), num_output_tokens=1))
    # Latency 27, CPU 4 + 4 + 27; 0.75 x (8 + 3 + 2 x 13.2) of the encoder.
    assert event.at == pytest.approx(0.062 + 0.75 * 0.0374, abs=0.0003)
    assert isinstance(event, Finished)
    assert (event.num_prompt_tokens, event.num_completion_tokens) == (882, 0)
    assert engine.stored_embeddings_bytes("picture", 1.0) == BYTES
    facts = engine.facts(1.0)
    assert (facts.num_first_tokens, facts.num_prompt_tokens, facts.num_generation_tokens) == (1, 882, 0)


def test_an_encoder_takes_text_and_has_nothing_to_do_with_it() -> None:
    (event,) = run(Engine(ENCODER), EngineRequest("r", (TEXT,), num_output_tokens=8))
    assert isinstance(event, Finished)
    # Latency 27, CPU 4, one call of the encoder's runner: 0.75 x 8.
    assert event.at == pytest.approx(0.037)


def test_an_encoder_batches_pictures_of_several_requests() -> None:
    engine = Engine(replace(ENCODER, front_end=replace(ENCODER.front_end, request_s=0.0, item_s=0.0)))
    pictures = [MediaSegment(f"p{n}", 882, 880, num_bytes=1) for n in range(12)]
    for number, picture in enumerate(pictures):
        engine.submit(EngineRequest(f"r{number}", (picture,), num_output_tokens=1), 0.0)
    events = finish(engine)
    # All are through at once; the first goes alone. Of the eleven left 8,192 tokens take nine whole and a part of the
    # tenth, whose embeddings are computed whole; the tenth and the eleventh end in the third step.
    starts = sorted({event.at for event in events})
    assert [sum(event.at == at for event in events) for at in starts] == [1, 9, 2]
    assert starts[1] - starts[0] == pytest.approx(0.75 * (0.008 + 10 * (0.003 + 0.0264)), abs=0.002)


def test_what_the_encoders_gpu_has_is_not_encoded_again() -> None:
    engine = Engine(ENCODER)
    (first,) = run(engine, EngineRequest("a", (PICTURE,), num_output_tokens=1))
    (second,) = run(engine, EngineRequest("b", (PICTURE,), num_output_tokens=1), at=1.0)
    assert engine.facts(2.0).encoder_cache == (2, 1)
    assert second.at - 1.0 < first.at - 0.027
    # Host memory is for peers: what the GPU has let go is encoded again.
    engine.reset_encoder_cache(2.0)
    assert engine.stored_embeddings_bytes("picture", 2.0) == BYTES
    run(engine, EngineRequest("c", (PICTURE,), num_output_tokens=1), at=3.0)
    assert engine.facts(4.0).encoder_cache == (3, 1)


def test_encoder_data_parallelism_saves_a_quarter_of_encoder_time() -> None:
    request = EngineRequest("r", (PICTURE, TEXT), num_output_tokens=1)
    usual, parallel = (run(Engine(each), request)[0].at for each in (FITTED, with_parallel_encoder(FITTED)))
    assert usual - parallel == pytest.approx(0.25 * (0.008 + 0.003 + 0.0132), abs=0.0002)


def test_fetched_embeddings_take_the_network_instead_of_the_encoder() -> None:
    request = EngineRequest("r", (PICTURE, TEXT), num_output_tokens=1)
    alone = run(Engine(FITTED), request)[0].at
    engine = Engine(with_role(FITTED, Role.PREFILL_DECODE))
    engine.submit(replace_handover(request, fetched=frozenset({"picture"})), 0.0)
    # 36 MB at 40 GB/s behind a latency of 2 ms, from when the request is through the front end.
    at = 0.062 + 0.0005
    assert (engine.facts(at).num_waiting, engine.facts(at).num_deferred, engine.facts(at).num_running) == (1, 1, 0)
    events = finish(engine)
    transfer_s = 0.002 + BYTES / 40e9
    assert events[0].at - alone == pytest.approx(transfer_s - (0.008 + 0.003 + 0.0132), abs=0.0002)
    assert engine.facts(1.0).num_transferred_bytes == BYTES
    # The consumer keeps them: nothing is read when they are wanted again.
    engine.reset_encoder_cache(1.0)
    engine.reset_prefix_cache(1.0)
    engine.submit(replace_handover(request, "s", fetched=frozenset({"picture"})), 2.0)
    finish(engine)
    assert engine.facts(3.0).num_transferred_bytes == BYTES


def test_what_waits_for_embeddings_holds_nobody_up() -> None:
    slow = replace(FITTED, network=Network(bytes_per_s=BYTES / 10.0, latency_s=0.0))
    engine = Engine(slow)
    engine.submit(
        replace_handover(EngineRequest("r", (PICTURE,), num_output_tokens=1), fetched=frozenset({"picture"})), 0.0
    )
    engine.submit(EngineRequest("s", (TEXT,), num_output_tokens=1), 0.0)
    events = [(event.request_id, event.at > 10) for event in finish(engine) if isinstance(event, Finished)]
    assert events == [("s", False), ("r", True)]


def test_two_reads_share_the_network() -> None:
    slow = replace(FITTED, network=Network(bytes_per_s=BYTES / 10.0, latency_s=1.0))
    engine = Engine(slow)
    for name, picture in (("r", PICTURE), ("s", OTHER)):
        handover = frozenset({picture.identifier})
        engine.submit(replace_handover(EngineRequest(name, (picture,), num_output_tokens=1), fetched=handover), 0.0)
    first, second = (event.at for event in finish(engine) if isinstance(event, FirstToken))
    # The second has its CPU behind the first's, and reads when the first has read; the latencies overlap.
    assert first == pytest.approx(0.062 + 10 + 1 + 0.075, abs=0.02)
    assert second - first == pytest.approx(10, abs=0.02)


def test_pulled_kv_is_not_computed_and_reads_what_the_own_cache_lacks() -> None:
    body = TextSegment(key=2, num_tokens=8000)
    engine = Engine(with_role(FITTED, Role.DECODE))
    request = EngineRequest("r", (body,), num_output_tokens=2, handover=Handover(num_remote_tokens=8000))
    pulled, first, _ = run(engine, request)
    assert isinstance(pulled, KVPulled)
    # Latency 27, CPU 4, 2 of the network, 7,999 tokens of 262,144 bytes; a step of one token: 9.2 + 8.2.
    assert pulled.at == pytest.approx(0.031 + 0.002 + 7999 * 262_144 / 40e9)
    assert first.at - pulled.at == pytest.approx(0.0174, abs=0.0005)
    again = replace(request, request_id="s", segments=(body, TextSegment(key=3, num_tokens=1600)))
    again = replace(again, handover=Handover(num_remote_tokens=9600))
    finished = [event for event in run(engine, again, at=1.0) if isinstance(event, Finished)]
    assert [(each.num_cached_tokens, each.num_pulled_tokens) for each in finished] == [(8000, 1599)]
    # Of both requests: what the own cache lacked, and what came.
    assert engine.facts(2.0).external_prefix_cache == (8000 + 1600, 7999 + 1599)


def test_pulled_kv_has_its_blocks_before_it_comes() -> None:
    engine = Engine(with_role(FITTED, Role.DECODE))
    body = TextSegment(key=2, num_tokens=8000)
    engine.submit(EngineRequest("r", (body,), num_output_tokens=2, handover=Handover(num_remote_tokens=8000)), 0.0)
    facts = engine.facts(0.04)
    assert (facts.num_waiting, facts.num_deferred, facts.kv_usage_fraction) == (1, 1, 500 / 46_125)
    engine.abort("r", 0.04)
    assert engine.facts(0.04).kv_usage_fraction == 0
    assert finish(engine) == []


def test_kept_kv_is_let_go_when_it_was_pulled_or_its_time_is_over() -> None:
    engine = Engine(with_role(FITTED, Role.PREFILL))
    for key, name in enumerate(("pulled", "forgotten", "renewed")):
        request = EngineRequest(name, (TextSegment(key=key, num_tokens=1600),), num_output_tokens=1)
        engine.submit(replace_handover(request, kv_lease_s=30.0), 0.0)
    ends = {event.request_id: event.at for event in engine.advance(1.0) if isinstance(event, Finished)}
    assert engine.facts(1.0).kv_usage_fraction == 300 / 46_125
    with pytest.raises(ValueError, match="request pulled is still here"):
        engine.submit(EngineRequest("pulled", (TEXT,), num_output_tokens=1), 1.0)
    assert engine.release_kv("pulled", 2.0)
    assert not engine.release_kv("pulled", 2.0)
    assert engine.facts(2.0).kv_usage_fraction == 200 / 46_125
    assert engine.renew_lease("renewed", 50.0, 2.0) == 1600
    assert engine.renew_lease("nobody", 50.0, 2.0) == 0
    assert engine.next_at == ends["forgotten"] + 30.0
    assert engine.facts(31.0).kv_usage_fraction == 100 / 46_125
    assert (engine.facts(49.9).kv_usage_fraction, engine.facts(50.0).kv_usage_fraction) == (100 / 46_125, 0)


def test_who_waits_for_blocks_is_admitted_when_kept_kv_is_let_go() -> None:
    engine = Engine(replace(with_role(FITTED, Role.PREFILL), num_blocks=100))
    for number in range(2):
        request = EngineRequest(f"r{number}", (TextSegment(key=number, num_tokens=1000),), num_output_tokens=1)
        engine.submit(replace_handover(request, kv_lease_s=30.0), 0.0)
    assert [event.request_id for event in engine.advance(10.0) if isinstance(event, Finished)] == ["r0"]
    assert engine.facts(10.0).num_waiting == 1
    engine.release_kv("r0", 10.0)
    assert [event.request_id for event in engine.advance(11.0) if isinstance(event, Finished)] == ["r1"]


def test_a_picture_that_nobody_has_fails_and_takes_nobody_with_it() -> None:
    engine = Engine(with_role(FITTED, Role.PREFILL_DECODE))
    request = EngineRequest("r", (PICTURE,), num_output_tokens=3, num_choices=2)
    engine.submit(replace_handover(request, bare=frozenset({"picture"})), 0.0)
    engine.submit(EngineRequest("s", (OTHER,), num_output_tokens=1), 0.0)
    events = finish(engine)
    failed = [event for event in events if isinstance(event, Failed)]
    assert [(each.request_id, each.reason) for each in failed] == [("r", FailureReason.ITEM_LOST)]
    assert [event.request_id for event in events if isinstance(event, Finished)] == ["s"]
    assert engine.facts(1.0).num_waiting == engine.facts(1.0).num_running == 0
    # Where its embeddings are still on the GPU, it needs no content.
    run(engine, EngineRequest("t", (PICTURE,), num_output_tokens=1), at=2.0)
    engine.reset_prefix_cache(3.0)
    events = run(engine, replace_handover(request, "u", bare=frozenset({"picture"})), at=3.0)
    assert isinstance(events[-1], Finished)


def test_a_picture_without_content_costs_no_cpu() -> None:
    handover = {"bare": frozenset({"picture"}), "fetched": frozenset({"picture"})}
    engine = Engine(replace(FITTED, network=Network(bytes_per_s=1e15, latency_s=0.0)))
    first = run(engine, replace_handover(EngineRequest("r", (PICTURE, TEXT), num_output_tokens=1), **handover))[0]
    # Latency 27, CPU 4, a step of 982 tokens: 9.2 + (8.2^3 + 50.2^3)^(1/3) and 0.8 of attention.
    assert first.at == pytest.approx(0.031 + 0.0602, abs=0.001)
    assert engine.facts(1.0).processor_cache.num_queried == 0


def test_roles_of_profiles() -> None:
    assert with_role(FITTED, Role.ALL) is FITTED
    assert with_role(FITTED, Role.PREFILL).role is Role.PREFILL
    encoder = with_role(FITTED, Role.ENCODE)
    assert (encoder.num_gpus, encoder.role, encoder.efficiency.vit_time_fraction) == (2, Role.ENCODE, 1.0)
    assert encoder_of(FITTED).efficiency.vit_time_fraction == 0.75
    assert [role for role in Role if role.takes_embeddings] == [Role.PREFILL, Role.PREFILL_DECODE]
    assert [role for role in Role if role.transfers_kv] == [Role.PREFILL, Role.DECODE]


def test_a_handover_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="a handover of -1 tokens"):
        Handover(num_remote_tokens=-1)
    with pytest.raises(ValueError, match=r"a lease of -0\.1 s"):
        Handover(kv_lease_s=-0.1)


def replace_handover(request: EngineRequest, name: str | None = None, **handover: object) -> EngineRequest:
    made = Handover(**handover)  # type: ignore[arg-type]
    return EngineRequest(
        name or request.request_id, request.segments, request.num_output_tokens, request.num_choices, made
    )
