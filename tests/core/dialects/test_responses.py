"""What a Responses body asks, whatever its input is made of."""

import contextlib
import json

import pytest

from tessera.core.dialects.responses import ResponsesDialect
from tessera.core.draft import DraftChat, DraftMedia, DraftText, Undrafted
from tessera.core.errors import RequestError
from tessera.core.parts import Modality
from tessera.core.types import ModelProfile

DATA = "data:image/png;base64,iVBORw0KGgo="


def parse(body):
    return ResponsesDialect().parse(body if isinstance(body, bytes) else json.dumps(body).encode(), ModelProfile())


def parts_of(*items, **body):
    (parts,) = parse({"input": list(items)} | body).prompts
    return parts


def text(content, role=""):
    return DraftText(text=content, role=role)


def image(**fields):
    return DraftMedia(modality=Modality.IMAGE, **fields)


def user(*content):
    return {"role": "user", "content": list(content)}


def test_tools_then_instructions_then_the_items_in_order():
    body = b"""{"instructions": "Be brief.", "tools": [{"type":  "function"}], "input": [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "What is"},
            {"type": "input_image", "detail": "auto", "image_url": "http://x/a.png"},
            {"type": "input_text", "text": "this?"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "A cat."}]},
        {"role": "user", "content": "Sure?"}]}"""
    (parts,) = parse(body).prompts
    assert parts == [
        text(b'[{"type":  "function"}]'),
        text("Be brief.", "system"),
        text("What is", "user"),
        image(url="http://x/a.png"),
        text("this?"),
        text("A cat.", "assistant"),
        text("Sure?", "user"),
    ]


def test_a_string_is_what_the_user_says():
    assert parse({"input": "Hello"}).prompts == [[text("Hello", "user")]]


@pytest.mark.parametrize("wrong", [None, 3, True, {}, {"role": "user"}, [], [None, "text", 3, []]])
def test_an_input_that_is_none_makes_an_empty_prompt(wrong):
    assert parse({"input": wrong, "instructions": wrong}).prompts == [[]]


def test_fields_of_the_request():
    names = {"model": "org/vlm", "cache_salt": "s", "max_output_tokens": 7, "stream": True}
    draft = parse({"input": "x"} | names | {"mm_processor_kwargs": {"a": 1}, "media_io_kwargs": {"image": {"b": 2}}})
    assert (draft.dialect, draft.model, draft.stream, draft.max_output_tokens) == ("responses", "org/vlm", True, 7)
    assert (draft.cache_salt, draft.num_choices, draft.guesses) == ("s", 1, [])
    assert (draft.mm_processor_kwargs, draft.media_io_kwargs) == ({"a": 1}, {"image": {"b": 2}})


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "input_image", "image_url": DATA}, image(url=DATA)),
        ({"type": "input_image", "file_id": "file-1"}, image(url="file-id:file-1")),
        ({"type": "input_image", "image_url": {"url": DATA}}, image(url=DATA)),
        ({"type": "input_file", "filename": "a.png", "file_data": DATA}, image(url=DATA)),
        (
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            DraftMedia(modality=Modality.AUDIO, base64="UklG", format="wav"),
        ),
    ],
)
def test_media(part, expected):
    assert parts_of(user(part)) == [text("", "user"), expected]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERi0="},
        {"type": "input_file", "file_url": "http://x/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
    ],
)
def test_a_document_is_neither_text_nor_a_picture(part):
    draft = parse({"input": [user(part)]})
    assert (draft.prompts, draft.guesses) == ([[text("", "user")]], ["part-unread:input_file"])


def test_calls_reasoning_and_words_of_one_turn_are_one_message():
    assert parts_of(
        {"type": "reasoning", "summary": [{"text": "short"}], "content": [{"type": "reasoning_text", "text": "long"}]},
        {"role": "assistant", "content": "I look."},
        {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "a cat"},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}], "encrypted_content": "AAAA"},
    ) == [
        text("long", "assistant"),
        text("I look."),
        text("look"),
        text('{"at": 1}'),
        text("a cat", "tool"),
        text("short", "assistant"),
    ]


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "custom_tool_call", "name": "f", "input": "now"}, [text("f", "assistant"), text("now")]),
        ({"type": "function_call", "name": "f", "arguments": {"a": 1}}, [text("f", "assistant"), text('{"a": 1}')]),
        ({"type": "mcp_call", "name": "f", "output": "done"}, [text("f", "assistant"), text("done")]),
        (
            {"type": "function_call_output", "output": [{"type": "input_text", "text": "see"}, {"image_url": DATA}]},
            [text("see", "tool"), image(url=DATA)],
        ),
        (
            {"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": DATA}},
            [text("", "tool"), image(url=DATA)],
        ),
        ({"type": "function_call_output", "output": 3}, [text("", "tool")]),
        ({"type": "reasoning", "encrypted_content": "AAAA"}, [text("", "assistant")]),
    ],
)
def test_items_that_are_no_message(item, expected):
    assert parts_of(item) == expected


@pytest.mark.parametrize("kind", ["item_reference", "image_generation_call", "brand_new"])
def test_items_of_other_types_are_marked(kind):
    draft = parse({"input": [{"type": kind, "id": "x", "result": "AAAA", "text": "no"}] * 3})
    assert (draft.prompts, draft.guesses) == ([[]], ["part-unread:item"])


@pytest.mark.parametrize("field", ["previous_response_id", "conversation"])
def test_what_the_server_keeps_is_marked(field):
    assert parse({"input": "x", field: "resp_1"}).guesses == ["conversation-unread"]


def test_arguments_that_could_just_be_read_are_priced_or_refused():
    for depth in range(600, 1001, 7):
        nested = b"[" * depth + b"]" * depth
        with contextlib.suppress(RequestError):
            (parts,) = parse(b'{"input":[{"type":"function_call","arguments":' + nested + b"}]}").prompts
            assert parts == [text(nested.decode(), "assistant")]


class TestChat:
    """What the prompt is rendered from, where somebody asks for it."""

    def test_all_of_it(self):
        body = {
            "instructions": "Be brief.",
            "input": "Hi",
            "tools": [{"type": "function", "name": "f"}],
            "chat_template_kwargs": {"a": 1},
            "reasoning": {"effort": "minimal", "summary": "auto"},
        }
        draft = parse(body)
        assert draft.adds_special_tokens
        function = dict.fromkeys(("name", "description", "parameters", "strict", "defer_loading")) | {"name": "f"}
        assert draft.chat() == DraftChat(
            messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
            tools=[{"type": "function", "function": function}],
            chat_template_kwargs={"a": 1},
            add_generation_prompt=True,
            continue_final_message=False,
            reasoning_effort="minimal",
            has_ordered_calls=False,
        )

    def test_a_message_that_is_not_ended_is_continued(self):
        chat = parse({"input": [{"role": "assistant", "content": "It ", "status": "in_progress"}]}).chat()
        assert (chat.add_generation_prompt, chat.continue_final_message) == (False, True)

    @pytest.mark.parametrize("reasoning", [None, {}, {"effort": None}])
    def test_no_effort(self, reasoning):
        assert parse({"input": "x", "reasoning": reasoning}).chat().reasoning_effort is None

    @pytest.mark.parametrize("reasoning", [{"effort": "odd"}, {"effort": ["low"]}, "low-ish", 7])
    def test_an_effort_that_the_engine_refuses(self, reasoning):
        with pytest.raises(Undrafted) as caught:
            parse({"input": "x", "reasoning": reasoning}).chat()
        assert caught.value.word == "option"

    @pytest.mark.parametrize(
        ("fields", "unrendered"),
        [
            ({}, None),
            ({"truncation": "disabled", "kv_transfer_params": {"a": 1}, "previous_response_id": None}, None),
            ({"truncation": "auto"}, "option"),
            ({"truncation": None}, "option"),
            ({"previous_response_id": "resp_1"}, "option"),
            ({"conversation": "c"}, "option"),
            ({"previous_input_messages": []}, "option"),
            ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "option"),
        ],
    )
    def test_what_the_items_do_not_say(self, fields, unrendered):
        assert parse({"input": "x"} | fields).unrendered == unrendered
