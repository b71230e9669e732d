"""What must leave while items are encoded, and when an encoder fails at it."""

import pytest

from tessera.core.errors import RequestError
from tessera.core.flow.commands import Cancel
from tessera.core.flow.events import Cause, Woken
from tessera.core.work import Work

E1, E2, E3 = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"


@pytest.fixture
def three(begin):
    """A body with three pictures, the first one twice, and words between."""
    a, b, c = (begin.picture(name) for name in "abc")
    return begin.chat(a, {"type": "text", "text": "and"}, b, a, c, max_tokens=7, stream=True)


def test_items_go_to_their_encoders_at_once_and_the_engine_is_told_where_they_are(begin, three):
    play = begin(three, encoders=f"{E1},{E2}")
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E2) << ("encode", 2, 0, E1)
    play >> play.encoded(1)
    play >> play.encoded(0)
    play >> play.encoded(2)
    play << ("decode", 0, None)
    sent = play.bodies["decode", 0]
    references = sent.pop("ec_transfer_params")
    assert references == play.reference("hash0") | play.reference("hash1") | play.reference("hash2")
    assert sent == three
    report = play.report
    assert (report.num_encode_requested, report.num_encoded, report.num_transferred) == (3, 3, 3)
    assert not report.fell_back
    play.relayed()


def test_a_job_asks_for_one_item_and_no_answer(begin):
    body = begin.chat(
        {"type": "text", "text": "look"},
        begin.picture("a", uuid="u"),
        max_tokens=70,
        max_completion_tokens=60,
        min_tokens=5,
        n=3,
        tools=[{}],
        response_format={"type": "json_object"},
        logprobs=True,
        stream=True,
        stream_options={"include_usage": True},
        mm_processor_kwargs={"fps": 2},
        unknown={"x": 1.50},
    )
    play = begin(body, encoders=E1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    assert play.bodies["encode", 0, 0] == {
        "model": "m",
        "messages": [{"role": "user", "content": [begin.picture("a", uuid="u")]}],
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "stream": False,
        "mm_processor_kwargs": {"fps": 2},
        "unknown": {"x": 1.5},
    }
    play >> play.encoded(0)
    play << ("decode", 0, None)
    play.relayed()


def test_a_plan_says_who_encodes_what_and_what_is_left_to_the_engine(begin, three):
    play = begin(three, plan=f"0={E1},2={E2};alt={E3}", encoders=E3)
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 2, 0, E2)
    play >> play.encoded(0)
    play >> play.encoded(2)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0]["ec_transfer_params"].keys() == {"hash0", "hash2"}
    assert play.report.num_encode_requested == 2
    play.relayed()


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.CUT])
def test_a_job_that_fails_goes_to_a_spare(begin, three, cause):
    play = begin(three, plan=f"0={E1};alt={E3}")
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encode_failed(0, cause=cause)
    play << ("encode", 0, 1, E3)
    play >> play.encoded(0, 1)
    play << ("decode", 0, None)
    assert play.report.retried == {(Work.ENCODE, cause): 1}
    assert play.report.header() == f"encode={E1},1,0,0.000000;encode={E3},1,200,0.000000"
    play.relayed()


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_a_busy_encoder_is_passed_over_for_one_that_failed_least(begin, three, status):
    play = begin(three, encoders=f"{E1},{E2},{E3}")
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E2) << ("encode", 2, 0, E3)
    play >> play.encoded(0, status=status)
    play << ("encode", 0, 1, E2)
    play >> play.encoded(1, status=status)
    # E1 and E2 failed once, E3 never.
    play << ("encode", 1, 1, E3)
    play >> play.encoded(0, 1)
    play >> play.encoded(1, 1)
    play >> play.encoded(2)
    play << ("decode", 0, None)
    play.relayed()


@pytest.mark.parametrize("status", [400, 404, 422])
def test_what_one_encoder_refuses_the_others_would_refuse_too(begin, three, status):
    play = begin(three, plan=f"0={E1};alt={E2}")
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encoded(0, status=status)
    play << ("decode", 0, None)
    assert "ec_transfer_params" not in play.bodies["decode", 0]
    assert play.report.fell_back == {(Work.ENCODE, Cause.REJECTED): 1}
    play.relayed()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no JSON",
        b"[]",
        b"{}",
        b'{"ec_transfer_params": null}',
        b'{"ec_transfer_params": {}}',
        b'{"ec_transfer_params": []}',
        b'{"ec_transfer_params": {"h": null}}',
        b'{"ec_transfer_params": {"h": {"metadata": {}}}}',
        b'{"ec_transfer_params": {"h": {"peer_host": "", "peer_port": 1}}}',
        b'{"ec_transfer_params": {"h": {"peer_host": "a", "peer_port": 0}}}',
        b'{"ec_transfer_params": {"h": {"peer_host": "a", "peer_port": true}}}',
        b'{"ec_transfer_params": {"h": {"peer_host": "a", "peer_port": 65536}}}',
    ],
)
def test_without_an_address_the_engine_is_told_nothing(begin, three, answer):
    play = begin(three, plan=f"0={E1},1={E2}")
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E2)
    play >> play.encoded(0, body=answer or b" ")
    play >> play.encoded(1)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0]["ec_transfer_params"] == play.reference("hash1")
    assert play.report.fell_back == {(Work.ENCODE, Cause.NO_REFERENCE): 1}
    play.relayed()


def test_only_that_item_is_left_to_the_engine_when_everybody_failed_at_it(begin, three):
    play = begin(three, encoders=f"{E1},{E2}", max_encode_attempts=3)
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E2) << ("encode", 2, 0, E1)
    play >> play.encode_failed(0)
    play << ("encode", 0, 1, E2)
    play >> play.encoded(1)
    play >> play.encoded(2)
    play >> play.encode_failed(0, 1)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0]["ec_transfer_params"].keys() == {"hash1", "hash2"}
    assert play.report.fell_back == {(Work.ENCODE, Cause.UNREACHABLE): 1}
    assert (play.report.num_encoded, play.report.num_transferred) == (2, 2)
    play.relayed()


def test_attempts_have_a_limit(begin, three):
    play = begin(three, plan=f"0={E1};alt={E2},{E3}", max_encode_attempts=2)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encode_failed(0)
    play << ("encode", 0, 1, E2)
    play >> play.encode_failed(0, 1)
    play << ("decode", 0, None)
    play.relayed()


def test_a_late_job_is_given_up_and_its_answer_is_not_heard_any_more(begin, three):
    play = begin(three, plan=f"0={E1};alt={E2}", encode_timeout_s=2.0, encode_budget_s=10.0)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    assert play.wakes == [2.0]
    # A timer that rings too early is wound again.
    play >> Woken(1.999)
    assert play.wakes == [2.0, 2.0]
    play.at_time(2.0) >> play.woken()
    play << Cancel(Work.ENCODE, 0, 0) << ("encode", 0, 1, E2)
    assert play.wakes[-1] == 4.0
    play >> play.encoded(0, 0)
    play.at_time(3.0) >> play.encoded(0, 1)
    play << ("decode", 0, None)
    assert play.report.retried == {(Work.ENCODE, Cause.LATE): 1}
    assert play.report.header() == f"encode={E1},1,0,2.000000;encode={E2},1,200,1.000000"
    play.relayed()


def test_at_the_end_of_the_stage_everything_open_and_waiting_is_left_to_the_engine(begin, three):
    play = begin(three, encoders=f"{E1},{E2}", encode_timeout_s=9.0, encode_budget_s=5.0, max_parallel_encodes=2)
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E2)
    assert play.wakes == [5.0]
    play.at_time(1.0) >> play.encoded(1)
    play << ("encode", 2, 0, E1)
    play.at_time(5.0) >> play.woken()
    play << Cancel(Work.ENCODE, 0, 0) << Cancel(Work.ENCODE, 0, 2) << ("decode", 0, None)
    assert play.bodies["decode", 0]["ec_transfer_params"] == play.reference("hash1")
    assert play.report.fell_back == {(Work.ENCODE, Cause.LATE): 2}
    play.relayed()


def test_what_waits_at_the_end_of_the_stage_is_never_asked_for(begin, three):
    play = begin(three, encoders=E1, encode_budget_s=5.0, max_parallel_encodes=1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play.at_time(5.0) >> play.woken()
    play << Cancel(Work.ENCODE, 0, 0) << ("decode", 0, None)
    assert play.report.fell_back == {(Work.ENCODE, Cause.LATE): 3}
    play.relayed()


def test_an_encoder_that_failed_is_not_asked_for_further_items_while_another_has_not(begin, three):
    play = begin(three, encoders=f"{E1},{E2}", max_parallel_encodes=1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encode_failed(0, cause=Cause.LATE)
    play << ("encode", 0, 1, E2)
    play >> play.encoded(0, 1)
    play << ("encode", 1, 0, E2)
    play >> play.encoded(1)
    # Planned for E1.
    play << ("encode", 2, 0, E2)
    play >> play.encoded(2)
    play << ("decode", 0, None)
    play.relayed()


def test_an_encoder_that_refused_an_item_is_asked_for_the_next(begin, three):
    play = begin(three, encoders=f"{E1},{E2}", max_parallel_encodes=1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encoded(0, status=400)
    play << ("encode", 1, 0, E2)
    play >> play.encoded(1)
    play << ("encode", 2, 0, E1)
    play >> play.encoded(2)
    play << ("decode", 0, None)
    play.relayed()


def test_no_more_jobs_at_once_than_the_cap(begin):
    play = begin(begin.chat(*(begin.picture(str(index)) for index in range(5))), encoders=E1, max_parallel_encodes=2)
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E1)
    for done, further in ((1, 2), (0, 3), (3, 4)):
        play >> play.encoded(done)
        play << ("encode", further, 0, E1)
    play >> play.encoded(2)
    play >> play.encoded(4)
    play << ("decode", 0, None)
    play.relayed()


def test_shared_storage_needs_no_reference(begin, three):
    play = begin({**three, "ec_transfer_params": {"forged": {"peer_host": "6.6.6.6"}}}, encoders=E1, ec="ec-example")
    play >> play.started()
    play << ("encode", 0, 0, E1) << ("encode", 1, 0, E1) << ("encode", 2, 0, E1)
    for item in range(3):
        assert "ec_transfer_params" not in play.bodies["encode", item, 0]
        play >> play.encoded(item, entries={"h": {"item_indices": [0], "metadata": {}}})
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == three
    assert play.report.num_transferred == 3
    play.relayed()


@pytest.mark.parametrize("headers", [{}, {"plan": ";alt=10.0.0.1:80"}])
def test_without_an_encoder_the_engine_does_everything_and_believes_no_client(begin, three, headers):
    play = begin({**three, "ec_transfer_params": {"forged": {"peer_host": "6.6.6.6"}}}, **headers)
    play >> play.started()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == three
    play.relayed()


def test_text_is_not_encoded_whatever_the_headers_say(begin):
    body = b'{"model":"m",  "messages":[{"role":"user","content":"no picture"}], "stream": true}'
    play = begin(body, encoders=f"{E1},{E2}")
    play >> play.started()
    play << ("decode", 0, None)
    assert play.flow._job.document.with_changes({"ec_transfer_params": None}) == body
    play.relayed()


def test_a_body_that_cannot_be_read_goes_to_the_engine_as_it_came(begin):
    play = begin(b"[ 1 ]", encoders=E1, prefillers=E2)
    play >> play.started()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == [1]
    assert play.report.fell_back == {(Work.ENCODE, Cause.UNREAD): 1, (Work.PREFILL, Cause.UNREAD): 1}
    play.relayed()


def test_a_part_that_stands_for_embeddings_nobody_confirmed_is_refused(begin):
    bare = {"type": "image_embeds", "image_embeds": {"image_grid_thw": [1, 44, 80]}, "uuid": "h"}
    with pytest.raises(RequestError, match="image_embeds holds no tensor"):
        begin(begin.chat(bare), encoders=E1)
    with_tensor = {"type": "image_embeds", "image_embeds": "AAAA"}
    play = begin(begin.chat(with_tensor, begin.picture("a")), encoders=f"{E1},{E2}")
    play >> play.started()
    # The tensor is the first item and needs no encoder.
    play << ("encode", 1, 0, E2)
    play >> play.client_gone()
    play << Cancel(Work.ENCODE, 0, 1)
