"""That whole events are passed on whatever the pieces, and how a stream and an answer say that they failed."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.flow.event_stream import MAX_HELD_BYTES, EventStream
from tessera.core.flow.refusals import error_body, error_event
from tessera.core.flow.shapes import ErrorShape


@given(st.lists(st.sampled_from([b"data: 1\n\n", b"a\r\n\r\n", b"\n", b"x", b"data", b"\r\n"])), st.data())
def test_nothing_is_lost_and_only_whole_events_leave(pieces, data):
    text = b"".join(pieces)
    stream, given_out, start = EventStream(), b"", 0
    while start < len(text):
        size = data.draw(st.integers(1, 7))
        out = stream.feed(text[start : start + size])
        assert not out or out.endswith((b"\n\n", b"\n\r\n"))
        given_out += out
        start += size
    assert stream.is_at_start
    assert given_out + stream.rest() == text
    assert stream.rest() == b""


def test_an_endless_event_is_not_held():
    stream = EventStream()
    assert stream.feed(b"data: 1\n\n" + b"x" * MAX_HELD_BYTES) == b"data: 1\n\n"
    assert stream.feed(b"y") == b"x" * MAX_HELD_BYTES + b"y"
    assert not stream.is_at_start
    assert stream.feed(b"\n\ndata") == b"\n\n"
    assert stream.is_at_start


@pytest.mark.parametrize("shape", list(ErrorShape))
def test_each_api_has_its_errors(shape):
    body = json.loads(error_body(shape, 502, 'a "word"', "p"))
    if shape is ErrorShape.ANTHROPIC:
        assert body == {"type": "error", "error": {"type": "api_error", "message": 'a "word"'}}
    else:
        assert body == {"error": {"message": 'a "word"', "type": "BadGatewayError", "param": "p", "code": 502}}


def test_each_api_has_its_last_event():
    body = b'{"error":{"message":"m","type":"BadGatewayError","param":null,"code":502}}'
    assert error_event(ErrorShape.OPENAI, "m") == b"data: " + body + b"\n\ndata: [DONE]\n\n"
    assert error_event(ErrorShape.ANTHROPIC, "m") == (
        b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":"m"}}\n\n'
    )
    assert error_event(ErrorShape.RESPONSES, "m") == (
        b'event: error\ndata: {"type":"error","code":"server_error","message":"m","param":null}\n\n'
    )
