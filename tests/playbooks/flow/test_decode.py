"""What must leave when the engine answers, does not, or stops; and when the client or the time is gone."""

import pytest

from tessera.core.flow.commands import Break, Cancel, End, Refuse, Relay
from tessera.core.flow.events import Cause
from tessera.core.work import Work

E1, P1 = "10.0.0.1:80", "10.0.1.1:80"
TEXT = {"messages": [{"role": "user", "content": "hello"}]}
ENTRY = "decode=d:8000,0"


@pytest.mark.parametrize("status", [200, 400, 500])
def test_the_engines_answer_is_relayed_whatever_it_says(begin, status):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play.at_time(0.5) >> play.headers(status)
    play << Relay(f"{ENTRY},{status},0.500000")
    play >> play.ended()
    play << End()


def test_an_engine_that_is_not_there_is_a_503_so_that_a_gateway_tries_another_one(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.decode_failed(Cause.UNREACHABLE)
    play << Refuse(503, "the model server gave no answer (unreachable); send the request again")


def test_a_connection_that_was_cut_before_the_answer_is_tried_once_more(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.decode_failed(Cause.CUT)
    play << ("decode", 1, None)
    assert play.bodies["decode", 0] == play.bodies["decode", 1]
    # What is still heard of the first one does not count.
    play >> play.headers(200, attempt=0)
    play >> play.decode_failed(Cause.CUT, attempt=1)
    play << Refuse(502, "the model server gave no answer (cut); send the request again")


def test_after_the_first_byte_nothing_is_tried_again(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.headers()
    play << Relay(f"{ENTRY},200,0.000000")
    play >> play.decode_failed(Cause.CUT)
    play << Break("the model server stopped in the middle of its answer (cut)")


@pytest.mark.parametrize("failure", ["status", "cut"])
def test_an_engine_that_cannot_use_the_blocks_prefills_by_itself(begin, failure):
    play = begin(TEXT, prefillers=P1)
    play >> play.started()
    play << ("prefill", 0, P1)
    play >> play.prefilled(cached=4)
    play << ("decode", 0, 4)
    assert play.report.is_handed_over
    if failure == "status":
        play >> play.headers(500)
        play << Cancel(Work.DECODE, 0)
    else:
        play >> play.decode_failed(Cause.CUT)
    play << ("decode", 1, None)
    assert play.bodies["decode", 1] == TEXT
    cause = Cause.TRANSFER if failure == "status" else Cause.CUT
    assert play.report.fell_back == {(Work.PREFILL, cause): 1}
    assert not play.report.is_handed_over
    play >> play.headers(500, attempt=1)
    assert isinstance(play.left.pop(), Relay)
    play >> play.ended(1)
    play << End()


def test_an_engine_that_cannot_use_the_embeddings_encodes_by_itself(begin):
    body = begin.chat(begin.picture("a"))
    play = begin(body, encoders=E1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encoded(0)
    play << ("decode", 0, None)
    play >> play.headers(500)
    play << Cancel(Work.DECODE, 0) << ("decode", 1, None)
    assert play.bodies["decode", 1] == body
    assert play.report.num_transferred == 0
    assert play.report.fell_back == {(Work.ENCODE, Cause.TRANSFER): 1}
    play.relayed(1)


def test_a_request_that_may_have_ended_the_engine_is_no_503(begin):
    play = begin(TEXT)
    play >> play.started()
    play << ("decode", 0, None)
    play >> play.decode_failed(Cause.CUT)
    play << ("decode", 1, None)
    play >> play.decode_failed(Cause.UNREACHABLE, attempt=1)
    play << Refuse(502, "the model server gave no answer (unreachable); send the request again")


class TestClientGone:
    def test_before_anything(self, begin):
        play = begin(TEXT)
        play >> play.client_gone()

    def test_while_encoding(self, begin):
        play = begin(begin.chat(*map(begin.picture, "abc")), encoders=E1, max_parallel_encodes=2)
        play >> play.started()
        play << ("encode", 0, 0, E1) << ("encode", 1, 0, E1)
        play >> play.client_gone()
        play << Cancel(Work.ENCODE, 0, 0) << Cancel(Work.ENCODE, 0, 1)

    def test_while_prefilling(self, begin):
        play = begin(TEXT, prefillers=P1)
        play >> play.started()
        play << ("prefill", 0, P1)
        play >> play.client_gone()
        play << Cancel(Work.PREFILL, 0)

    @pytest.mark.parametrize("has_begun", [False, True])
    def test_while_decoding(self, begin, has_begun):
        play = begin(TEXT)
        play >> play.started()
        play << ("decode", 0, None)
        if has_begun:
            play >> play.headers()
            play << Relay(f"{ENTRY},200,0.000000")
        play >> play.client_gone()
        play << Cancel(Work.DECODE, 0)


class TestTheRequestsEnd:
    def test_ends_the_stage_with_it(self, begin):
        play = begin(begin.chat(begin.picture("a")), encoders=E1, request_budget_s=3.0)
        play >> play.started()
        play << ("encode", 0, 0, E1)
        assert play.wakes == [3.0]
        play.at_time(3.0) >> play.woken()
        play << Cancel(Work.ENCODE, 0, 0) << Refuse(504, "the request took longer than 3 s")

    def test_before_the_first_byte(self, begin):
        play = begin(TEXT, request_budget_s=3.0)
        play >> play.started()
        play << ("decode", 0, None)
        play.at_time(3.0) >> play.woken()
        play << Cancel(Work.DECODE, 0) << Refuse(504, "the request took longer than 3 s")

    def test_in_the_middle_of_the_answer(self, begin):
        play = begin(TEXT, request_budget_s=3.0)
        play >> play.started()
        play << ("decode", 0, None)
        play >> play.headers()
        play << Relay(f"{ENTRY},200,0.000000")
        play.at_time(3.0) >> play.woken()
        play << Cancel(Work.DECODE, 0) << Break("the request took longer than 3 s")


def test_the_report_says_how_long_each_stage_took(begin):
    play = begin(begin.chat(begin.picture("a")), encoders=E1, prefillers=P1)
    play.at_time(1.0) >> play.started()
    play << ("encode", 0, 0, E1)
    play.at_time(1.5) >> play.encoded(0)
    play << ("prefill", 0, P1)
    play.at_time(2.75) >> play.prefilled()
    play << ("decode", 0, None)
    play.at_time(3.0) >> play.headers()
    play << Relay(f"encode={E1},1,200,0.500000;prefill={P1},0,200,1.250000;decode=d:8000,0,200,0.250000")
    play.at_time(7.0) >> play.ended()
    play << End()
    assert play.report.is_handed_over
    assert play.report.seconds == {Work.ENCODE: 0.5, Work.PREFILL: 1.25, Work.DECODE: 4.25}
