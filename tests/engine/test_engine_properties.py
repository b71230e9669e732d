"""What holds whatever arrives: nothing is lost, nothing overflows, and how a driver advances changes nothing."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.engine.engine import Engine
from tessera.engine.events import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    EngineEvent,
    Failed,
    Finished,
    FirstToken,
    KVPulled,
    RequestEvent,
)
from tessera.engine.profiles import PROFILES, Network, encoder_of
from tessera.engine.requests import ALONE, EngineRequest, Handover, MediaSegment, Segment, TextSegment

SMALL = replace(
    PROFILES["h200-tp2-qwen3-vl-32b"],
    name="small",
    max_num_batched_tokens=24,
    max_num_seqs=5,
    block_size=4,
    num_blocks=24,
    encoder_cache_embeds=12,
    processor_cache_bytes=5 * 12_288,
    embedding_store_bytes=13 * 40_960,
    # An item's embeddings take 6 to 40 ms, a block of KV 3 ms.
    network=Network(bytes_per_s=0.35e9, latency_s=0.004),
)
ENCODER = replace(encoder_of(SMALL), max_num_batched_tokens=24, max_num_seqs=3)
END = 1e6


@dataclass(frozen=True)
class Input:
    """A request, and when its client gives up, if it does."""

    request: EngineRequest
    at: float
    abort_at: float | None


def _segment(key: int) -> Segment:
    if key < 6:
        return TextSegment(key=key, num_tokens=(1, 2, 5, 9, 16, 30)[key])
    size = (2, 5, 11, 13)[key - 6]
    return MediaSegment(f"item-{key}", num_tokens=size + 2, num_embeds=size, width=64, height=32 * size)


@st.composite
def handovers(draw: st.DrawFn, segments: tuple[Segment, ...]) -> Handover:
    identifiers = sorted({each.identifier for each in segments if isinstance(each, MediaSegment)})
    some = st.frozensets(st.sampled_from(identifiers)) if identifiers else st.just(frozenset[str]())
    return Handover(
        fetched=draw(some),
        bare=draw(st.just(frozenset[str]()) | some),
        num_remote_tokens=draw(st.sampled_from([0, 0, 7, 40, 1000])),
        kv_lease_s=draw(st.sampled_from([None, None, 0.0, 0.05, 0.4])),
    )


@st.composite
def inputs(draw: st.DrawFn) -> list[Input]:
    made: list[Input] = []
    at = 0.0
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.0, 0.001, 0.02, 0.1, 0.5]))
        keys = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4))
        segments = tuple(map(_segment, keys))
        request = EngineRequest(
            f"r{number}",
            segments,
            num_output_tokens=draw(st.integers(1, 25)),
            num_choices=draw(st.sampled_from([1, 1, 1, 2, 3])),
            handover=draw(handovers(segments)) if draw(st.booleans()) else ALONE,
        )
        patience_s = draw(st.none() | st.sampled_from([0.0, 0.03, 0.06, 0.1, 0.3]))
        made.append(Input(request, at, None if patience_s is None else at + patience_s))
    return made


def calls(given_inputs: list[Input]) -> Iterator[tuple[float, Callable[[Engine], None]]]:
    """What a driver must call, in order of time."""
    todo: list[tuple[float, int, Callable[[Engine], None]]] = []
    for each in given_inputs:
        todo.append((each.at, len(todo), lambda engine, each=each: engine.submit(each.request, each.at)))  # type: ignore[misc]
        if each.abort_at is not None:
            abort_at = each.abort_at
            todo.append(
                (abort_at, len(todo), lambda engine, each=each, at=abort_at: engine.abort(each.request.request_id, at))  # type: ignore[misc]
            )
    for at, _, call in sorted(todo, key=lambda entry: entry[:2]):
        yield at, call


def at_once(engine: Engine, given_inputs: list[Input]) -> list[EngineEvent]:
    for _, call in calls(given_inputs):
        call(engine)
    return engine.advance(END)


def event_by_event(engine: Engine, given_inputs: list[Input]) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    for at, call in calls(given_inputs):
        while (next_at := engine.next_at) is not None and next_at <= at:
            events += engine.advance(next_at)
        call(engine)
    while (next_at := engine.next_at) is not None:
        events += engine.advance(next_at)
    return events


def in_small_steps(engine: Engine, given_inputs: list[Input]) -> list[EngineEvent]:
    events: list[EngineEvent] = []
    now = 0.0
    for at, call in [*calls(given_inputs), (now + 20.0, lambda _: None)]:
        while now + 0.007 < at:
            now += 0.007
            events += engine.advance(now)
            engine.facts(now)
            assert_consistent(engine, now)
        now = at
        call(engine)
    return events + engine.advance(END)


def assert_consistent(engine: Engine, at: float) -> None:
    scheduler = engine._scheduler
    store = engine._fetches.store
    assert store.num_bytes == sum(store._size_of.values()) <= store.max_bytes
    kv, encoder, processor = scheduler.kv, scheduler.encoding.cache, engine._front_end.cache
    assert kv.num_used + kv.num_cached + kv.num_empty == kv.num_blocks
    assert min(kv.num_used, kv.num_cached, kv.num_empty) >= 0
    assert kv.num_cached == sum(run.num_resident for run in kv._cached)
    assert 0 <= encoder.num_held <= encoder.num_embeds <= encoder.max_embeds
    assert processor.num_bytes <= processor.max_bytes
    facts = engine.facts(at)
    assert 0 <= facts.kv_usage_fraction <= 1
    assert facts.num_running <= SMALL.max_num_seqs


def of_requests(events: list[EngineEvent]) -> list[RequestEvent]:
    return [event for event in events if not isinstance(event, BlocksStored | BlocksRemoved | CacheCleared)]


@settings(max_examples=80)
@given(inputs())
def test_how_a_driver_advances_changes_nothing(given_inputs: list[Input]) -> None:
    assert_driver_changes_nothing(given_inputs)


@pytest.mark.slow
@settings(max_examples=2000)
@given(inputs())
def test_how_a_driver_advances_changes_nothing_in_many_more_examples(given_inputs: list[Input]) -> None:
    assert_driver_changes_nothing(given_inputs)


def assert_driver_changes_nothing(given_inputs: list[Input]) -> None:
    expected = at_once(Engine(SMALL), given_inputs)
    assert event_by_event(Engine(SMALL), given_inputs) == expected
    assert in_small_steps(Engine(SMALL), given_inputs) == expected
    only_encoded = at_once(Engine(ENCODER), given_inputs)
    assert event_by_event(Engine(ENCODER), given_inputs) == only_encoded
    assert in_small_steps(Engine(ENCODER), given_inputs) == only_encoded
    told = event_by_event(Engine(SMALL, tells_kv_events=True), given_inputs)
    assert of_requests(told) == expected
    assert at_once(Engine(SMALL, tells_kv_events=True), given_inputs) == told
    assert in_small_steps(Engine(SMALL, tells_kv_events=True), given_inputs) == told


@settings(max_examples=300)
@given(inputs())
def test_every_request_ends_once(given_inputs: list[Input]) -> None:
    engine = Engine(SMALL)
    events = event_by_event(engine, given_inputs)
    assert [event.at for event in events] == sorted(event.at for event in events)
    for each in given_inputs:
        request = each.request
        own = [event for event in of_requests(events) if event.request_id == request.request_id]
        kinds = [type(event) for event in own if not isinstance(event, KVPulled)]
        pulls = [event for event in own if isinstance(event, KVPulled)]
        assert len(pulls) <= (request.num_choices if request.handover.num_remote_tokens else 0)
        # Memory that a later chunk needs of a picture that nobody has may be gone by then.
        can_be_lost = request.handover.bare - request.handover.fetched
        if each.abort_at is None:
            assert kinds in ([FirstToken, Finished], [Failed]) or (can_be_lost and kinds == [FirstToken, Failed])
        else:
            assert kinds in ([FirstToken, Finished], [Failed], [FirstToken], []) or can_be_lost
            assert (kinds and kinds[-1] in (Finished, Failed)) or all(event.at <= each.abort_at for event in own)
        for event in own:
            assert event.at > each.at
            if isinstance(event, Finished):
                assert event.num_completion_tokens == request.num_choices * request.num_output_tokens
                assert event.num_prompt_tokens == request.num_prompt_tokens
                assert event.num_cached_tokens + event.num_pulled_tokens < request.num_prompt_tokens
                remote = min(request.handover.num_remote_tokens, request.num_prompt_tokens - 1)
                assert event.num_pulled_tokens in (0, remote - event.num_cached_tokens)
    assert engine._tickets == {}
    assert not engine._scheduler.running
    assert not engine._scheduler.waiting
    assert not engine._scheduler.pulling
    assert not engine._scheduler.leased
    assert engine.facts(END).num_waiting == engine.facts(END).num_deferred == 0
    assert engine._scheduler.kv.num_used == 0
    assert engine._scheduler.encoding.cache.num_held == 0
    assert engine._scheduler.decodes.num_context == engine._scheduler.decodes.num_sequences == 0
    assert engine._scheduler.decodes._num_by_phase == [0] * SMALL.block_size


@settings(max_examples=150)
@given(inputs())
def test_every_request_to_an_encoder_ends_once(given_inputs: list[Input]) -> None:
    engine = Engine(ENCODER)
    events = event_by_event(engine, given_inputs)
    assert [event.at for event in events] == sorted(event.at for event in events)
    for each in given_inputs:
        own = [event for event in of_requests(events) if event.request_id == each.request.request_id]
        assert len(own) == 1 or (each.abort_at is not None and not own)
        assert all(isinstance(event, Finished | Failed) and event.at > each.at for event in own)
        assert all(event.num_completion_tokens == 0 for event in own if isinstance(event, Finished))
    assert engine._tickets == {}
    assert not engine._scheduler.running
    assert not engine._scheduler.waiting
    assert engine._scheduler.encoding.cache.num_held == 0
    assert engine.facts(END).kv_usage_fraction == 0
