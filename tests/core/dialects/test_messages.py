"""What an Anthropic Messages body asks, block by block."""

import contextlib
import json

import pytest

from tessera.core.dialects.messages import MAX_NESTING, MessagesDialect
from tessera.core.draft import DraftMedia, DraftText
from tessera.core.errors import RequestError
from tessera.core.parts import Modality
from tessera.core.reading import dialect_of
from tessera.core.types import ModelProfile

PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}


def parse(body):
    return MessagesDialect().parse(body if isinstance(body, bytes) else json.dumps(body).encode(), ModelProfile())


def parts_of(*blocks, **body):
    (parts,) = parse({"messages": [{"role": "user", "content": list(blocks)}]} | body).prompts
    return parts


def text(content, role=""):
    return DraftText(text=content, role=role)


def image(**fields):
    return DraftMedia(modality=Modality.IMAGE, **fields)


SEEN = image(base64="iVBORw0KGgo=", format="image/png")


def test_tools_then_system_then_the_messages_in_order():
    body = b"""{"system": "Be brief.", "tools": [{"name":  "f"}], "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "What is"},
            {"type": "image", "source": {"type": "url", "url": "http://x/a.png"}},
            {"type": "text", "text": "this?"}]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "AAAA"},
            {"type": "redacted_thinking", "data": "AAAA"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "t1", "name": "look", "input": {"at": 1}}]}]}"""
    (parts,) = parse(body).prompts
    assert parts == [
        text(b'[{"name":  "f"}]'),
        text("Be brief.", "system"),
        text("What is", "user"),
        image(url="http://x/a.png"),
        text("this?"),
        text("Hm.", "assistant"),
        text("I look."),
        text('t1look{"at": 1}'),
    ]


def test_fields_of_the_request():
    draft = parse({"model": "m", "max_tokens": 7, "stream": True, "messages": []})
    assert (draft.dialect, draft.model, draft.max_output_tokens, draft.stream) == ("messages", "m", 7, True)
    assert (draft.prompts, draft.num_choices, draft.guesses) == ([[]], 1, [])


def test_a_system_block_that_changes_with_every_request_is_dropped():
    billing = {"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=0a1b2;"}
    words = {"type": "text", "text": "Be brief."}
    assert parts_of(system=[billing, words]) == [text("Be brief.", "system"), text("", "user")]
    assert parts_of(system=[billing]) == [text("", "user")]
    assert parse({"messages": [{"role": "system", "content": [billing, words]}]}).prompts == [
        [text("Be brief.", "system")]
    ]
    assert parts_of(billing) == [text(billing["text"], "user")]


@pytest.mark.parametrize("system", [None, "", [], 3, {}, [None, 3, {}]])
def test_no_system_text_has_no_role(system):
    assert parts_of(system=system) == [text("", "user")]


@pytest.mark.parametrize("messages", [None, {}, "text", [None, 3, "text", []]])
def test_messages_that_are_none_make_an_empty_prompt(messages):
    assert parse({"messages": messages}).prompts == [[]]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (PICTURE["source"], SEEN),
        ({"media_type": "image/png", "data": "iVBORw0KGgo="}, SEEN),
        ({"type": "base64", "data": 3}, image()),
        ({"type": "url", "url": "data:image/png;base64,AAAA"}, image(url="data:image/png;base64,AAAA")),
        ({"type": "url", "url": None}, image()),
        ({"type": "file", "file_id": "file_1"}, image(url="file-id:file_1")),
        ({"type": "file"}, image()),
    ],
)
def test_pictures(source, expected):
    assert parts_of({"type": "image", "source": source}) == [text("", "user"), expected]


@pytest.mark.parametrize("source", [None, "AAAA", [], 3])
def test_a_picture_without_a_source_is_none(source):
    assert parts_of({"type": "image", "source": source}) == [text("", "user")]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a cat", [text("a cat", "user")]),
        ([{"type": "text", "text": "see"}, PICTURE], [text("see", "user"), SEEN]),
        ([PICTURE, PICTURE], [text("", "user"), SEEN, SEEN]),
        ([{"type": "tool_reference", "tool_name": "f"}], [text("", "user")]),
        ([{"type": "document", "source": {"type": "content", "content": [PICTURE]}}], [text("", "user"), SEEN]),
        (None, [text("", "user")]),
        ({"type": "text"}, [text("", "user")]),
    ],
)
def test_what_a_tool_found(content, expected):
    assert parts_of({"type": "tool_result", "tool_use_id": "t1", "content": content}) == expected


@pytest.mark.parametrize(
    ("source", "expected", "guesses"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "words"}, [text("words", "user")], []),
        ({"type": "content", "content": "words"}, [text("words", "user")], []),
        ({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}, None, ["part-unread:document"]),
        ({"type": "url", "url": "http://x/a.pdf"}, None, ["part-unread:document"]),
        ({"type": "file", "file_id": "f"}, None, ["part-unread:document"]),
        (None, None, ["part-unread:document"]),
    ],
)
def test_documents(source, expected, guesses):
    draft = parse({"messages": [{"role": "user", "content": [{"type": "document", "source": source}]}]})
    assert draft.prompts == [expected or [text("", "user")]]
    assert draft.guesses == guesses


def test_blocks_within_blocks_are_read_to_a_depth():
    def nested(depth):
        block = PICTURE
        for _ in range(depth - 1):
            block = {"type": "tool_result", "content": [block]}
        return parse({"messages": [{"content": [block]}]})

    assert nested(MAX_NESTING).prompts == [[SEEN]]
    draft = nested(MAX_NESTING + 1)
    assert (draft.prompts, draft.guesses) == ([[]], ["part-unread:nested"])


@pytest.mark.parametrize(
    "block",
    [{"type": "server_tool_use", "input": {}}, {"type": ["text"], "text": "x"}, {"text": "no type"}, None, 3, {}],
)
def test_unknown_blocks_are_passed_over(block):
    assert parts_of(block, {"type": "text", "text": "then"}) == [text("then", "user")]


@pytest.mark.parametrize("given", [None, {}, {"a": [1]}, "x"])
def test_the_input_of_a_call(given):
    written = "" if given is None else json.dumps(given)
    assert parts_of({"type": "tool_use", "name": "f", "input": given}) == [text("f" + written, "user")]


def test_an_input_that_could_just_be_read_is_priced_or_refused():
    for depth in range(600, 1001, 7):
        nested = b"[" * depth + b"]" * depth
        body = b'{"messages":[{"role":"a","content":[{"type":"tool_use","input":' + nested + b"}]}]}"
        with contextlib.suppress(RequestError):
            assert parse(body).prompts == [[text(nested.decode(), "a")]]


def test_counting_tokens_is_not_read():
    assert type(dialect_of("/v1/messages")) is MessagesDialect
    assert dialect_of("/v1/messages/count_tokens") is None
