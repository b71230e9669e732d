"""What a chat completion asks, also where it is strange."""

import contextlib
import json

import pytest

from tessera.core.dialects.chat import ChatDialect
from tessera.core.draft import DraftChat, DraftMedia, DraftText, Undrafted
from tessera.core.errors import RequestError
from tessera.core.parts import Modality
from tessera.core.types import ModelProfile

DATA = "data:image/png;base64,iVBORw0KGgo="


def parse(body):
    return ChatDialect().parse(body if isinstance(body, bytes) else json.dumps(body).encode(), ModelProfile())


def parts_of(*messages, **body):
    (parts,) = parse({"messages": list(messages)} | body).prompts
    return parts


def user(content, **fields):
    return {"role": "user", "content": content} | fields


def text(content, role=""):
    return DraftText(text=content, role=role)


def image(**fields):
    return DraftMedia(modality=Modality.IMAGE, **fields)


def test_parts_stand_in_prompt_order_with_the_raw_tools_first():
    body = b"""{"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "What is"},
            {"type": "image_url", "image_url": {"url": "http://x/a.png", "detail": "low"}},
            {"type": "text", "text": "this?"}]},
        {"role": "assistant", "content": "A cat."}],
        "tools": [{"type":  "function", "function": {"name": "f"}}]}"""
    (parts,) = parse(body).prompts
    assert parts == [
        text(b'[{"type":  "function", "function": {"name": "f"}}]'),
        text("Be brief.", "system"),
        text("What is", "user"),
        image(url="http://x/a.png"),
        text("this?"),
        text("A cat.", "assistant"),
    ]


def audio(**fields):
    return DraftMedia(modality=Modality.AUDIO, **fields)


def video(**fields):
    return DraftMedia(modality=Modality.VIDEO, **fields)


def test_the_role_stands_before_a_leading_picture():
    content = [{"type": "image_url", "image_url": {"url": DATA}}, {"type": "text", "text": "this?"}]
    assert parts_of(user(content)) == [text("", "user"), image(url=DATA), text("this?")]
    assert parts_of(user(content[:1])) == [text("", "user"), image(url=DATA)]


def test_fields_of_the_request():
    numbers = {"max_tokens": 5, "max_completion_tokens": 7, "n": 3}
    names = {"model": "org/vlm", "cache_salt": "s", "session_id": "t"}
    draft = parse({"messages": [], "stream": True, "mm_processor_kwargs": {"min_pixels": 4}} | numbers | names)
    assert (draft.dialect, draft.model, draft.stream, draft.max_output_tokens) == ("chat", "org/vlm", True, 7)
    assert (draft.num_choices, draft.cache_salt, draft.session_id) == (3, "s", "t")
    assert (draft.mm_processor_kwargs, draft.guesses) == ({"min_pixels": 4}, [])
    assert parse({"messages": [], "max_tokens": 5}).max_output_tokens == 5
    assert [parse({"n": n}).num_choices for n in (1024, 1025)] == [1024, 1]


@pytest.mark.parametrize("wrong", [None, 0, -1, 1.5, True, "3", [3], {}, 1 << 40])
def test_fields_of_unexpected_type_are_as_good_as_absent(wrong):
    draft = parse(dict.fromkeys(["max_tokens", "max_completion_tokens", "n", "model", "cache_salt", "stream"], wrong))
    assert (draft.max_output_tokens, draft.num_choices) == (None, 1)
    assert draft.stream is (wrong is True)
    assert draft.model == (wrong if isinstance(wrong, str) else "")


@pytest.mark.parametrize("messages", [None, {}, "text", 3, [None, 3, "text", [], True]])
def test_messages_that_are_none_make_an_empty_prompt(messages):
    assert parse({"messages": messages}).prompts == [[]]
    assert parse(b"{}").prompts == [[]]


@pytest.mark.parametrize("content", [None, 3, {"text": "x"}, [], True])
def test_content_that_is_none_leaves_the_role(content):
    assert parts_of(user(content)) == [text("", "user")]
    assert parts_of({"role": "assistant"}) == [text("", "assistant")]


@pytest.mark.parametrize("role", [None, 3, ["user"]])
def test_a_role_that_is_none_is_empty(role):
    assert parts_of({"role": role, "content": "hi"}) == [text("hi")]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_embeds"},
        {"type": ["image_url"]},
        {"type": "brand_new", "stuff": [1, 2]},
        {"type": "text"},
        {"type": "text", "text": 3},
        {},
        None,
        3,
        ["text"],
    ],
)
def test_unknown_parts_are_passed_over(part):
    assert parts_of(user([part, {"type": "text", "text": "then"}])) == [text("then", "user")]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"text": "no type"}, "no type"),
        ("a plain string", "a plain string"),
        ({"type": "refusal", "refusal": "I will not"}, "I will not"),
        ({"type": "thinking", "thinking": "Hm."}, "Hm."),
        ({"type": "tool_reference", "name": "search"}, "search"),
        ({"type": "text", "text": "words", "image_url": DATA}, "words"),
    ],
)
def test_other_places_of_text(part, expected):
    assert parts_of(user([part])) == [text(expected, "user")]


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "image_url", "image_url": "http://x/a.png"}, image(url="http://x/a.png")),
        ({"image_url": {"url": DATA}}, image(url=DATA)),
        ({"type": "image_url", "image_url": {"url": DATA}, "uuid": "u1"}, image(url=DATA, uuid="u1")),
        ({"type": "image_url", "image_url": None, "uuid": "u1"}, image(uuid="u1")),
        ({"type": "image_url", "image_url": {}, "uuid": "u1"}, image(uuid="u1")),
        ({"type": "image_url", "image_url": {"url": 3}, "uuid": 4}, image(has_other_uuid=True)),
        ({"type": "image_url", "image_url": {"url": DATA}, "uuid": ""}, image(url=DATA, has_other_uuid=True)),
        (
            {"type": "image_url", "image_url": {"url": DATA}, "uuid": "\ud800"},
            image(url=DATA, uuid="?", has_other_uuid=True),
        ),
        (
            {"type": "video_url", "video_url": {"url": "http://x/v.mp4"}},
            DraftMedia(modality=Modality.VIDEO, url="http://x/v.mp4"),
        ),
        (
            {"type": "audio_url", "audio_url": {"url": "http://x/a.wav"}},
            DraftMedia(modality=Modality.AUDIO, url="http://x/a.wav"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
            DraftMedia(modality=Modality.AUDIO, base64="UklG", format="wav"),
        ),
        ({"type": "input_audio", "input_audio": "UklG"}, DraftMedia(modality=Modality.AUDIO)),
        ({"type": "image_url", "uuid": "u1"}, image(uuid="u1")),
        ({"type": "text", "image_url": DATA, "uuid": "u1"}, image(url=DATA, uuid="u1")),
        ({"type": "video_url", "video_url": "http://x/v", "image_url": DATA}, video(url="http://x/v")),
        ({"video_url": "http://x/v", "image_url": DATA}, image(url=DATA)),
        ({"type": "audio_url", "audio_url": "data:audio/wav;base64,UklG"}, audio(url="data:audio/wav;base64,UklG")),
        ({"type": "input_audio", "input_audio": None, "uuid": "u1"}, audio(uuid="u1")),
        ({"type": "input_image", "image_url": DATA}, image(url=DATA)),
        ({"type": "input_image", "image_url": DATA, "uuid": "u1"}, image(url=DATA, uuid="u1")),
        ({"type": "input_image", "file_id": "f1"}, image(url="file-id:f1")),
        ({"type": "input_image"}, image()),
        ({"type": "image_embeds", "image_embeds": "AAAA"}, image(base64="AAAA", is_embeds=True)),
        (
            {"type": "image_embeds", "image_embeds": {"b": "BB==", "a": "AA=="}},
            image(base64="AA==BB==", is_embeds=True),
        ),
        ({"type": "image_embeds", "image_embeds": None, "uuid": "u1"}, image(uuid="u1", is_embeds=True)),
        ({"type": "image_embeds", "image_embeds": [3], "uuid": "u1"}, image(uuid="u1", is_embeds=True)),
        ({"type": "audio_embeds", "audio_embeds": "AAAA"}, audio(base64="AAAA", is_embeds=True)),
        (
            {"type": "video_embeds", "video_embeds": "AAAA", "uuid": "u1"},
            video(base64="AAAA", uuid="u1", is_embeds=True),
        ),
        ({"type": "file", "file": {"file_data": DATA}}, image(url=DATA)),
    ],
)
def test_media_parts(part, expected):
    assert parts_of(user([part])) == [text("", "user"), expected]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        ({"type": "prompt_embeds", "data": "AAAA"}, "prompt_embeds"),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds"),
        ({"type": "file", "file": {"file_id": "x"}}, "file"),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}, "file"),
        ({"type": "file", "file": "AAAA"}, "file"),
        ({"type": "input_file", "file_data": "AAAA"}, "input_file"),
    ],
)
def test_what_is_neither_text_nor_media_weighs_nothing_and_is_marked(part, kind):
    draft = parse({"messages": [user([part, part, {"type": "text", "text": "then"}])]})
    assert draft.prompts == [[text("then", "user")]]
    assert draft.guesses == [f"part-unread:{kind}"]


def test_uuids_of_the_body_name_what_has_none_of_its_own():
    parts = [
        {"type": "image_url", "image_url": "http://x/0"},
        {"type": "audio_url", "audio_url": "http://x/1"},
        {"type": "image_url", "image_url": None, "uuid": "own"},
        {"type": "image_url", "image_url": "http://x/2"},
        {"type": "image_url", "image_url": None},
        {"type": "image_url", "image_url": "http://x/4"},
        {"type": "video_url", "video_url": "http://x/5"},
    ]
    uuids = {"image": ["id0", "id1", None, "id3"], "audio": "no list", "video": [7], "other": ["x"]}
    found = parts_of(user(parts), multi_modal_uuids=uuids)
    assert [part.uuid for part in found if isinstance(part, DraftMedia)] == [
        "id0",
        None,
        "own",
        None,
        "id3",
        None,
        None,
    ]


@pytest.mark.parametrize("uuid", [5, 0, True, 1.5, [], {}, "", "u" * 1025, "a\ud800"])
def test_a_uuid_that_is_not_kept_as_it_stands(uuid):
    for part in ({"image_url": DATA}, {"type": "input_image", "image_url": DATA}):
        assert parts_of(user([part | {"uuid": uuid}]))[1].has_other_uuid
        for kept in (None, "u", "u" * 1024):
            assert not parts_of(user([part | {"uuid": kept}]))[1].has_other_uuid


@pytest.mark.parametrize("uuids", [None, [], "id0", 3, {}, {"image": {}}])
def test_uuids_that_are_none(uuids):
    assert parts_of(user([{"image_url": DATA}]), multi_modal_uuids=uuids)[1] == image(url=DATA)


def test_a_slash_may_be_escaped_in_a_data_uri():
    part = b'{"type":"image_url","image_url":{"url":"data:image\\/png;base64,\\/+A="}}'
    assert parse(b'{"messages":[{"role":"user","content":[' + part + b"]}]}").prompts[0][1] == image(
        url="data:image/png;base64,/+A="
    )


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([{"function": {"name": "f", "arguments": '{"a": 1}'}}], 'f{"a": 1}'),
        ([{"function": {"name": "f", "arguments": {"a": 1}}}], 'f{"a": 1}'),
        ([{"function": {"name": "f"}}, {"function": {"name": "g", "arguments": "{}"}}], "fg{}"),
        ([{"function": {"name": 3, "arguments": None}}, {"function": 3}, None, 3], ""),
        ("calls", ""),
        (None, ""),
    ],
)
def test_tool_calls_belong_to_their_message(calls, expected):
    assert parts_of({"role": "assistant", "content": "Look: ", "tool_calls": calls}) == [
        text("Look: " + expected, "assistant")
    ]
    assert parts_of({"role": "assistant", "content": None, "tool_calls": calls}) == [text(expected, "assistant")]


def test_tool_calls_stand_behind_the_parts_of_their_message():
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": "Look."}],
        "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}],
    }
    assert parts_of(message) == [text("Look.", "assistant"), text("f{}")]


@pytest.mark.parametrize(
    ("tools", "expected"),
    [(b"null", []), (b"[]", [text(b"[]")]), (b'[{"type":"function"}]', [text(b'[{"type":"function"}]')])],
)
def test_tools_without_parameters_or_tools(tools, expected):
    assert parse(b'{"messages":[],"tools":' + tools + b"}").prompts == [expected]


def test_strange_values_are_read_a_second_time_and_marked():
    draft = parse(b'{"messages":[{"role":"user","content":"\\ud800"}],"temperature":NaN,"tools":[{"x":NaN}]}')
    assert draft.prompts == [[text(b'[{"x": NaN}]'), text("\ud800", "user")]]
    assert draft.guesses == ["body-reread"]


def test_settings_that_are_too_large_are_left_out_and_marked():
    io = {"video": {"num_frames": 8}, "image": {"rgba_background_color": [0, 0, 0]}, "x": "x" * 9000}
    processor = {"a": 1, "b": "x" * 9000, "c": [[[1]]]}
    draft = parse({"messages": [], "mm_processor_kwargs": processor, "media_io_kwargs": io})
    assert draft.mm_processor_kwargs == {"a": 1}
    assert draft.media_io_kwargs == {"video": {"num_frames": 8}, "image": {"rgba_background_color": [0, 0, 0]}}
    assert draft.guesses == ["kwargs-unread:3"]


def test_arguments_that_could_just_be_read_are_priced_or_refused():
    for depth in range(600, 1001):
        arguments = b"[" * depth + b"]" * depth
        body = b'{"messages":[{"role":"a","tool_calls":[{"function":{"arguments":' + arguments + b"}}]}]}"
        with contextlib.suppress(RequestError):
            assert parse(body).prompts == [[text(arguments.decode(), "a")]]


class TestChat:
    """What the prompt is rendered from, where somebody asks for it."""

    def test_all_of_it(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        fields = {
            "documents": [{"text": "d"}],
            "chat_template": "t",
            "chat_template_kwargs": {"a": 1},
            "add_generation_prompt": False,
            "continue_final_message": True,
            "reasoning_effort": "low",
        }
        draft = parse({"messages": [user("Hi")], "tools": tools} | fields)
        assert draft.chat() == DraftChat(messages=[user("Hi")], tools=tools, **fields)
        assert not draft.adds_special_tokens

    @pytest.mark.parametrize("tools", [{}, {"tools": None}])
    def test_no_tools(self, tools):
        assert parse({"messages": []} | tools).chat().tools is None

    @pytest.mark.parametrize("tools", [[], {}, 7, "f"])
    def test_tools_that_the_engine_refuses(self, tools):
        with pytest.raises(Undrafted):
            parse({"messages": [], "tools": tools}).chat()

    @pytest.mark.parametrize("name", ["prompt_token_ids", "prompt\\u005ftoken_ids"])
    def test_a_prompt_that_is_given_as_ids_is_not_rendered(self, name):
        assert parse(f'{{"messages": [], "kv_transfer_params": {{"{name}": [1]}}}}'.encode()).unrendered == "option"
