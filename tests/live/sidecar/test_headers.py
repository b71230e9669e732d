"""Which headers go on, which stay here, and that there is one request id."""

import re

from multidict import CIMultiDict, CIMultiDictProxy

from tessera.live.sidecar.headers import MAX_REQUEST_ID_CHARS, backward, onward, to_encoder, to_prefiller


def headers(*pairs):
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_what_is_of_one_connection_or_for_us_stays_here():
    kept = onward(
        headers(
            ("Host", "x"),
            ("Connection", "keep-alive, X-Hop"),
            ("X-Hop", "1"),
            ("Keep-Alive", "5"),
            ("Transfer-Encoding", "chunked"),
            ("Upgrade", "h2c"),
            ("TE", "trailers"),
            ("Proxy-Authorization", "p"),
            ("Content-Length", "3"),
            ("Expect", "100-continue"),
            ("X-Prefiller-Host-Port", "a:1"),
            ("X-Encoder-Hosts-Ports", "a:1"),
            ("X-Tessera-Encode-Plan", "0=a:1"),
            ("X-KV-Cache-Source-Host-Port", "a:1"),
            ("X-Tessera-Stages", "decode=a:1,0,200,0"),
            ("X-Data-Parallel-Host-Port", "a:1"),
            ("Authorization", "Bearer t"),
            ("X-Twice", "1"),
            ("X-Twice", "2"),
            ("X-Request-Id", "r"),
        )
    )
    assert list(kept.items()) == [
        ("Authorization", "Bearer t"),
        ("X-Twice", "1"),
        ("X-Twice", "2"),
        ("x-request-id", "r"),
    ]


def test_a_length_is_kept_where_the_body_stays_as_it_is():
    assert onward(headers(("Content-Length", "3")), keeps_length=True)["content-length"] == "3"


def test_there_is_one_request_id_and_it_is_the_first_of_the_clients():
    assert onward(headers(("X-Request-Id", "a"), ("x-request-id", "b"))).getall("x-request-id") == ["a"]
    (made,) = onward(headers()).getall("x-request-id")
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", made)
    assert onward(headers(("x-request-id", "")))["x-request-id"] != ""
    assert len(onward(headers(("x-request-id", "a" * 999)))["x-request-id"]) == MAX_REQUEST_ID_CHARS


def test_an_encoder_is_told_who_asks_and_what_for():
    client = onward(
        headers(
            ("Authorization", "Bearer t"),
            ("Cookie", "c"),
            ("Content-Type", "text/odd"),
            ("traceparent", "00-1-2-01"),
            ("x-request-id", "r"),
        )
    )
    assert to_encoder(client, 7) == {
        "authorization": "Bearer t",
        "traceparent": "00-1-2-01",
        "content-type": "application/json",
        "x-request-id": "r-enc-7",
    }


def test_a_prefillers_answer_is_not_packed():
    client = onward(headers(("Accept-Encoding", "gzip"), ("Cookie", "c"), ("x-request-id", "r")))
    assert dict(to_prefiller(client)) == {"Cookie": "c", "x-request-id": "r"}
    assert client["accept-encoding"] == "gzip"


def test_a_rank_is_one_of_the_engine_that_decodes():
    client = onward(headers(("X-Data-Parallel-Rank", "3"), ("x-request-id", "r")))
    assert client["x-data-parallel-rank"] == "3"
    assert dict(to_prefiller(client)) == {"x-request-id": "r"}


def test_what_goes_back():
    engine = headers(
        ("Content-Length", "3"),
        ("Connection", "close"),
        ("X-Tessera-Stages", "forged"),
        ("Set-Cookie", "a"),
        ("Set-Cookie", "b"),
    )
    assert list(backward(engine, keeps_length=True).items()) == [
        ("Content-Length", "3"),
        ("Set-Cookie", "a"),
        ("Set-Cookie", "b"),
    ]
    assert "content-length" not in backward(engine, keeps_length=False)
