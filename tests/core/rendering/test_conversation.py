"""Messages as vLLM hands them to a template; the shapes that are not followed are refused, not guessed."""

import json

import pytest

from tessera.core.parts import Modality
from tessera.core.rendering.conversation import conversation, tool_definitions
from tessera.core.rendering.unrendered import Reason, Unrendered

IMAGE = {"type": "image_url", "image_url": {"url": "data:,x"}}
PLACEHOLDERS = {Modality.IMAGE: "<I>", Modality.AUDIO: "<A>"}


def made(*messages, wraps_parts=True, knows_developer=False, **given):
    return conversation(
        messages, wraps_parts=wraps_parts, placeholders=PLACEHOLDERS, knows_developer=knows_developer, **given
    )


def parts(*given, role="user"):
    (message,) = made({"role": role, "content": list(given)})
    return message["content"]


def text(words):
    return {"type": "text", "text": words}


def test_every_content_is_a_list_of_parts():
    assert made({"role": "user", "content": "Hi"}, {"role": "assistant", "content": None}, {"role": "x"}) == [
        {"role": "user", "content": [text("Hi")]},
        {"role": "assistant", "content": []},
        {"role": "x", "content": []},
    ]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ("Hi", text("Hi")),
        (text("Hi"), text("Hi")),
        ({"type": "refusal", "refusal": "No"}, text("No")),
        ({"type": "thinking", "thinking": "Hm"}, text("Hm")),
        ({"type": "input_text", "text": "in"}, text("in")),
        ({"type": "text", "text": "a", "cache_control": {"x": 1}}, text("a") | {"cache_control": {"x": 1}}),
        (IMAGE, {"type": "image"}),
        ({"image_url": "data:,x"}, {"type": "image"}),
        ({"type": "image_url", "image_url": None, "uuid": "u"}, {"type": "image"}),
        ({"type": "text", "audio_url": None, "uuid": "u"}, {"type": "audio"}),
        ({"type": "input_image", "image_url": "data:,x", "detail": "low"}, {"type": "image", "detail": "low"}),
        (
            {"type": "text", "text": "a", "name": "n", "file_id": "f", "prompt_embeds": 1, "tool_reference": 2},
            text("a") | {"file_id": "f", "prompt_embeds": 1, "tool_reference": 2},
        ),
        ({"type": "video_url", "video_url": {"url": "x"}, "max_pixels": 9}, {"type": "video", "max_pixels": 9}),
        ({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}, {"type": "audio"}),
    ],
)
def test_a_part(part, expected):
    assert parts(part) == [expected]


def test_a_text_of_nothing_is_left_out():
    assert parts({"type": "text", "text": None}, text("b"), {"type": "refusal"}) == [text("b")]


@pytest.mark.parametrize(
    "part",
    [
        7,
        {},
        {"type": "hologram"},
        {"text": "without a type"},
        {"type": "text", "text": 7},
        {"type": "thinking", "thinking": None},
        {"type": "text", "text": "a", "uuid": "u"},
        {"type": "prompt_embeds", "data": "x"},
        {"type": "tool_reference", "name": "t"},
        {"type": "image_pil", "image_pil": None},
        {"type": [], "text": "a"},
        {"type": {}, "text": "a"},
    ],
)
def test_a_part_that_is_not_followed(part):
    with pytest.raises(Unrendered) as caught:
        parts(part)
    assert caught.value.reason is Reason.MESSAGE


@pytest.mark.parametrize("message", [7, {}, {"role": 1, "content": ""}, {"role": "user", "content": 7}])
def test_a_message_that_is_none(message):
    with pytest.raises(Unrendered):
        made(message)


def test_no_messages():
    with pytest.raises(Unrendered):
        made()


def test_only_what_a_template_may_see_is_kept():
    message = {"role": "user", "content": "Hi", "name": "Ada", "refusal": "x", "tool_calls": [], "reasoning": "r"}
    assert made(message | {"task": 1}) == [{"role": "user", "content": [text("Hi")], "name": "Ada"}]


class TestAssistant:
    def test_arguments_become_objects(self):
        given = ['{"b": 1, "a": 2}', {"x": 1}, "", None, "[1]", "{broken", "[" * 100_000]
        calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": each}} for each in given]
        (message,) = made({"role": "assistant", "content": None, "tool_calls": calls})
        found = [call["function"]["arguments"] for call in message["tool_calls"]]
        assert found == [{"b": 1, "a": 2}, {"x": 1}, {}, {}, {}, {}, {}]
        assert list(found[0]) == ["b", "a"]

    def test_a_calls_fields_stand_in_the_engines_order(self):
        function = {"z": 1, "name": "f", "a": 2, "arguments": "{}"}
        call = {"index": 0, "type": "function", "function": function, "id": "c"}
        (message,) = made({"role": "assistant", "tool_calls": [call]})
        assert json.dumps(message["tool_calls"][0]) == (
            '{"id": "c", "function": {"arguments": {}, "name": "f", "z": 1, "a": 2}, "type": "function", "index": 0}'
        )
        assert call["function"]["arguments"] == "{}"

    def test_or_in_their_own(self):
        call = {"type": "function", "id": "c", "function": {"name": "f", "arguments": "{}"}}
        (message,) = made({"role": "assistant", "tool_calls": [call]}, orders_calls=False)
        assert json.dumps(message["tool_calls"][0]) == (
            '{"type": "function", "id": "c", "function": {"name": "f", "arguments": {}}}'
        )

    def test_no_calls_are_none(self):
        assert made({"role": "assistant", "content": "a", "tool_calls": []}) == [
            {"role": "assistant", "content": [text("a")]}
        ]

    @pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
    def test_reasoning_has_two_names(self, key):
        (message,) = made({"role": "assistant", "content": "a", key: "Hm"})
        assert (message["reasoning"], message["reasoning_content"]) == ("Hm", "Hm")

    @pytest.mark.parametrize("calls", [7, [7], [{"function": None}], [{"type": "custom", "function": {}}]])
    def test_calls_that_are_none(self, calls):
        with pytest.raises(Unrendered):
            made({"role": "assistant", "tool_calls": calls})


class TestTool:
    def test_texts_become_one_string(self):
        assert made({"role": "tool", "content": [text("a"), text("b")], "tool_call_id": "c"}) == [
            {"role": "tool", "content": "a\nb", "tool_call_id": "c"}
        ]
        assert made({"role": "tool", "content": "a"}) == [{"role": "tool", "content": "a"}]
        assert made({"role": "tool"}) == [{"role": "tool", "content": ""}]

    def test_media_stay_parts(self):
        assert made({"role": "tool", "content": [text("a"), IMAGE]}) == [
            {"role": "tool", "content": [text("a"), {"type": "image"}]}
        ]


class TestSystem:
    billing = "x-anthropic-billing-header: 1"

    def test_what_changes_with_every_request_is_dropped(self):
        assert parts(text(self.billing), text(f"{self.billing}\nBe brief."), self.billing, role="system") == [
            text("Be brief.")
        ]
        assert parts(text(self.billing), role="user") == [text(self.billing)]

    def test_a_developer_becomes_the_system(self):
        assert made({"role": "developer", "content": "a"}, {"role": "user", "content": "b"}) == [
            {"role": "system", "content": [text("a")]},
            {"role": "user", "content": [text("b")]},
        ]

    def test_several_systems_become_one_in_front(self):
        messages = [
            {"role": "system", "content": [text("a"), text("b")]},
            {"role": "user", "content": "u"},
            {"role": "developer", "content": "c", "tools": []},
            {"role": "system", "content": ""},
        ]
        assert made(*messages) == [
            {"role": "system", "content": "a\nb\n\nc"},
            {"role": "user", "content": [text("u")]},
        ]

    def test_systems_without_a_developer_stay(self):
        assert [each["role"] for each in made(*[{"role": "system", "content": "a"}] * 2)] == ["system"] * 2

    def test_a_template_that_knows_the_developer_keeps_it(self):
        assert made({"role": "developer", "content": "a"}, knows_developer=True) == [
            {"role": "developer", "content": [text("a")], "tools": None}
        ]


class TestStrings:
    def string(self, *given):
        (message,) = made({"role": "user", "content": list(given)}, wraps_parts=False)
        return message["content"]

    def test_texts_are_lines(self):
        assert self.string(text("a"), "b") == "a\nb"

    def test_an_empty_text_is_no_line(self):
        assert self.string("", text("a"), text(""), " ", text("")) == "a\n "
        assert self.string(text(""), IMAGE, text("")) == "<I>"
        assert self.string(text("")) == ""
        assert parts("", text("")) == [text(""), text("")]

    def test_placeholders_stand_in_front(self):
        audio = {"type": "audio_url", "audio_url": {"url": "x"}}
        assert self.string(text("a"), IMAGE, audio, IMAGE) == "<I>\n<I>\n<A>\na"
        assert self.string(IMAGE) == "<I>"

    def test_a_placeholder_that_the_client_wrote_stands_where_it_is(self):
        assert self.string(text("see <I>!"), IMAGE, IMAGE) == "<I>\nsee <I>!"
        assert self.string(text("see <I>!"), IMAGE) == "see <I>!"

    @pytest.mark.parametrize(
        ("given", "reason"),
        [
            ((text("<I><I>"), IMAGE), Reason.PLACEHOLDERS),
            (({"type": "video_url", "video_url": {"url": "x"}},), Reason.ITEM_LAYOUT),
        ],
    )
    def test_what_the_engine_would_refuse(self, given, reason):
        with pytest.raises(Unrendered) as caught:
            self.string(*given)
        assert caught.value.reason is reason


class TestTools:
    def test_fields_stand_in_the_engines_order(self):
        function = {"strict": True, "parameters": {"b": 1, "a": 2}, "name": "f", "more": 1}
        tools = [{"more": 2, "function": function}, {"type": "function", "function": {"name": "g"}}]
        assert json.dumps(tool_definitions(tools)) == json.dumps(
            [
                {
                    "type": "function",
                    "function": {"name": "f", "description": None, "parameters": {"b": 1, "a": 2}, "strict": True},
                },
                {"type": "function", "function": {"name": "g", "description": None, "parameters": None}},
            ]
        )

    def test_none_and_an_empty_list_are_two_things(self):
        assert tool_definitions(None) is None
        assert tool_definitions([]) == []

    @pytest.mark.parametrize(
        "tool",
        [7, {"type": "custom"}, {"function": {"name": 1}}]
        + [
            {"function": {"name": "f", **each}}
            for each in ({"description": 1}, {"parameters": []}, {"strict": "true"}, {"strict": 1}, {"strict": []})
        ],
    )
    def test_what_is_refused(self, tool):
        with pytest.raises(Unrendered) as caught:
            tool_definitions([tool])
        assert caught.value.reason is Reason.MESSAGE

    def test_deferred_tools_are_not_followed(self):
        for tool in (
            {"function": {"name": "f"}, "defer_loading": True},
            {"function": {"name": "f", "defer_loading": False}},
        ):
            with pytest.raises(Unrendered) as caught:
                tool_definitions([tool])
            assert caught.value.reason is Reason.OPTION
