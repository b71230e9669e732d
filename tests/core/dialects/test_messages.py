"""What an Anthropic Messages body asks, block by block."""

import contextlib
import json

import pytest

from tessera.core.dialects.messages import MAX_NESTING, MessagesDialect
from tessera.core.draft import DraftChat, DraftMedia, DraftText, Undrafted
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
    assert parse({"messages": [], "cache_salt": "s"}).cache_salt == "s"


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


def test_what_tools_found_stands_in_front_of_what_the_user_says():
    other = {"type": "image", "source": {"type": "url", "url": "http://x/b.png"}}
    blocks = [
        {"type": "text", "text": "And now?"},
        PICTURE,
        {"type": "tool_result", "tool_use_id": "a", "content": [other]},
        {"type": "tool_result", "tool_use_id": "b", "content": "4 g"},
    ]
    later = [text("4 g"), text("And now?"), SEEN]
    assert parts_of(*blocks) == [text("", "user"), image(url="http://x/b.png"), *later]
    (parts,) = parse({"messages": [{"role": "assistant", "content": blocks}]}).prompts
    assert parts == [text("And now?", "assistant"), SEEN, image(url="http://x/b.png"), text("4 g")]


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


class TestChat:
    """What the prompt is rendered from, where somebody asks for it."""

    def test_all_of_it(self):
        body = {
            "system": "Be brief.",
            "messages": [{"role": "user", "content": "Hi"}],
            "tools": [{"name": "f", "input_schema": {"type": "object"}}],
            "chat_template_kwargs": {"a": 1},
            "output_config": {"effort": "xhigh"},
        }
        function = {"name": "f", "description": None, "strict": None, "defer_loading": None}
        assert parse(body).chat() == DraftChat(
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            tools=[{"type": "function", "function": function | {"parameters": {"type": "object"}}}],
            chat_template_kwargs={"a": 1},
            reasoning_effort="xhigh",
            merges_systems=True,
        )

    @pytest.mark.parametrize(
        ("fields", "effort", "is_disabled"),
        [
            ({}, None, False),
            ({"output_config": None, "thinking": None}, None, False),
            ({"output_config": {}}, None, False),
            ({"output_config": {"effort": None, "format": {"type": "json_schema"}}}, None, False),
            (
                {"thinking": {"type": "enabled", "budget_tokens": 1024}, "output_config": {"effort": "low"}},
                "low",
                False,
            ),
            ({"thinking": {"type": "adaptive"}}, None, False),
            ({"thinking": {"type": "disabled"}, "output_config": {"effort": "max"}}, "max", True),
        ],
    )
    def test_thinking(self, fields, effort, is_disabled):
        chat = parse({"messages": []} | fields).chat()
        assert (chat.reasoning_effort, chat.is_thinking_disabled) == (effort, is_disabled)

    @pytest.mark.parametrize(
        "fields",
        [{"output_config": each} for each in ({"effort": "none"}, {"effort": ["low"]}, "x", 7)]
        + [{"thinking": each} for each in ({}, {"type": "odd"}, {"type": ["disabled"]}, 7)],
    )
    def test_thinking_that_the_engine_refuses(self, fields):
        with pytest.raises(Undrafted) as caught:
            parse({"messages": []} | fields).chat()
        assert caught.value.word == "option"

    def test_a_strange_conversation_is_priced_though_it_makes_no_chat(self):
        draft = parse({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]})
        assert draft.prompts == [[text("", "user")]]
        with pytest.raises(Undrafted) as caught:
            draft.chat()
        assert caught.value.word == "message"

    def test_a_prompt_that_is_given_as_ids_is_not_rendered(self):
        assert parse({"messages": []}).unrendered is None
        assert parse({"messages": [], "kv_transfer_params": {"do_remote_decode": True}}).unrendered is None
        assert parse({"messages": [], "kv_transfer_params": {"prompt_token_ids": [1]}}).unrendered == "option"
