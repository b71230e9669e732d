"""That an answer's usage says what the prefiller had cached, and nothing else of it changes."""

import json

import pytest

from tessera.core.flow.shapes import CHAT, SHAPES
from tessera.core.flow.usage import StreamUsage, cached_tokens, with_cached_tokens

MESSAGES, RESPONSES = SHAPES["/v1/messages"], SHAPES["/v1/responses"]


@pytest.mark.parametrize(
    ("shape", "answer", "count"),
    [
        (CHAT, {"usage": {"prompt_tokens_details": {"cached_tokens": 8}}}, 8),
        (CHAT, {"usage": {"prompt_tokens_details": {"cached_tokens": 0}}}, 0),
        (RESPONSES, {"usage": {"input_tokens_details": {"cached_tokens": 8}}}, 8),
        (MESSAGES, {"usage": {"cache_read_input_tokens": 8}}, 8),
        (CHAT, {"usage": {"prompt_tokens_details": None}}, None),
        (CHAT, {"usage": None}, None),
        (CHAT, {}, None),
        (CHAT, [], None),
        (CHAT, {"usage": {"prompt_tokens_details": {"cached_tokens": -1}}}, None),
        (CHAT, {"usage": {"prompt_tokens_details": {"cached_tokens": True}}}, None),
        (CHAT, {"usage": {"prompt_tokens_details": {"cached_tokens": "8"}}}, None),
    ],
)
def test_what_a_prefiller_says(shape, answer, count):
    assert cached_tokens(shape, json.dumps(answer).encode()) == count


@pytest.mark.parametrize(
    ("shape", "before", "after"),
    [
        (CHAT, '{"a": 1.0,"usage":{"p":9}}', '{"a":1.0,"usage":{"p":9,"prompt_tokens_details":{"cached_tokens":8}}}'),
        (
            CHAT,
            '{"usage":{"prompt_tokens_details":{"cached_tokens":1,"x":[1]}}}',
            '{"usage":{"prompt_tokens_details":{"cached_tokens":8,"x":[1]}}}',
        ),
        (CHAT, '{"usage": null}', '{"usage": null}'),
        (CHAT, '{"choices":["usage"]}', '{"choices":["usage"]}'),
        (CHAT, '"usage"', '"usage"'),
        (MESSAGES, '{"message":{"usage":{"x":1}}}', '{"message":{"usage":{"x":1,"cache_read_input_tokens":8}}}'),
        (
            RESPONSES,
            '{"response":{"usage":{"x":1}}}',
            '{"response":{"usage":{"x":1,"input_tokens_details":{"cached_tokens":8}}}}',
        ),
    ],
)
def test_what_the_client_is_told(shape, before, after):
    assert with_cached_tokens(shape, before.encode(), 8).decode() == after


def test_events_of_a_stream():
    rewrite = StreamUsage(CHAT, 8)
    plain = b'data: {"choices":[{"delta":{"content":"x"}}]}\r\n\r\n: comment "usage"\n\ndata: [DONE]\n\n'
    assert rewrite(plain) == plain
    assert rewrite(b'data: {"x":1,"usage":{"p":9}}\n\ndata: [DONE]\n\n') == (
        b'data: {"x":1,"usage":{"p":9,"prompt_tokens_details":{"cached_tokens":8}}}\n\ndata: [DONE]\n\n'
    )
    assert rewrite(b'data: {"x":1,"usage":null}\n\n') == b'data: {"x":1,"usage":null}\n\n'
