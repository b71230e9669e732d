"""The worked examples of the fitted profile: what one request takes on an idle server."""

import pytest

from tessera.engine.engine import Engine
from tessera.engine.events import BlocksStored, CacheCounters, EngineEvent, EngineFacts, Finished, FirstToken
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import EngineRequest, MediaSegment, Segment, TextSegment

PICTURES = tuple(MediaSegment(f"picture-{n}", num_tokens=882, num_embeds=880, width=1280, height=720) for n in range(3))
GROUP: tuple[Segment, ...] = (*PICTURES, TextSegment(key=1, num_tokens=112))


def ttft_s(engine: Engine, request_id: str, question: int, at: float) -> float:
    segments = (*GROUP, TextSegment(key=question, num_tokens=1200))
    engine.submit(EngineRequest(request_id, segments, num_output_tokens=300), at)
    events: list[EngineEvent] = []
    while (next_at := engine.next_at) is not None:
        events += engine.advance(next_at)
    assert [type(event) for event in events] == [FirstToken, Finished]
    return events[0].at - at


@pytest.fixture(name="served")
def _served() -> tuple[Engine, list[float]]:
    """An idle server asked three times: all new, the same pictures with another question, and that again."""
    engine = Engine(PROFILES["h200-tp2-qwen3-vl-32b"])
    asked = (("miss", 2, 0.0), ("hit", 3, 100.0), ("replay", 3, 200.0))
    return engine, [ttft_s(engine, name, question, at) for name, question, at in asked]


def test_full_miss(served: tuple[Engine, list[float]]) -> None:
    # Latency 27, CPU 4 + 3 x (4 + 27) = 97; step 9.2 + gemm 202.4 + attention 13.5 + encoder 8 + 3 x (3 + 13.2).
    assert served[1][0] == pytest.approx(0.4057, abs=0.0005)


def test_group_hit(served: tuple[Engine, list[float]]) -> None:
    # Latency 27, CPU 4 + 3 x 4 = 16; 172 blocks are there, 1,206 tokens are not: 9.2 + 61.7 + 7.0.
    assert served[1][1] == pytest.approx(0.1209, abs=0.0005)


def test_replay(served: tuple[Engine, list[float]]) -> None:
    # Latency 27, CPU 16; 247 blocks are there, 6 tokens are not: 9.2 + 8.2 to read the weights.
    assert served[1][2] == pytest.approx(0.0604, abs=0.0005)


def test_counters(served: tuple[Engine, list[float]]) -> None:
    facts = served[0].facts(300.0)
    assert facts == EngineFacts(
        num_waiting=0,
        num_running=0,
        kv_usage_fraction=0.0,
        num_blocks=46_125,
        block_size=16,
        num_first_tokens=3,
        prefix_cache=CacheCounters(num_queried=3 * 3958, num_hit=(172 + 247) * 16),
        processor_cache=CacheCounters(num_queried=9, num_hit=6),
        encoder_cache=CacheCounters(num_queried=3, num_hit=0),
        num_preemptions=0,
        num_prompt_tokens=3 * 3958,
        num_generation_tokens=900,
        num_cached_prompt_tokens=(172 + 247) * 16,
    )


def test_who_streams_learns_of_each_token() -> None:
    engine = Engine(PROFILES["h200-tp2-qwen3-vl-32b"])
    engine.submit(EngineRequest("r", (TextSegment(key=1, num_tokens=100),), num_output_tokens=5, num_choices=2), 0.0)
    assert (engine.num_generated("r", 0.02), engine.step_ends_at(0.02)) == ([], None)
    seen: list[list[int]] = []
    at = 0.031  # Latency 27, CPU 4: the first step begins.
    while (next_at := engine.step_ends_at(at)) is not None:
        assert engine.num_generated("r", (at + next_at) / 2) == engine.num_generated("r", at)
        at = next_at
        seen.append(engine.num_generated("r", at))
    assert seen == [[1, 1], [2, 2], [3, 3], [4, 4], []]
    # A step that decodes reads the weights in 8.2 ms and takes 9.2 ms beside.
    assert [type(event) for event in engine.advance(at)] == [FirstToken, Finished]
    assert at == pytest.approx(0.031 + 5 * 0.0174, abs=0.001)


def test_blocks_of_an_aborted_request_are_told_with_the_step_that_ran() -> None:
    engine = Engine(PROFILES["h200-tp2-qwen3-vl-32b"], tells_kv_events=True)
    engine.submit(EngineRequest("r", (TextSegment(key=1, num_tokens=31),), num_output_tokens=50), 0.0)
    first = engine.advance(0.06)
    assert [(event.keys, event.first_block) for event in first if isinstance(event, BlocksStored)] == [(range(1), 0)]
    engine.abort("r", 0.06)
    end = engine.step_ends_at(0.06)
    assert end is not None
    # The 32nd token is computed in the step that the abort finds running.
    told = [event for event in engine.advance(end) if isinstance(event, BlocksStored)]
    assert [(event.at, event.request_id, event.first_block, len(event.keys)) for event in told] == [(end, "r", 1, 1)]
    assert engine.advance(1e6) == []
