"""The API server's CPU: one request after the other, slower while tokens stream."""

from dataclasses import replace
from math import exp, inf

import pytest

from tessera.engine.costs import Costs
from tessera.engine.front_end import FrontEnd, StreamingRate
from tessera.engine.profiles import PROFILES
from tessera.engine.profiles import FrontEnd as Times
from tessera.engine.requests import EngineRequest, MediaSegment, TextSegment
from tessera.engine.sequences import Ticket

FITTED = PROFILES["h200-tp2-qwen3-vl-32b"]
TIMES = Times(latency_s=10.0, request_s=2.0, item_s=1.0, processing_s_per_pixel=0.25, token_s=0.125)
PROFILE = replace(FITTED, front_end=TIMES)


def front_end() -> FrontEnd:
    return FrontEnd(PROFILE, Costs(PROFILE))


def ticket(name: str, *pictures: str) -> Ticket:
    media = tuple(MediaSegment(each, 4, 2, width=4, height=5) for each in pictures)
    return Ticket(EngineRequest(name, (*media, TextSegment(1, 1)), 1))


def through(tested: FrontEnd, tokens_per_s: float = 0.0) -> list[tuple[float, str]]:
    """When each request is through."""
    done: list[tuple[float, str]] = []
    while (at := tested.next_at) < inf:
        if ended := tested.turn(tokens_per_s):
            done.append((at, ended.request.request_id))
    return done


def test_text_takes_the_latency_and_the_work() -> None:
    tested = front_end()
    assert tested.next_at == inf
    tested.push(ticket("a"), 100.0)
    assert tested.next_at == 110.0
    assert tested.turn(0.0) is None
    assert tested.next_at == 112.0
    assert through(tested) == [(112.0, "a")]


def test_the_second_waits_for_the_first_but_its_latency_runs_meanwhile() -> None:
    tested = front_end()
    tested.push(ticket("a"), 0.0)
    tested.push(ticket("b"), 1.0)
    tested.push(ticket("c"), 20.0)
    assert through(tested) == [(12.0, "a"), (14.0, "b"), (32.0, "c")]


def test_a_picture_is_processed_once() -> None:
    tested = front_end()
    tested.push(ticket("a", "x", "x"), 0.0)
    tested.push(ticket("b", "x"), 0.0)
    # 2 + 1 + 20 pixels x 0.25 + 1; then 2 + 1.
    assert through(tested) == [(19.0, "a"), (22.0, "b")]


def test_streaming_takes_its_share() -> None:
    tested = front_end()
    tested.push(ticket("a"), 0.0)
    # 4 tokens/s take half of the CPU.
    assert through(tested, tokens_per_s=4.0) == [(14.0, "a")]


def test_streaming_takes_nine_tenths_at_most() -> None:
    tested = front_end()
    tested.push(ticket("a"), 0.0)
    assert through(tested, tokens_per_s=1e9)[0][0] == pytest.approx(30.0)


def test_one_that_was_aborted_takes_nothing_if_it_had_not_begun() -> None:
    tested = front_end()
    gone = ticket("gone")
    tested.push(ticket("a"), 0.0)
    tested.push(gone, 0.0)
    tested.push(ticket("b"), 0.0)
    gone.is_aborted = True
    assert through(tested) == [(12.0, "a"), (14.0, "b")]


def test_the_rate_is_a_mean_that_fades_by_the_second() -> None:
    rate = StreamingRate()
    assert rate.read(0.0, 0) == 0.0
    assert rate.read(1.0, 100) == pytest.approx(100 * (1 - exp(-1)))
    assert rate.read(1.0, 100) == pytest.approx(100 * (1 - exp(-1)))
    assert rate.read(3.0, 100) == pytest.approx(100 * (1 - exp(-1)) * exp(-2))
