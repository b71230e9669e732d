"""What must leave while a prompt is prefilled elsewhere, and when that fails."""

import json

import pytest

from tessera.core.flow.commands import Cancel
from tessera.core.flow.events import Cause
from tessera.core.work import Work

E1, P1, P2 = "10.0.0.1:80", "10.0.1.1:80", "10.0.1.2:80"
KEPT = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
TEXT = {"role": "user", "content": "hello"}


def test_one_token_there_and_everything_as_it_was_here(begin):
    body = {
        "model": "m",
        "messages": [TEXT],
        "max_tokens": 70,
        "min_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True},
        "kv_transfer_params": {"remote_host": "6.6.6.6"},
        "unknown": [1],
    }
    play = begin(body, prefillers=P1)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert play.bodies["prefill", 0] == {
        "model": "m",
        "messages": [TEXT],
        "max_tokens": 1,
        "stream": False,
        "unknown": [1],
        "kv_transfer_params": KEPT,
    }
    play.at_time(0.5) >> play.prefilled(cached=8)
    play << ("decode", 0, 8)
    assert play.bodies["decode", 0] == body | {"kv_transfer_params": begin.blocks}
    play.at_time(0.75) >> play.headers()
    play << play.Relay(f"prefill={P1},0,200,0.500000;decode=d:8000,0,200,0.250000")
    play >> play.ended()
    play << play.End()


@pytest.mark.parametrize(
    ("path", "body", "short"),
    [
        (
            "/v1/chat/completions",
            {"messages": [TEXT], "max_completion_tokens": 9},
            {"messages": [TEXT], "max_completion_tokens": 1, "max_tokens": 1},
        ),
        ("/v1/completions", {"prompt": [1, 2, 3]}, {"prompt": [1, 2, 3], "max_tokens": 1}),
        ("/v1/completions", {"prompt": ["one"]}, {"prompt": ["one"], "max_tokens": 1}),
        (
            "/v1/responses",
            {"input": "hello", "max_output_tokens": 9, "background": True},
            {"input": "hello", "max_output_tokens": 1},
        ),
        ("/v1/messages", {"messages": [TEXT], "max_tokens": 9}, {"messages": [TEXT], "max_tokens": 1}),
        (
            "/inference/v1/generate",
            {"token_ids": [1], "sampling_params": {"max_tokens": 9, "min_tokens": 3, "seed": 1}},
            {"token_ids": [1], "sampling_params": {"max_tokens": 1, "seed": 1}},
        ),
        ("/inference/v1/generate", {"token_ids": [1]}, {"token_ids": [1], "sampling_params": {"max_tokens": 1}}),
    ],
)
def test_each_api_has_its_limits(begin, path, body, short):
    play = begin(body, prefillers=P1, path=path)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert play.bodies["prefill", 0] == short | {"stream": False, "kv_transfer_params": KEPT}
    play >> play.prefilled()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == body | {"kv_transfer_params": begin.blocks}
    play.relayed()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [TEXT], "n": 2}),
        ("/v1/completions", {"prompt": ["one", "two"]}),
        ("/v1/completions", {"prompt": [[1], [2]]}),
        ("/v1/completions", {"prompt": "one", "best_of": 2}),
        ("/inference/v1/generate", {"token_ids": [1], "sampling_params": {"n": 2}}),
    ],
)
def test_several_sequences_are_prefilled_here(begin, path, body):
    play = begin(body, prefillers=P1, path=path)
    play >> play.started()
    play << ("decode", 0, None)
    assert play.report.fell_back == {(Work.PREFILL, Cause.SEVERAL_SEQUENCES): 1}
    play.relayed()


FORGED = {"do_remote_prefill": True, "do_remote_decode": True, "remote_host": "6.6.6.6", "remote_port": 80}


@pytest.mark.parametrize(("more", "left"), [({}, None), ({"lmcache.skip_save": True}, {"lmcache.skip_save": True})])
def test_no_client_sends_the_engine_to_a_server_of_its_choice(begin, more, left):
    """Neither where nothing is prefilled elsewhere, nor where that failed, nor at the second try."""
    body = {"messages": [TEXT], "kv_transfer_params": FORGED | more}
    plain = {"messages": [TEXT]} | ({"kv_transfer_params": left} if left else {})
    play = begin(body)
    play >> play.started()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == plain
    play >> play.decode_failed()
    play << ("decode", 1, None)
    assert play.bodies["decode", 1] == plain
    play.relayed(attempt=1)

    play = begin(body | {"n": 2}, prefillers=P1)
    play >> play.started()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == plain | {"n": 2}
    play.relayed()

    play = begin(body, prefillers=P1)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert play.bodies["prefill", 0]["kv_transfer_params"] == KEPT
    play >> play.prefill_failed()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == plain
    # An engine's error is the client's: nothing was fetched that it could be about.
    play.relayed(status=500)


def test_embeddings_go_to_the_prefiller_and_not_where_the_blocks_have_them(begin):
    body = begin.chat(begin.picture("a"))
    play = begin(body, encoders=E1, prefillers=P1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encoded(0)
    play << ("prefill", 0, P1)
    assert play.bodies["prefill", 0]["ec_transfer_params"] == play.reference("hash0")
    assert play.bodies["prefill", 0]["messages"] == body["messages"]
    play >> play.prefilled()
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == body | {"kv_transfer_params": begin.blocks}
    assert play.report.num_transferred == 1
    play.relayed()


@pytest.mark.parametrize("cause", [Cause.UNREACHABLE, Cause.CUT])
def test_another_prefiller_then_here_with_the_embeddings(begin, cause):
    body = begin.chat(begin.picture("a"))
    play = begin(body, encoders=E1, prefillers=f"{P1},{P2}")
    play >> play.started()
    play << ("encode", 0, 0, E1)
    play >> play.encoded(0)
    play << ("prefill", 0, P1)
    play >> play.prefill_failed(0, cause)
    play << ("prefill", 1, P2)
    assert play.bodies["prefill", 0] == play.bodies["prefill", 1]
    play >> play.prefill_failed(1, cause)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == body | {"ec_transfer_params": play.reference("hash0")}
    assert play.report.fell_back == {(Work.PREFILL, cause): 1}
    assert play.report.retried == {(Work.PREFILL, cause): 1}
    play.relayed()


@pytest.mark.parametrize(("status", "cause"), [(400, Cause.REJECTED), (404, Cause.REJECTED), (422, Cause.REJECTED)])
def test_what_one_prefiller_refuses_the_engine_may_refuse_in_its_own_words(begin, status, cause):
    play = begin({"messages": [TEXT]}, prefillers=f"{P1},{P2}")
    play >> play.started()
    play << ("prefill", 0, P1)
    play >> play.prefilled(status=status)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == {"messages": [TEXT]}
    assert play.report.fell_back == {(Work.PREFILL, cause): 1}
    play >> play.headers(400)
    play << play.Relay(f"prefill={P1},0,{status},0.000000;decode=d:8000,0,400,0.000000")
    play >> play.ended()
    play << play.End()


@pytest.mark.parametrize("blocks", [None, {}, [], "x", 3])
def test_without_blocks_the_prompt_is_prefilled_here(begin, blocks):
    play = begin({"messages": [TEXT]}, prefillers=f"{P1},{P2}")
    play >> play.started()
    play << ("prefill", 0, P1)
    play >> play.prefilled(blocks=blocks, cached=3)
    play << ("decode", 0, None)
    assert play.bodies["decode", 0] == {"messages": [TEXT]}
    assert play.report.fell_back == {(Work.PREFILL, Cause.NO_REFERENCE): 1}
    play.relayed()


def test_the_same_prefiller_again_after_a_pause_where_retries_are_set(begin):
    settings = {"prefill_max_retries": 1, "prefill_retry_backoff_s": 0.2}
    play = begin({"messages": [TEXT]}, prefillers=f"{P1},{P2}", **settings)
    play >> play.started()
    play << ("prefill", 0, P1)
    play.at_time(1.0) >> play.prefilled(status=503)
    assert play.wakes[-1] == 1.2
    play.at_time(1.1) >> play.woken()
    play.at_time(1.2) >> play.woken()
    play << ("prefill", 1, P1)
    play >> play.prefilled(1, status=503)
    play << ("prefill", 2, P2)
    play >> play.prefilled(2)
    play << ("decode", 0, None)
    play.relayed()


def test_late_prefills_and_the_end_of_the_stage(begin):
    play = begin({"messages": [TEXT]}, prefillers=f"{P1},{P2}", prefill_timeout_s=10.0, prefill_budget_s=15.0)
    play >> play.started()
    play << ("prefill", 0, P1)
    assert play.wakes == [10.0]
    play.at_time(10.0) >> play.woken()
    play << Cancel(Work.PREFILL, 0) << ("prefill", 1, P2)
    assert play.wakes == [10.0, 15.0]
    play >> play.prefilled(0)
    play.at_time(15.0) >> play.woken()
    play << Cancel(Work.PREFILL, 1) << ("decode", 0, None)
    assert play.report.fell_back == {(Work.PREFILL, Cause.LATE): 1}
    play.relayed()


def test_bytes_that_do_not_change_are_forwarded_as_they_came(begin):
    picture = '"data:image/png;base64,' + "A" * (600 << 10) + '"'
    content = '{"type":"image_url", "image_url":{"url": ' + picture + "}}"
    body = (
        '{ "x": 1.500, "messages": [{"role":"user","content":[' + content + ', {"text":"\\u00e9"}]}],"max_tokens" : 5 }'
    )
    play = begin(body.encode(), encoders=E1, prefillers=P1)
    play >> play.started()
    play << ("encode", 0, 0, E1)
    assert play.bodies["encode", 0, 0]["messages"][0]["content"] == [json.loads(content)]
    play >> play.encoded(0)
    play << ("prefill", 0, P1)
    sent = play.flow._job.document.with_changes({"max_tokens": b"1"})
    assert sent == body.encode().replace(b"{ ", b"{").replace(b'"x": ', b'"x":').replace(b', "mess', b',"mess').replace(
        b'"messages": ', b'"messages":'
    ).replace(b'"max_tokens" : 5 }', b'"max_tokens":1}')
    play >> play.client_gone()
    play << Cancel(Work.PREFILL, 0)
