"""The chat that the engine makes of an Anthropic conversation, block by block."""

import json

import msgspec
import pytest

from tessera.core.dialects.messages_chat import messages_of, tools_of
from tessera.core.draft import Undrafted

BILLING = "x-anthropic-billing-header: cc_version=1; cch=0a1b2;"
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
IMAGE = {"type": "image_url", "image_url": None}


def text(words, **fields):
    return {"type": "text", "text": words, **fields}


def user(*blocks):
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks):
    return {"role": "assistant", "content": list(blocks)}


def result(content=None, **fields):
    return {"type": "tool_result", "tool_use_id": "t", "content": content, **fields}


def use(**fields):
    return {"type": "tool_use", "id": "t", "name": "f", "input": {"b": 1, "a": [2]}, **fields}


def made(*messages, system=None):
    return messages_of(system, list(messages))


def call(name="f", arguments=None):
    return {"id": "t", "type": "function", "function": {"name": name, "arguments": arguments or {}}}


def tool(content):
    return {"role": "tool", "tool_call_id": "t", "content": content}


class TestContents:
    def test_a_string(self):
        messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": ""}]
        assert made(*messages) == messages

    def test_one_text_is_a_string_and_several_are_parts(self):
        assert made(user(text("Hi", cache_control={"type": "ephemeral"}))) == [{"role": "user", "content": "Hi"}]
        assert made(user(text("a"), text(""), text("b", citations=[]))) == [
            {"role": "user", "content": [text("a"), text("b")]}
        ]

    def test_pictures_stand_between_the_texts(self):
        assert made(user(text("a"), PICTURE, text("b"))) == [{"role": "user", "content": [text("a"), IMAGE, text("b")]}]
        assert made(user(PICTURE)) == [{"role": "user", "content": [IMAGE]}]
        assert made(assistant(PICTURE)) == [{"role": "assistant", "content": [IMAGE]}]

    @pytest.mark.parametrize("source", [{}, None])
    def test_a_picture_of_nothing_is_left_out(self, source):
        assert made(user({"type": "image", "source": source}, text("a"))) == [{"role": "user", "content": "a"}]

    @pytest.mark.parametrize(
        "content", [[], [text("")], [text(None)], [{"type": "thinking", "thinking": "Hm"}], [use()]]
    )
    def test_a_user_who_says_nothing_is_left_out(self, content):
        assert made({"role": "user", "content": content}, user(text("a"))) == [{"role": "user", "content": "a"}]

    @pytest.mark.parametrize("content", [[], [text("")], [{"type": "redacted_thinking", "data": "AAAA"}]])
    def test_an_assistant_who_says_nothing_is_there(self, content):
        assert made({"role": "assistant", "content": content}) == [{"role": "assistant"}]


class TestAssistant:
    def test_thinking_is_reasoning(self):
        thoughts = [{"type": "thinking", "thinking": each, "signature": "s"} for each in ("Hm. ", "Hm!")]
        assert made(assistant(*thoughts, text("Yes."))) == [
            {"role": "assistant", "reasoning": "Hm. Hm!", "content": "Yes."}
        ]
        assert made(assistant({"type": "thinking", "thinking": ""})) == [{"role": "assistant", "reasoning": ""}]
        assert made(assistant({"type": "thinking", "thinking": None})) == [{"role": "assistant"}]

    def test_uses_of_tools_are_calls(self):
        assert made(assistant(text("I look."), use(), use(name=None, input=None))) == [
            {
                "role": "assistant",
                "tool_calls": [call("f", {"b": 1, "a": [2]}), call("")],
                "content": "I look.",
            }
        ]

    @pytest.mark.parametrize("name", [None, ""])
    def test_a_call_without_an_id_gets_one_by_the_engines_clock(self, name):
        with pytest.raises(Undrafted):
            made(assistant(use(id=name)))

    def test_a_result_is_a_quotation(self):
        assert made(assistant(result("4 g"))) == [{"role": "assistant", "content": "Tool result: 4 g"}]
        assert made(assistant(text("a"), result([]))) == [
            {"role": "assistant", "content": [text("a"), text("Tool result: ")]}
        ]
        with pytest.raises(Undrafted):
            made(assistant(result([text("4 g")])))


class TestResults:
    def test_words_are_a_message_of_their_own(self):
        assert made(user(result("4 g"))) == [tool("4 g")]
        assert made(user(result([text("4 g"), text("heavy"), {"type": "text"}]))) == [tool("4 g\nheavy\n")]
        assert made(user(result(), result(""), result([]))) == [tool("")] * 3
        assert made(user(result("x", tool_use_id=None))) == [{"role": "tool", "tool_call_id": "", "content": "x"}]

    def test_pictures_are_one_message_of_the_user_more(self):
        assert made(user(result([text("a"), PICTURE, text("b"), PICTURE]))) == [
            tool("a\nb"),
            {"role": "user", "content": [IMAGE, IMAGE]},
        ]

    def test_results_stand_in_front_of_what_the_user_says(self):
        assert made(user(text("a"), PICTURE, result([PICTURE]), text("b"), result("x"))) == [
            tool(""),
            {"role": "user", "content": [IMAGE]},
            tool("x"),
            {"role": "user", "content": [text("a"), IMAGE, text("b")]},
        ]

    @pytest.mark.parametrize("url", ["", None])
    def test_a_picture_without_an_address_is_left_out(self, url):
        assert made(user(result([{"type": "image", "source": {"type": "url", "url": url}}]))) == [tool("")]

    @pytest.mark.parametrize("kind", ["document", "search_result", "hologram"])
    def test_what_no_chat_has_is_left_out(self, kind):
        assert made(user(result([{"type": kind, "content": [PICTURE]}, text("a")]))) == [tool("a")]

    @pytest.mark.parametrize(
        "inner",
        [
            7,
            None,
            "x",
            text(None),
            text(7),
            {"type": "image"},
            {"type": "image", "source": "x"},
            {"type": "tool_reference", "tool_name": "f"},
        ],
    )
    def test_what_is_not_followed(self, inner):
        with pytest.raises(Undrafted):
            made(user(result([inner])))


class TestSystem:
    def test_it_stands_in_front(self):
        hi = {"role": "user", "content": "Hi"}
        assert made(hi, system="Be brief.") == [{"role": "system", "content": "Be brief."}, hi]
        assert made(hi, system=[text("Be "), text("brief.", cache_control={}), PICTURE]) == [
            {"role": "system", "content": "Be brief."},
            hi,
        ]

    @pytest.mark.parametrize("system", [None, "", [], [text("")], [text(BILLING)], [PICTURE]])
    def test_without_words_there_is_none(self, system):
        assert made({"role": "user", "content": "Hi"}, system=system) == [{"role": "user", "content": "Hi"}]

    def test_what_changes_with_every_request_is_dropped_but_in_a_string_in_front(self):
        assert made(system=[text(f"{BILLING}\nBe"), text("brief.")]) == [{"role": "system", "content": "brief."}]
        assert made(system=f"{BILLING}\nBe brief.") == [{"role": "system", "content": f"{BILLING}\nBe brief."}]
        assert made({"role": "system", "content": f"{BILLING}\nBe brief."}) == []
        assert made(user(text(BILLING))) == [{"role": "user", "content": BILLING}]

    def test_later_ones_stay_where_they_are(self):
        later = {"role": "system", "content": [text("Be "), text(BILLING), text("kind.")]}
        assert made(user(text("a")), later, {"role": "system", "content": "Now."}, system="Be brief.") == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a"},
            {"role": "system", "content": "Be kind."},
            {"role": "system", "content": "Now."},
        ]


@pytest.mark.parametrize("messages", [None, "x", {}, [7], [None], [[]]])
def test_no_messages(messages):
    with pytest.raises(Undrafted):
        messages_of(None, messages)


@pytest.mark.parametrize("system", [7, 0, {}, {"type": "text"}, [7], [text(7)], [{"type": "hologram"}]])
def test_a_system_that_is_none(system):
    with pytest.raises(Undrafted):
        messages_of(system, [])


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
@pytest.mark.parametrize(
    "block",
    [
        7,
        "x",
        None,
        {},
        {"type": ["text"]},
        {"type": "document"},
        {"type": "tool_reference"},
        {"type": "tool_addition"},
        text(7),
        text("a", name=7),
        use(input=[]),
        use(id=7),
        result(7),
        {"type": "thinking", "thinking": 7},
    ],
)
def test_a_block_that_the_engine_refuses(role, block):
    with pytest.raises(Undrafted):
        made({"role": role, "content": [block]})


@pytest.mark.parametrize(
    "message",
    [{"role": role, "content": "a"} for role in ("tool", "developer", None, ["user"], 7)]
    + [{"role": "user", "content": content} for content in (None, 7, {})]
    + [{"role": "user"}],
)
def test_a_message_that_the_engine_refuses(message):
    with pytest.raises(Undrafted):
        made(message)


class TestTools:
    @staticmethod
    def of(value):
        return tools_of(msgspec.Raw(json.dumps(value).encode()))

    def test_in_a_chats_shape(self):
        tools = [
            {"name": "f", "description": "F.", "input_schema": {"properties": {}, "type": "object"}, "strict": True},
            {"name": "g", "input_schema": {"properties": {}}, "type": "custom", "cache_control": {}},
        ]
        first, second = (each["function"] for each in self.of(tools))
        assert first == {
            "name": "f",
            "description": "F.",
            "strict": True,
            "defer_loading": None,
            "parameters": {"properties": {}, "type": "object"},
        }
        # A schema without a type gets one behind its other keys.
        assert json.dumps(second["parameters"]) == '{"properties": {}, "type": "object"}'
        assert (second["name"], second["description"], second["strict"]) == ("g", None, None)

    def test_none_and_an_empty_list_are_two_things(self):
        assert tools_of(msgspec.Raw()) is None
        assert self.of(None) is None
        assert self.of([]) == []

    @pytest.mark.parametrize("tools", [7, {}, [7], [{"name": "web_search", "type": "web_search_20250305"}]])
    def test_what_the_engine_refuses(self, tools):
        with pytest.raises(Undrafted):
            self.of(tools)

    def test_what_cannot_be_read_again(self):
        with pytest.raises(Undrafted):
            tools_of(msgspec.Raw(b"[" * 100_000))
