"""What must leave when an event comes that is not waited for any more, or in a pause: mostly nothing."""

import pytest

from tessera.core.flow.commands import Cancel, End, Refuse, Relay
from tessera.core.flow.events import Cause
from tessera.core.work import Work

E1, E2, P1, P2 = "10.0.0.1:80", "10.0.0.2:80", "10.0.1.1:80", "10.0.1.2:80"
TEXT = {"messages": [{"role": "user", "content": "hello"}]}
AGAIN = {"prefill_max_retries": 1, "prefill_retry_backoff_s": 0.2}


def test_a_request_starts_once(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.started()
    play.relayed()


def test_stages_that_are_over_hear_nothing(begin):
    play = begin(begin.chat(begin.picture("a")), encoders=f"{E1},{E2}", prefillers=f"{P1},{P2}")
    play >> play.started()
    play << ("encode", 0, 0, E1)
    # Nobody was asked that yet.
    play >> play.prefilled() >> play.headers() >> play.ended() >> play.decode_failed()
    # An item, and an attempt, that there is not.
    play >> play.encoded(1) >> play.encode_failed(0, 1) >> play.encoded(0, 1)
    play >> play.encoded(0)
    play << ("prefill", 0, P1)
    play >> play.encoded(0) >> play.encode_failed(0) >> play.prefill_failed(1) >> play.prefilled(1)
    play >> play.prefilled(cached=4)
    play << ("decode", 0, 4)
    play >> play.encoded(0) >> play.prefilled() >> play.prefill_failed()
    play >> play.headers(attempt=1) >> play.decode_failed(attempt=1)
    play.relayed()
    assert play.report.num_encoded == 1
    assert (play.report.fell_back, play.report.retried) == ({}, {})


def test_the_first_attempt_at_the_engine_is_not_heard_while_the_second_runs(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.decode_failed(Cause.CUT)
    play << ("decode", 1, None)
    play >> play.headers() >> play.ended() >> play.decode_failed(Cause.UNREACHABLE)
    play.relayed(1)


def test_an_answer_does_not_end_before_it_began(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.ended()
    play >> play.headers()
    play << Relay("decode=d:8000,0,200,0.000000")
    # Its headers come once.
    play >> play.headers(500)
    play >> play.ended()
    play << End()


def test_an_engine_that_is_silent_too_long_is_not_asked_again(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.decode_failed(Cause.LATE)
    play << Refuse(502, "the model server gave no answer (late); send the request again")


def test_an_engine_that_dies_of_the_second_attempt_too(begin):
    play = begin(TEXT, prefillers=P1)
    play >> play.started()
    play << ("prefill", 0, P1)
    play >> play.prefilled(cached=0)
    play << ("decode", 0, 0)
    play >> play.headers(503)
    play << Cancel(Work.DECODE, 0) << ("decode", 1, None)
    play >> play.decode_failed(Cause.CUT, attempt=1)
    play << Refuse(502, "the model server gave no answer (cut); send the request again")


class TestInThePauseBeforeAPrefillerIsAskedAgain:
    @pytest.fixture
    def play(self, begin):
        play = begin(TEXT, prefillers=f"{P1},{P2}", **AGAIN, prefill_budget_s=1.1, request_budget_s=1.15)
        play >> play.started()
        play << ("prefill", 0, P1)
        play.at_time(1.0) >> play.prefilled(status=503)
        return play

    def test_the_answer_is_not_heard_twice(self, play):
        play >> play.prefilled() >> play.prefill_failed()
        play >> play.client_gone()

    def test_the_client_goes_and_nobody_is_left_to_be_told(self, play):
        play >> play.client_gone()

    def test_the_stage_ends(self, play):
        assert play.wakes[-1] == 1.1
        play.at_time(1.1) >> play.woken()
        play << ("decode", 0, None)
        assert play.report.fell_back == {(Work.PREFILL, Cause.LATE): 1}
        play.relayed()

    def test_the_request_ends(self, play):
        # The timer may have rung late.
        play.at_time(1.2) >> play.woken()
        play << Refuse(504, "the request took longer than 1.15 s")


def test_without_a_pause_the_same_prefiller_is_asked_at_once(begin):
    play = begin(TEXT, prefillers=P1, prefill_max_retries=1, prefill_retry_backoff_s=0.0)
    play >> play.started()
    play << ("prefill", 0, P1)
    play >> play.prefilled(status=502)
    play << ("prefill", 1, P1)
    play >> play.prefilled(1, status=502)
    play << ("decode", 0, None)
    assert play.report.retried == {(Work.PREFILL, Cause.STATUS): 1}
    assert play.report.fell_back == {(Work.PREFILL, Cause.STATUS): 1}
    play.relayed()


def test_the_requests_end_while_prefilling(begin):
    play = begin(TEXT, prefillers=P1, request_budget_s=3.0)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert play.wakes == [3.0]
    play.at_time(3.0) >> play.woken()
    play << Cancel(Work.PREFILL, 0) << Refuse(504, "the request took longer than 3 s")


def test_prefill_apart_where_nothing_is_encoded_apart(begin):
    body = begin.chat(begin.picture("a"))
    play = begin(body, encoders=E1, prefillers=P1, ec=None)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert "ec_transfer_params" not in play.bodies["prefill", 0]
    play >> play.prefilled(cached=0)
    play << ("decode", 0, 0)
    play.relayed()
