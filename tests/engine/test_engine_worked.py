"""The worked examples of the fitted profile: what one request takes on an idle server."""

import pytest

from tessera.engine.engine import Engine
from tessera.engine.events import CacheCounters, EngineEvent, EngineFacts, Finished, FirstToken
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
        num_blocks=45_625,
        block_size=16,
        num_first_tokens=3,
        prefix_cache=CacheCounters(num_queried=3 * 3958, num_hit=(172 + 247) * 16),
        processor_cache=CacheCounters(num_queried=9, num_hit=6),
        encoder_cache=CacheCounters(num_queried=3, num_hit=0),
        num_preemptions=0,
        num_prompt_tokens=3 * 3958,
        num_generation_tokens=900,
    )
