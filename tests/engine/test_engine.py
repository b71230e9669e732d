"""What one server does, on small examples of which every step can be followed."""

from dataclasses import replace
from math import inf

import pytest

from tessera.engine.engine import Engine
from tessera.engine.events import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    CacheCounters,
    EngineEvent,
    Failed,
    FailureReason,
    Finished,
    FirstToken,
)
from tessera.engine.profiles import PROFILES, Efficiency, EngineProfile, FrontEnd
from tessera.engine.requests import EngineRequest, MediaSegment, Segment, TextSegment

SECOND = replace(
    PROFILES["h200-tp2-qwen3-vl-32b"],
    name="second",
    efficiency=Efficiency(step_s=1.0, vit_call_s=100.0, vit_item_s=10.0),
    front_end=FrontEnd(latency_s=0.0, request_s=0.25, item_s=0.0, processing_s_per_pixel=0.0, token_s=0.0),
    max_num_batched_tokens=20,
    max_num_seqs=4,
    block_size=4,
    num_blocks=20,
    encoder_cache_embeds=12,
)
"""A step takes 1 s, 101 s with the encoder and 10 s more for each item; reading weights adds 8 ms."""


def text(key: int, num_tokens: int) -> TextSegment:
    return TextSegment(key, num_tokens)


def media(name: str, num_embeds: int) -> MediaSegment:
    return MediaSegment(name, num_tokens=num_embeds, num_embeds=num_embeds)


def run(
    profile: EngineProfile, *asked: tuple[str, float, int, tuple[Segment, ...]], tells_kv_events: bool = False
) -> tuple[Engine, list[EngineEvent]]:
    """Serve requests ``(id, at, output tokens, segments)`` to the end."""
    engine = Engine(profile, tells_kv_events=tells_kv_events)
    for request_id, at, num_output_tokens, segments in asked:
        engine.submit(EngineRequest(request_id, segments, num_output_tokens), at)
    return engine, engine.advance(1e6)


def instants(events: list[EngineEvent]) -> list[tuple[str, str, float]]:
    """Kind, request and whole seconds of each event of a request."""
    return [
        (type(event).__name__, event.request_id, round(event.at, 1))
        for event in events
        if isinstance(event, FirstToken | Finished | Failed)
    ]


def test_a_prompt_longer_than_the_budget_takes_chunks_between_which_others_decode() -> None:
    _, events = run(SECOND, ("a", 0.0, 4, (text(1, 8),)), ("b", 0.5, 1, (text(2, 48),)))
    # a's steps end at 1.3, 2.3, 3.3 and 4.3; b's chunks of 19, 19 and 10 tokens go into the last three.
    assert instants(events) == [
        ("FirstToken", "a", 1.3),
        ("FirstToken", "b", 4.3),
        ("Finished", "a", 4.3),
        ("Finished", "b", 4.3),
    ]


def test_first_come_first_served_even_if_the_second_would_fit() -> None:
    profile = replace(SECOND, num_blocks=6)
    _, events = run(
        profile, ("a", 0.0, 3, (text(1, 14),)), ("big", 0.1, 1, (text(2, 12),)), ("small", 0.2, 1, (text(3, 2),))
    )
    firsts = [name for kind, name, _ in instants(events) if kind == "FirstToken"]
    assert firsts == ["a", "big", "small"]


def test_no_more_sequences_than_allowed() -> None:
    asked = [(f"r{n}", 0.0, 2, (text(n, 1),)) for n in range(6)]
    engine = Engine(SECOND)
    for request_id, at, num_output_tokens, segments in asked:
        engine.submit(EngineRequest(request_id, segments, num_output_tokens), at)
    facts = engine.facts(2.0)
    assert (facts.num_running, facts.num_waiting) == (4, 2)


def test_a_picture_in_two_requests_of_one_step_is_encoded_once() -> None:
    engine, events = run(
        SECOND,
        ("busy", 0.0, 1, (text(9, 1),)),
        ("a", 0.1, 1, (media("x", 6), text(1, 2))),
        ("b", 0.2, 1, (text(2, 1), media("x", 6), text(1, 2))),
    )
    # One step of 1 + 100 + 10 s for both, behind the first.
    assert instants(events)[2:] == [
        ("FirstToken", "a", 112.3),
        ("FirstToken", "b", 112.3),
        ("Finished", "a", 112.3),
        ("Finished", "b", 112.3),
    ]
    assert engine.facts(1e6).encoder_cache == CacheCounters(num_queried=2, num_hit=1)


def test_the_encoder_cache_saves_the_encoder_where_the_prompt_differs() -> None:
    engine, events = run(SECOND, ("a", 0.0, 1, (media("x", 6),)), ("b", 200.0, 1, (text(2, 1), media("x", 6))))
    assert instants(events)[2] == ("FirstToken", "b", 201.3)
    assert engine.facts(1e6).encoder_cache == CacheCounters(num_queried=2, num_hit=1)


def test_what_the_kv_cache_covers_is_not_asked_of_the_encoder() -> None:
    profile = replace(SECOND, encoder_cache_embeds=8)
    x, y = media("x", 8), media("y", 8)
    engine, events = run(
        profile,
        ("a", 0.0, 1, (x, text(1, 2))),
        ("other", 500.0, 1, (y,)),
        ("again", 1000.0, 1, (x, text(1, 4))),
        ("half", 1500.0, 1, (x,)),
    )
    # The other picture took x's place in the encoder cache, but x's KV blocks are there.
    assert ("FirstToken", "again", 1001.3) in instants(events)
    # A prompt that ends with x computes its last block again, and for that the whole of x.
    assert ("FirstToken", "half", 1611.3) in instants(events)
    assert engine.facts(2000.0).encoder_cache == CacheCounters(num_queried=3, num_hit=0)


def test_an_item_beyond_the_step_s_encoder_budget_waits_for_the_next_step() -> None:
    _, events = run(SECOND, ("a", 0.0, 1, (media("x", 7), media("y", 6), text(1, 1))))
    # Two encoder steps: the prompt is cut before y.
    assert instants(events)[0] == ("FirstToken", "a", 222.3)


def test_an_item_runs_whole_in_the_first_step_that_touches_it() -> None:
    _, events = run(SECOND, ("a", 0.0, 1, (text(1, 18), media("x", 6), text(1, 8))))
    # 20 tokens with the encoder, then 12 without.
    assert instants(events)[0] == ("FirstToken", "a", 112.3)


def test_preemption_recomputes_and_loses_nothing() -> None:
    profile = replace(SECOND, num_blocks=6)
    engine, events = run(profile, ("a", 0.0, 9, (text(1, 8),)), ("b", 0.1, 9, (text(2, 8),)))
    facts = engine.facts(1e6)
    assert facts.num_preemptions == 1
    assert facts.prefix_cache == CacheCounters(num_queried=16, num_hit=0)
    assert facts.num_generation_tokens == 18
    assert facts.num_first_tokens == 2
    finished = [event for event in events if isinstance(event, Finished)]
    assert [(each.request_id, each.num_completion_tokens) for each in finished] == [("a", 9), ("b", 9)]
    assert sum(isinstance(event, FirstToken) for event in events) == 2


def test_choices_share_the_prompt_and_end_together() -> None:
    engine = Engine(SECOND)
    engine.submit(EngineRequest("a", (text(1, 9),), num_output_tokens=3, num_choices=2), 0.0)
    events = engine.advance(1e6)
    assert [type(event) for event in events] == [FirstToken, Finished]
    assert isinstance(events[1], Finished)
    assert (events[1].num_completion_tokens, events[1].num_cached_tokens) == (6, 0)
    facts = engine.facts(1e6)
    assert facts.prefix_cache == CacheCounters(num_queried=18, num_hit=8)
    assert (facts.num_first_tokens, facts.num_prompt_tokens, facts.num_generation_tokens) == (2, 18, 6)


@pytest.mark.parametrize(
    ("segments", "num_output_tokens", "reason"),
    [
        ((text(1, 71),), 11, FailureReason.PROMPT_TOO_LONG),
        ((text(1, 1), media("x", 13)), 1, FailureReason.ITEM_TOO_LARGE),
    ],
)
def test_what_can_never_be_served_fails(
    segments: tuple[Segment, ...], num_output_tokens: int, reason: FailureReason
) -> None:
    engine, events = run(SECOND, ("a", 1.0, num_output_tokens, segments))
    assert events == [Failed("a", 1.25, reason)]
    assert engine.next_at is None


def test_what_just_fits_is_served() -> None:
    # The last token of an answer needs no room: 70 + 11 tokens in 80.
    _, events = run(SECOND, ("a", 0.0, 11, (text(1, 70),)), ("b", 500.0, 1, (media("x", 12),)))
    assert [kind for kind, _, _ in instants(events)] == ["FirstToken", "Finished"] * 2


def test_longer_than_the_models_context() -> None:
    profile = replace(SECOND, model=replace(SECOND.model, max_model_len=12))
    _, events = run(profile, ("a", 0.0, 3, (text(1, 10),)), ("b", 10.0, 2, (text(1, 10),)))
    assert [kind for kind, _, _ in instants(events)] == ["Failed", "FirstToken", "Finished"]


def test_an_id_can_be_used_again_when_its_request_is_over() -> None:
    engine = Engine(SECOND)
    request = EngineRequest("a", (text(1, 2),), 1)
    engine.submit(request, 0.0)
    with pytest.raises(ValueError, match="request a is still here"):
        engine.submit(request, 0.1)
    engine.abort("a", 0.2)
    engine.submit(request, 0.2)
    assert [event.at > 0.2 for event in engine.advance(1e6)] == [True, True]


def test_aborting_frees_what_a_request_held_when_its_step_ends() -> None:
    engine = Engine(SECOND)
    engine.submit(EngineRequest("a", (text(1, 8),), 70), 0.0)
    engine.submit(EngineRequest("b", (text(2, 1),), 3), 0.0)
    engine.abort("unknown", 3.0)
    engine.abort("a", 3.0)
    assert engine.facts(3.1).num_running == 2
    facts = engine.facts(3.5)
    assert facts.num_running == 1
    assert facts.kv_usage_fraction == 1 / 20
    assert [name for _, name, _ in instants(engine.advance(1e6))] == ["a", "b", "b"]


def test_usage_grows_while_sequences_decode() -> None:
    engine = Engine(SECOND)
    engine.submit(EngineRequest("a", (text(1, 7),), 12), 0.0)
    # Two blocks for the prompt, and a third for the step that computes the second token of the output.
    assert [engine.facts(at).kv_usage_fraction * 20 for at in (1.0, 1.5, 2.5, 5.6, 6.5)] == [2, 2, 3, 3, 4]
    assert engine.facts(6.5).num_generation_tokens == 6


def test_kv_events() -> None:
    _, events = run(
        replace(SECOND, num_blocks=4), ("a", 0.0, 3, (text(1, 7),)), ("b", 9.0, 1, (text(2, 10),)), tells_kv_events=True
    )
    told = [event for event in events if isinstance(event, BlocksStored | BlocksRemoved | CacheCleared)]
    # a's 9 computed tokens fill a block of the prompt and one of the output; b needs three of four blocks,
    # the last of them for two tokens only.
    assert [(round(event.at, 1), event) for event in told] == [
        (1.3, BlocksStored("a", told[0].at, 0, range(1))),
        (2.3, BlocksStored("a", told[1].at, 1, range(1, 2))),
        (10.3, BlocksStored("b", told[2].at, 0, range(2, 4))),
        (10.3, BlocksRemoved(told[3].at, range(1, 2))),
    ]


def test_resetting_caches() -> None:
    engine = Engine(SECOND, tells_kv_events=True)
    prompt = (media("x", 8), text(1, 4))
    engine.submit(EngineRequest("a", prompt, 1), 0.0)
    assert not engine.reset_prefix_cache(1.0)
    engine.advance(200.0)
    assert engine.reset_prefix_cache(200.0)
    engine.reset_encoder_cache(200.0)
    assert engine.advance(200.0) == [CacheCleared(200.0)]
    engine.submit(EngineRequest("b", prompt, 1), 200.0)
    assert instants(engine.advance(1e6)) == [("FirstToken", "b", 311.3), ("Finished", "b", 311.3)]


def test_to_the_end() -> None:
    engine = Engine(SECOND)
    engine.submit(EngineRequest("a", (text(1, 2),), 2), 0.0)
    assert [kind for kind, _, _ in instants(engine.advance(inf))] == ["FirstToken", "Finished"]
    assert engine.advance(inf) == []


def test_nothing_to_do() -> None:
    engine = Engine(SECOND)
    assert engine.next_at is None
    assert engine.advance(10.0) == []
    assert engine.facts(10.0).kv_usage_fraction == 0.0
