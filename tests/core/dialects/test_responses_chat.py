"""The chat that the engine makes of a Responses request, item by item."""

import json

import msgspec
import pytest

from tessera.core.dialects.responses_chat import is_continued, messages_of, tools_of
from tessera.core.draft import Undrafted

DATA = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "input_image", "image_url": DATA}


def text(words, **fields):
    return {"type": "input_text", "text": words, **fields}


def said(*words, **fields):
    return {"type": "message", "role": "assistant", "content": [output(each) for each in words], **fields}


def output(words):
    return {"type": "output_text", "text": words, "annotations": []}


def call(name="f", **fields):
    return {"type": "function_call", "call_id": "c", "name": name, "arguments": '{"a": 1}', **fields}


def answer(content, **fields):
    return {"type": "function_call_output", "call_id": "c", "output": content, **fields}


def reasoning(*words, **fields):
    content = [{"type": "reasoning_text", "text": each} for each in words]
    return {"type": "reasoning", "summary": [], "content": content, **fields}


def made(*items, instructions=None):
    return messages_of(instructions, list(items))


def called(name="f", arguments='{"a": 1}'):
    return {"id": "c", "function": {"name": name, "arguments": arguments}, "type": "function"}


class TestMessages:
    def test_a_string_is_the_users(self):
        assert messages_of(None, "Hi") == [{"role": "user", "content": "Hi"}]
        assert messages_of(None, "") == [{"role": "user", "content": ""}]

    def test_instructions_stand_in_front(self):
        assert messages_of("Be brief.", "Hi") == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Hi"},
        ]
        assert messages_of("", "Hi") == messages_of(None, "Hi")

    @pytest.mark.parametrize("role", ["user", "system", "developer"])
    def test_a_message_is_one_with_all_that_it_has(self, role):
        message = {"type": "message", "role": role, "content": "Hi", "status": "completed", "name": "ada"}
        assert made(message) == [message]
        assert made({"role": role, "content": [text("a"), text("b", cache_control={})]}) == [
            {"role": role, "content": [text("a"), text("b", cache_control={})]}
        ]

    def test_a_pictures_detail_stands_in_front_and_is_auto(self):
        (message,) = made(
            {"role": "user", "content": [{**IMAGE, "more": 1, "file_id": None}, {**IMAGE, "detail": "low"}]}
        )
        assert json.dumps(message["content"]) == json.dumps(
            [
                {"detail": "auto", "file_id": None, "type": "input_image", "image_url": DATA, "more": 1},
                {"detail": "low", "type": "input_image", "image_url": DATA},
            ]
        )

    @pytest.mark.parametrize(
        "part",
        [
            7,
            "x",
            None,
            {},
            text(7),
            {"type": "input_text"},
            {"type": "text", "text": "a"},
            {"type": "input_file"},
            {"type": "image_url", "image_url": {"url": DATA}},
            {"type": "input_image", "image_url": {"url": DATA}},
        ],
    )
    def test_a_part_that_the_engine_refuses(self, part):
        for item in ({"role": "user", "content": [part]}, answer([part])):
            with pytest.raises(Undrafted):
                made(item)

    @pytest.mark.parametrize("content", [None, 7, {}])
    def test_content_that_is_none(self, content):
        for role in ("user", "assistant"):
            with pytest.raises(Undrafted):
                made({"role": role, "content": content})

    @pytest.mark.parametrize("role", ["tool", "critic", None, ["user"]])
    def test_a_role_that_the_engine_refuses(self, role):
        with pytest.raises(Undrafted):
            made({"role": role, "content": "Hi"})

    @pytest.mark.parametrize(
        "item",
        [7, "x", None, {}, {"type": None, "role": "user", "content": "x"}, {"type": ["message"]}]
        + [{"type": kind} for kind in ("item_reference", "web_search_call", "mcp_call", "computer_call_output")],
    )
    def test_an_item_that_is_not_followed(self, item):
        with pytest.raises(Undrafted):
            made(item)

    @pytest.mark.parametrize(("instructions", "given"), [(7, "x"), (None, None), (None, 7), (None, {"role": "user"})])
    def test_an_input_that_is_none(self, instructions, given):
        with pytest.raises(Undrafted):
            messages_of(instructions, given)


class TestAssistant:
    def test_the_first_part_counts(self):
        assert made(said("a", "b")) == [{"role": "assistant", "content": "a"}]
        assert made({"role": "assistant", "content": [text("a"), text("b")]}) == [{"role": "assistant", "content": "a"}]
        assert made({"role": "assistant", "content": ""}) == [{"role": "assistant", "content": ""}]

    @pytest.mark.parametrize(
        "content", [[], [IMAGE], [{"type": "refusal", "refusal": "No"}], [7], [{"type": "output_text"}]]
    )
    def test_what_has_no_text_first(self, content):
        with pytest.raises(Undrafted):
            made({"type": "message", "role": "assistant", "content": content})

    def test_reasoning_words_and_calls_become_one(self):
        assert made(reasoning("Hm"), said("Yes."), call(), call("g")) == [
            {"role": "assistant", "reasoning": "Hm", "content": "Yes.", "tool_calls": [called(), called("g")]}
        ]
        assert made(call(), said("Yes."), reasoning("Hm")) == [
            {"role": "assistant", "tool_calls": [called()], "content": "Yes.", "reasoning": "Hm"}
        ]

    def test_a_second_of_a_kind_begins_another(self):
        assert made(said("a"), said("b"), call(), reasoning(), reasoning("Hm")) == [
            {"role": "assistant", "content": "a"},
            {"role": "assistant", "content": "b", "tool_calls": [called()], "reasoning": ""},
            {"role": "assistant", "reasoning": "Hm"},
        ]

    def test_what_stands_between_parts_them(self):
        assert made(call(), answer("1"), call()) == [
            {"role": "assistant", "tool_calls": [called()]},
            {"role": "tool", "content": "1", "tool_call_id": "c"},
            {"role": "assistant", "tool_calls": [called()]},
        ]

    def test_the_body_is_left_as_it_is(self):
        items = [{"role": "assistant", "content": "a"}, call()]
        made(*items)
        assert items == [{"role": "assistant", "content": "a"}, call()]

    @pytest.mark.parametrize(
        "item",
        [
            call(None),
            call(arguments={"a": 1}),
            call(call_id=None),
            call(namespace="n"),
            {"type": "custom_tool_call", "call_id": "c", "name": "f"},
        ],
    )
    def test_a_call_that_is_none(self, item):
        with pytest.raises(Undrafted):
            made(item)


class TestReasoning:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"content": None}, ""),
            ({"summary": [{"type": "summary_text", "text": "In short"}], "content": []}, "In short"),
            ({"summary": [{"type": "summary_text", "text": "In short"}]}, "a"),
            ({"encrypted_content": ""}, "a"),
        ],
    )
    def test_the_first_words_count(self, fields, words):
        assert made(reasoning("a", "b") | fields) == [{"role": "assistant", "reasoning": words}]

    @pytest.mark.parametrize(
        "fields",
        [
            {"encrypted_content": "AAAA"},
            {"summary": None},
            {"summary": [{"type": "reasoning_text", "text": "a"}]},
            {"content": [{"type": "text", "text": "a"}]},
            {"content": [{"type": "reasoning_text", "text": 7}]},
            {"content": 7},
        ],
    )
    def test_what_the_engine_refuses(self, fields):
        with pytest.raises(Undrafted):
            made(reasoning("a") | fields)


class TestTools:
    @staticmethod
    def of(value):
        return tools_of(msgspec.Raw(json.dumps(value).encode()))

    def test_a_calls_result(self):
        picture = {**IMAGE, "detail": "high"}
        assert made(answer("1"), answer([text("a"), picture], call_id=None)) == [
            {"role": "tool", "content": "1", "tool_call_id": "c"},
            {"role": "tool", "content": [text("a"), picture], "tool_call_id": None},
        ]

    def test_a_results_picture_must_say_in_what_detail(self):
        with pytest.raises(Undrafted):
            made(answer([IMAGE]))

    def test_a_tool_of_free_text(self):
        items = [
            {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "abc"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
        ]
        assert made(*items) == [
            {"role": "assistant", "tool_calls": [called(arguments={"input": "abc"})]},
            {"role": "tool", "content": "1", "tool_call_id": "c"},
        ]

    def test_functions(self):
        function = {"type": "function", "name": "f", "description": "F.", "parameters": {"b": 1}, "strict": True}
        assert self.of([function | {"more": 1}]) == [
            {
                "type": "function",
                "function": {
                    "name": "f",
                    "description": "F.",
                    "parameters": {"b": 1},
                    "strict": True,
                    "defer_loading": None,
                },
            }
        ]

    @pytest.mark.parametrize("more", [{}, {"format": None}, {"format": {"type": "text"}}])
    def test_free_text_is_a_function_of_one_string(self, more):
        (tool,) = self.of([{"type": "custom", "name": "f", "description": "F.", **more}])
        assert json.dumps(tool["function"]) == json.dumps(
            {
                "name": "f",
                "description": "F.",
                "parameters": {
                    "type": "object",
                    "properties": {
                        "input": {"type": "string", "description": "The freeform text payload for this tool."}
                    },
                    "required": ["input"],
                    "additionalProperties": False,
                },
                "defer_loading": None,
            }
        )

    def test_none(self):
        assert tools_of(msgspec.Raw()) is None
        assert self.of([]) is None

    def test_the_servers_own_are_not_shown(self):
        assert self.of([{"type": "web_search"}]) == []
        (tool,) = self.of([{"type": "code_interpreter", "name": "c"}, {"type": "function", "name": "f"}])
        assert tool["function"]["name"] == "f"

    @pytest.mark.parametrize(
        "tools",
        [
            None,
            7,
            {},
            [7],
            [{}],
            [{"type": ["function"]}],
            [{"type": "namespace", "name": "n", "tools": []}],
            [{"type": "custom", "name": "f", "format": {"type": "grammar"}}],
            [{"type": "custom"}],
        ],
    )
    def test_what_is_not_followed(self, tools):
        with pytest.raises(Undrafted):
            self.of(tools)


class TestContinuing:
    @pytest.mark.parametrize("status", ["in_progress", "incomplete"])
    def test_a_last_message_that_is_not_ended(self, status):
        for item in (said("a"), {"role": "assistant", "content": "a"}, {"role": "user", "content": "a"}, reasoning()):
            assert is_continued([text("x"), item | {"status": status}])

    @pytest.mark.parametrize(
        "given",
        [
            "in_progress",
            None,
            [],
            [said("a")],
            [said("a", status="completed")],
            [said("a", status=["in_progress"])],
            [said("a", status="in_progress"), said("b")],
            [call(status="in_progress")],
            [answer("1", status="incomplete")],
            [7],
        ],
    )
    def test_any_other_end(self, given):
        assert not is_continued(given)
