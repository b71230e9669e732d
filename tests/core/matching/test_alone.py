"""Who had an endpoint to itself, and whose first token speaks of its own work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import FirstTokenCost
from tessera.core.matching.alone import Alone, served_alone
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome


def test_the_only_one_until_its_first_token_was_alone():
    alone = Alone()
    alone.sent("r1", "a")
    alone.sent("r2", "b")
    alone.first_token("r1")
    alone.sent("r3", "a")
    assert [alone.ended(name) for name in ("r1", "r2", "r3")] == [True, True, True]
    assert len(alone) == 0


def test_who_comes_beside_another_disturbs_both():
    alone = Alone()
    alone.sent("r1", "a")
    alone.sent("r2", "a")
    alone.first_token("r1")
    alone.sent("r3", "a")
    alone.first_token("r2")
    alone.first_token("r3")
    alone.sent("r4", "a")
    assert [alone.ended(name) for name in ("r1", "r2", "r3", "r4")] == [False, False, False, True]


def test_one_that_ends_without_a_first_token_makes_room():
    alone = Alone()
    alone.sent("r1", "a")
    alone.ended("r1")
    alone.sent("r2", "a")
    assert alone.ended("r2")
    assert not alone.ended("r2")
    assert not alone.ended("unknown")


@given(st.lists(st.tuples(st.sampled_from(["sent", "first", "ended"]), st.integers(0, 5), st.sampled_from("ab"))))
def test_nothing_is_left_whatever_the_order(events):
    alone = Alone()
    for what, number, endpoint in events:
        name = f"r{number}"
        if what == "sent":
            alone.sent(name, endpoint)
        elif what == "first":
            alone.first_token(name)
        else:
            alone.ended(name)
    for number in range(6):
        alone.ended(f"r{number}")
    assert len(alone) == 0
    assert alone._alone == set()


def outcome(build, *, queued=0.0, decision=None, **fields):
    row = Candidate(
        build.endpoint(1), {(FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(queued_s=queued, ttft_s=0.1)}
    )
    decision = decision or build.decision(None, build.stage([row]))
    usual = {
        "endpoint": "10.0.0.1:8000",
        "status": 200,
        "first_token_at": 0.2,
        "first_token_source": FirstTokenSource.BODY,
        "ending": Ending.FINISHED,
    }
    return Outcome(**{"request_id": "r1", "decision": decision, "finished_at": 1.0} | usual | fields)


def test_a_first_token_that_was_seen_or_counted_at_the_winner_counts(build):
    assert served_alone(outcome(build)).endpoint == build.endpoint(1)
    assert served_alone(outcome(build, endpoint=None, status=None)) is not None
    assert served_alone(outcome(build, first_token_source=FirstTokenSource.COUNTER)) is not None


@pytest.mark.parametrize(
    "fields",
    [
        {"queued": 0.001},
        {"endpoint": "10.0.0.2:8000"},
        {"status": 400},
        {"ending": Ending.FAILED},
        {"ending": Ending.ABORTED},
        {"first_token_source": FirstTokenSource.PREDICTED},
        {"first_token_at": None, "first_token_source": None},
    ],
)
def test_others_do_not(build, fields):
    assert served_alone(outcome(build, **fields)) is None


def test_a_request_of_several_choices_or_stages_does_not(build):
    several = build.decision(build.priced(10, num_choices=2), build.stage([build.candidate(1)]))
    assert served_alone(outcome(build, decision=several)) is None
    stages = [build.stage([build.candidate(1)], profile=name) for name in ("prefill", "decode")]
    assert served_alone(outcome(build, decision=build.decision(None, *stages))) is None
    assert served_alone(outcome(build, decision=build.decision(None, build.stage([build.candidate(1)])))) is None
