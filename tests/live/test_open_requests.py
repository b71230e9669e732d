"""Each request settles exactly once, at the right time, with what is best known of it."""

import weakref
from array import array
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.types import Ending, FirstTokenSource, Usage
from tessera.live.open_requests import FIRST_DURATION_S, MAX_EARLY_WAIT_S, LogEntry, OpenRequests

BODY, COUNTER, PREDICTED = FirstTokenSource.BODY, FirstTokenSource.COUNTER, FirstTokenSource.PREDICTED


class Desk:
    """Open requests, their outcomes, and what happens to request ``r1``, which was opened at 100 s."""

    def __init__(self, build, *, stream=True, expects_log=False):
        self.build = build
        self.settled = []
        self.num_early = 0
        self.open = OpenRequests(self.settled.append, ended_early=self._early, expects_log=expects_log)
        self.decide(stream=stream)

    def _early(self):
        self.num_early += 1

    def decide(self, request_id="r1", opened_at=100.0, *, stream=True):
        decision = self.build.decision(self.build.priced(request_id=request_id, stream=stream, at=opened_at + 0.001))
        self.open.decided(decision, opened_at)

    def end(self, at, request_id="r1", *, is_early=False, predicted=0.0):
        self.open.stream_ended(request_id, at, is_early=is_early, predicted_first_at=predicted)

    def log(self, at, request_id="r1", **fields):
        self.open.logged(LogEntry(request_id=request_id, **fields), at)

    def tick(self, at):
        self.open.settle_due(at)

    @property
    def outcome(self):
        (outcome,) = self.settled
        return outcome


@pytest.fixture
def desk(build):
    return Desk(build)


@pytest.fixture
def logging_desk(build):
    """One whose listener has told of another request before."""
    desk = Desk(build)
    desk.log(99.0, "another")
    return desk


def test_token_ids_do_not_wait_for_the_end(build):
    """A hundred thousand of them are 3.6 MB, and a thousand requests may be in flight."""
    settled = []
    one = OpenRequests(settled.append)
    ids = array("I", range(100_000))
    decision = build.decision(replace(build.priced(request_id="r1"), token_ids=ids))
    one.decided(decision, 1.0)
    known = weakref.ref(ids)
    del decision, ids
    assert known() is None
    one.settle_all(2.0)
    assert settled[0].decision.priced.token_ids is None
    assert settled[0].decision.request.request_id == "r1"


class TestWhen:
    def test_both_signs_settle_at_once(self, logging_desk):
        logging_desk.end(101.0)
        assert logging_desk.settled == []
        logging_desk.log(101.05, status=200)
        assert logging_desk.outcome.finished_at == 101.0
        assert len(logging_desk.open) == 0

    def test_in_the_other_order_too(self, desk):
        desk.log(101.0, status=200)
        assert desk.settled == []
        desk.end(101.05)
        assert desk.outcome.finished_at == 101.05

    def test_the_log_is_waited_for_two_seconds(self, logging_desk):
        logging_desk.end(101.0)
        logging_desk.tick(102.999)
        assert logging_desk.settled == []
        logging_desk.tick(103.0)
        assert logging_desk.outcome.finished_at == 101.0
        logging_desk.log(103.5, status=503)
        assert logging_desk.outcome.ending is Ending.FINISHED

    def test_the_streams_end_is_waited_for_two_seconds(self, desk):
        desk.log(101.0, status=200)
        desk.tick(102.999)
        assert desk.settled == []
        desk.tick(103.0)
        assert desk.outcome.finished_at == 101.0
        desk.end(104.0)
        assert len(desk.settled) == 1

    def test_where_no_log_was_ever_seen_the_streams_end_is_the_end(self, desk):
        desk.end(101.0)
        assert desk.outcome.finished_at == 101.0

    def test_unless_one_is_expected(self, build):
        desk = Desk(build, expects_log=True)
        desk.end(101.0)
        assert desk.settled == []
        desk.log(101.1)
        assert desk.outcome.finished_at == 101.0

    def test_a_second_entry_and_strangers_change_nothing(self, desk):
        desk.log(101.0, status=200)
        desk.log(101.1, status=500)
        desk.log(101.1, "stranger", status=500)
        desk.end(101.2, "stranger")
        desk.end(101.2)
        assert desk.outcome.status == 200

    def test_stopping_settles_what_is_open(self, logging_desk):
        logging_desk.decide("r2")
        logging_desk.end(101.0)
        logging_desk.open.settle_all(105.0)
        assert sorted((each.request_id, each.finished_at) for each in logging_desk.settled) == [
            ("r1", 101.0),
            ("r2", 105.0),
        ]
        assert len(logging_desk.open) == 0


class TestEarly:
    """The stream ended, but the response may not have."""

    def test_the_log_tells_the_true_end(self, logging_desk):
        logging_desk.end(100.1, is_early=True)
        logging_desk.tick(110.0)
        assert logging_desk.settled == []
        logging_desk.log(130.0, status=200)
        assert logging_desk.outcome.finished_at == 130.0
        assert logging_desk.num_early == 1

    def test_a_log_close_behind_shows_that_it_was_the_end(self, logging_desk):
        logging_desk.end(100.1, is_early=True)
        logging_desk.log(100.6, status=200)
        assert logging_desk.outcome.finished_at == 100.1
        assert logging_desk.num_early == 0

    def test_a_log_before_shows_it_too(self, desk):
        desk.log(100.0, status=200)
        desk.end(100.1, is_early=True)
        assert desk.outcome.finished_at == 100.1
        assert desk.num_early == 0

    @pytest.mark.parametrize(
        ("predicted", "due_at"), [(0.0, 100.1 + 60.0), (105.0, 165.0), (1e9, 100.1 + MAX_EARLY_WAIT_S)]
    )
    def test_without_log_until_first_token_and_duration_as_expected_or_ten_minutes(self, desk, predicted, due_at):
        desk.end(100.1, is_early=True, predicted=predicted)
        desk.tick(due_at - 0.001)
        assert desk.settled == []
        desk.tick(due_at)
        assert desk.outcome.finished_at == due_at
        assert desk.num_early == 1

    def test_what_was_only_waited_for_teaches_no_duration(self, build):
        desk = Desk(build)
        for number in range(50):
            opened_at = 1000.0 * number
            desk.decide(f"e{number}", opened_at)
            desk.end(opened_at + 0.1, f"e{number}", is_early=True, predicted=opened_at + 5)
            desk.tick(opened_at + 999)
        assert len(desk.settled) == 50
        assert desk.open.duration_s == FIRST_DURATION_S


class TestDuration:
    def test_is_learned_from_ends_that_were_seen(self, desk):
        desk.end(120.0)
        assert desk.open.duration_s == pytest.approx(60.0 + 0.05 * (20.0 - 60.0))

    def test_and_not_from_failures(self, desk):
        desk.open.responded("r1", 503)
        desk.end(100.1)
        assert desk.open.duration_s == FIRST_DURATION_S


class TestOutcome:
    def test_by_default_the_winner_served(self, desk):
        desk.end(101.0)
        outcome = desk.outcome
        assert (outcome.endpoint, outcome.status, outcome.usage) == ("10.0.0.1:8000", None, None)
        assert (outcome.first_token_at, outcome.first_token_source, outcome.num_attempts) == (None, None, None)
        assert outcome.decision.request.request_id == outcome.request_id == "r1"

    def test_the_log_says_who_served_and_what_was_counted(self, desk):
        usage = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=0)
        desk.open.responded("r1", 200)
        desk.log(101.0, endpoint="10.0.0.2:8000", usage=usage, num_attempts=2, status=201)
        desk.end(101.0)
        outcome = desk.outcome
        assert (outcome.endpoint, outcome.usage, outcome.num_attempts, outcome.status) == (
            "10.0.0.2:8000",
            usage,
            2,
            201,
        )

    def test_the_stream_says_who_served_where_no_log_does(self, build):
        for entry, served in ((None, "10.0.0.2:8000"), ({}, "10.0.0.2:8000"), ({"endpoint": "10.0.0.3:8000"},) * 2):
            desk = Desk(build)
            desk.open.responded("r1", 200, "10.0.0.2:8000")
            if entry is not None:
                desk.log(101.0, **entry)
            desk.end(101.0)
            assert desk.outcome.endpoint == (served if isinstance(served, str) else served["endpoint"])

    def test_a_response_without_status_says_none(self, desk):
        desk.open.responded("r1", None)
        desk.end(101.0)
        assert (desk.outcome.status, desk.outcome.endpoint) == (None, "10.0.0.1:8000")

    def test_a_log_without_status_leaves_the_streams(self, desk):
        desk.open.responded("r1", 404)
        desk.open.responded("unknown", 500)
        desk.log(101.0)
        desk.end(101.0)
        assert (desk.outcome.status, desk.outcome.ending) == (404, Ending.FINISHED)

    @pytest.mark.parametrize(
        ("entry", "status", "ending"),
        [
            ({}, None, Ending.FINISHED),
            ({}, 500, Ending.FAILED),
            ({}, 499, Ending.FINISHED),
            ({"status": 503}, 200, Ending.FAILED),
            ({"upstream_failed": True, "status": 200}, 200, Ending.FAILED),
            ({"client_left": True, "status": 0}, None, Ending.ABORTED),
            ({"client_left": True, "upstream_failed": True}, 500, Ending.ABORTED),
        ],
    )
    def test_how_it_ended(self, desk, entry, status, ending):
        if status is not None:
            desk.open.responded("r1", status)
        desk.log(101.0, **entry)
        desk.end(101.0)
        assert desk.outcome.ending is ending

    def test_without_a_decision_there_is_only_an_ending(self, desk):
        desk.open.not_decided("r9", Ending.CANCELLED, 5.0)
        desk.open.not_decided("r8", Ending.REJECTED, 6.0, 429, "rejected-saturated")
        first, second = desk.settled
        assert (first.request_id, first.ending, first.status, first.decision) == ("r9", Ending.CANCELLED, None, None)
        assert (second.ending, second.status, second.endpoint, second.finished_at) == (Ending.REJECTED, 429, None, 6.0)
        assert (first.refusal, second.refusal) == (None, "rejected-saturated")


class TestFirstToken:
    def finish(self, desk, **entry):
        desk.log(105.0, **entry)
        desk.end(105.0)
        return desk.outcome.first_token_at, desk.outcome.first_token_source

    def test_the_best_source_stays(self, desk):
        desk.open.first_token("r1", PREDICTED, 101.0)
        desk.open.first_token("r1", COUNTER, 102.0)
        desk.open.first_token("r1", PREDICTED, 103.0)
        assert self.finish(desk) == (102.0, COUNTER)

    def test_the_body_beats_all(self, desk):
        for source, at in ((PREDICTED, 101.0), (BODY, 102.0), (COUNTER, 103.0), (BODY, 104.0)):
            desk.open.first_token("r1", source, at)
        assert self.finish(desk, first_body_s=3.5) == (102.0, BODY)

    def test_the_log_knows_better_than_the_counter(self, desk):
        desk.open.first_token("r1", COUNTER, 102.0)
        assert self.finish(desk, first_body_s=1.5) == (101.5, BODY)

    def test_the_body_of_an_answer_that_is_not_streamed_tells_nothing(self, build):
        desk = Desk(build, stream=False)
        desk.open.first_token("r1", BODY, 104.0)
        assert self.finish(desk, first_body_s=4.0) == (None, None)
        desk = Desk(build, stream=False)
        desk.open.first_token("r1", PREDICTED, 101.0)
        assert self.finish(desk, first_body_s=4.0) == (101.0, PREDICTED)

    @pytest.mark.parametrize(("status", "expected"), [(399, (101.5, BODY)), (400, (None, None)), (503, (None, None))])
    def test_the_first_bytes_of_an_error_are_no_token(self, desk, status, expected):
        assert self.finish(desk, first_body_s=1.5, status=status) == expected

    def test_of_an_unknown_request_nothing_is_kept(self, desk):
        desk.open.first_token("unknown", BODY, 1.0)
        assert len(desk.open) == 1


EVENTS = st.tuples(
    st.sampled_from(["end", "early", "log", "responded", "first_token", "tick"]),
    st.integers(0, 2),
    st.floats(0, 700),
)


@given(events=st.lists(EVENTS, max_size=25), expects_log=st.booleans())
def test_any_order_of_events_settles_each_request_once(build, events, expects_log):
    desk = Desk(build, expects_log=expects_log)
    names = ["r1", "r2", "r3"]
    for name in names[1:]:
        desk.decide(name)
    at = 100.0
    for kind, number, passed in events:
        at += passed
        name = names[number]
        if kind == "end":
            desk.end(at, name)
        elif kind == "early":
            desk.end(at, name, is_early=True, predicted=at + 1)
        elif kind == "log":
            desk.log(at, name, status=200)
        elif kind == "responded":
            desk.open.responded(name, 200)
        elif kind == "first_token":
            desk.open.first_token(name, PREDICTED, at)
        else:
            desk.tick(at)
        assert len(desk.settled) + len(desk.open) == 3
    ended = {names[number] for kind, number, _ in events if kind in ("end", "early", "log")}
    desk.tick(at + MAX_EARLY_WAIT_S)
    assert {each.request_id for each in desk.settled} == ended
    desk.open.settle_all(at + 1000)
    assert sorted(each.request_id for each in desk.settled) == names
    assert desk.open._due == {}
    assert all(100.0 <= each.finished_at <= at + 1000 for each in desk.settled)
