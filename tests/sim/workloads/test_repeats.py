"""Pictures of one size, new ones and ones that were sent before."""

from itertools import islice

import pytest

from tessera.sim.content import Image, Text
from tessera.sim.workloads.repeats import MAX_REMEMBERED, Repeats


def pictures(ask):
    return tuple(part.key for message in ask.messages for part in message.parts if isinstance(part, Image))


def test_pictures_then_a_question_behind_a_system_prompt():
    (ask,) = islice(Repeats(num_pictures=2, width=64, height=32, question_tokens=7).make("5").asks(0), 1)
    assert [message.role for message in ask.messages] == ["system", "user"]
    first, second, question = ask.messages[1].parts
    assert (first.width, first.height, second.key) == (64, 32, "5-0-0-1")
    assert (question, ask.num_output_tokens) == (Text("5-0-0-question", 7), 300)


def test_without_reuse_nothing_comes_twice():
    workload = Repeats(num_pictures=2).make("0")
    keys = [key for stage in (0, 1) for ask in islice(workload.asks(stage), 50) for key in pictures(ask)]
    assert len(set(keys)) == 200


def test_a_share_of_the_requests_sends_the_pictures_of_an_earlier_one():
    seen, repeated = [], 0
    for ask in islice(Repeats(num_pictures=2, reuse=0.3).make("0").asks(0), 2000):
        repeated += pictures(ask) in seen
        # Only the last sets that were new come again.
        assert pictures(ask) not in seen[:-MAX_REMEMBERED]
        if pictures(ask) not in seen:
            seen.append(pictures(ask))
    # 600 expected, a deviation is 20.
    assert repeated == pytest.approx(600, abs=100)


def test_what_one_stage_sent_may_come_again_in_the_next():
    workload = Repeats(reuse=1.0).make("0")
    first = {pictures(ask) for ask in islice(workload.asks(0), 5)}
    assert {pictures(ask) for ask in islice(workload.asks(1), 5)} == first
    assert len(first) == 1
