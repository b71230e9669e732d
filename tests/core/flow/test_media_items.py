"""Which items each API's body has, and what an encoder would be told of them."""

import json

import pytest

from tessera.core.errors import RequestError
from tessera.core.flow.document import MAX_REREAD_BYTES, Document
from tessera.core.flow.legs import MAX_FIELD_BYTES, encode_leg
from tessera.core.flow.media_items import MAX_ITEMS, media_items
from tessera.core.flow.shapes import SHAPES

DATA = "data:image/png;base64,iVBORw0KGgo="
PATHS = {shape.name: shape for shape in SHAPES.values()}


def parts(dialect, body):
    """Each item's part in its encode job; nothing where it has none."""
    document = Document(body if isinstance(body, bytes) else json.dumps(body).encode())
    legs = [
        json.loads(encode_leg(document, PATHS[dialect], item)) if item.part else None
        for item in media_items(dialect, document)
    ]
    return [leg and leg["messages"][0]["content"][0] for leg in legs]


def chat(*content, **more):
    return {"messages": [{"role": "user", "content": list(content)}]} | more


def url(text, kind="image_url", **more):
    return {"type": kind, kind: {"url": text}, **more}


def test_a_chats_media_of_every_kind_each_once():
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    content = [
        url("http://a"),
        sound,
        url("http://a"),
        url("http://a", "video_url"),
        url("http://b", "audio_url"),
        sound,
    ]
    assert parts("chat", chat(*content)) == [
        url("http://a"),
        sound,
        url("http://a", "video_url"),
        url("http://b", "audio_url"),
    ]


def test_names_tell_items_apart_and_bytes_do_where_there_are_none():
    other_head = DATA.replace("png", "jpeg")
    found = parts("chat", chat(url(DATA), url(other_head), url(DATA, uuid="u"), url("http://x", uuid="u"), url(DATA)))
    assert found == [url(DATA), url(DATA, uuid="u")]


def test_large_media_are_told_apart_by_their_bytes_too():
    first, second = (f"data:image/png;base64,{letter * (300 << 10)}" for letter in "AB")
    body = chat(url(first), url(second), url(first), url(second), url("http://c"))
    assert parts("chat", body) == [url(first), url(second), url("http://c")]


def test_names_beside_the_messages_go_with_their_item():
    body = chat(
        url("http://a"), url("http://b", uuid="own"), url("http://b"), multi_modal_uuids={"image": ["x", "y", "z"]}
    )
    document = Document(json.dumps(body).encode())
    items = media_items("chat", document)
    assert [item.uuid_beside for item in items] == ["x", None, "z"]
    leg = json.loads(encode_leg(document, PATHS["chat"], items[2]))
    assert leg["multi_modal_uuids"] == {"image": ["z"]}
    assert "multi_modal_uuids" not in json.loads(encode_leg(document, PATHS["chat"], items[1]))


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": None, "uuid": "u"},
        {"type": "image_embeds", "image_embeds": "AAAA"},
        {"type": "input_image", "file_id": "file-1"},
    ],
)
def test_an_item_without_content_has_its_place_and_no_job(part):
    assert parts("chat", chat(part, url("http://a"))) == [None, url("http://a")]


@pytest.mark.parametrize(
    "content",
    ["text", None, 3, {}, [None, 3, "x", [], {}], [{"type": "text", "text": "t"}], [{"type": "image_url"}]],
)
def test_what_is_no_media(content):
    assert parts("chat", {"messages": [{"role": "user", "content": content}, None, 3]}) == []


@pytest.mark.parametrize("body", [{"messages": "x"}, {"messages": {}}, {"input": 3}, {"x": 1}])
@pytest.mark.parametrize("dialect", list(PATHS))
def test_what_is_no_list(dialect, body):
    assert parts(dialect, body) == []


def test_responses():
    picture = {"type": "input_image", "image_url": DATA, "detail": "auto"}
    shown = {"type": "input_image", "image_url": "http://b"}
    body = {
        "model": "m",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "t"}, picture]},
            {"type": "function_call_output", "output": [shown]},
            {"type": "computer_call_output", "output": picture},
        ],
    }
    assert parts("responses", body) == [picture, shown]


def test_messages():
    def block(source):
        return {"type": "image", "source": source}

    inline = block({"type": "base64", "media_type": "image/png", "data": "AAAA"})
    content = [
        block({"type": "url", "url": "http://a"}),
        inline,
        block({"type": "file", "file_id": "f"}),
        {"type": "tool_result", "content": [block({"type": "url", "url": "http://t"})]},
        {"type": "document", "source": {"type": "content", "content": [block({"type": "url", "url": "http://d"})]}},
    ]
    built = [url("http://t"), url("http://a"), url("data:image/png;base64,AAAA"), None, url("http://d")]
    assert parts("messages", {"messages": [{"role": "user", "content": content}]}) == built


def test_blocks_within_blocks_have_an_end():
    inner = [{"type": "image", "source": {"type": "url", "url": "http://deep"}}]
    for _ in range(4):
        inner = [{"type": "tool_result", "content": inner}]
    assert parts("messages", {"messages": [{"role": "user", "content": inner}]}) == []
    assert parts("messages", {"messages": [{"role": "user", "content": inner[0]["content"]}]}) == [url("http://deep")]


def test_generate_and_what_its_job_is_told():
    body = {"model": "m", "token_ids": [1], "content_parts": [url(DATA)], "sampling_params": {"n": 2}, "priority": 1}
    document = Document(json.dumps(body).encode())
    (item,) = media_items("generate", document)
    assert json.loads(encode_leg(document, PATHS["generate"], item)) == {
        "model": "m",
        "priority": 1,
        "messages": [{"role": "user", "content": [url(DATA)]}],
        "max_tokens": 1,
        "stream": False,
    }


def test_more_items_than_are_read_are_refused():
    assert len(parts("chat", chat(*(url(f"http://{index}") for index in range(MAX_ITEMS))))) == MAX_ITEMS
    with pytest.raises(RequestError, match="more than 1024 media items"):
        parts("chat", chat(*[url("http://a")] * (MAX_ITEMS + 1)))


def test_a_large_body_of_many_values_is_refused_before_they_are_made():
    with pytest.raises(RequestError) as refused:
        Document(b'{"messages":[' + b"[]," * (600 << 10) + b"[]]}")
    assert refused.value.status == 413


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"messages": "\xff"}', b"null"])
def test_a_body_that_no_engine_reads_stays_as_it_came(body):
    document = Document(body)
    assert not document.is_readable
    assert document.with_changes({"ec_transfer_params": None}) is body


NOT_QUITE_JSON = (b"NaN", b"-Infinity", b"1e999", b"9" * 400 + b".5", rb'"cut \ud83d"')
"""What Python's json takes, and so vLLM, and JSON does not, or msgspec."""


@pytest.mark.parametrize("value", NOT_QUITE_JSON)
def test_what_only_engines_read_is_seen_too(value):
    body = b'{"temperature":1.50,"x":%s,"ec_transfer_params":{"h":{}}}' % value
    document = Document(body)
    assert document.is_readable
    assert document.with_changes({"kv_transfer_params": None}) is body, "nothing changes"
    twin = "cut ?" if value.startswith(b'"') else None
    assert json.loads(document.with_changes({"ec_transfer_params": None})) == {"temperature": 1.5, "x": twin}


@pytest.mark.parametrize("value", NOT_QUITE_JSON)
@pytest.mark.parametrize("place", ["body", "message", "part"])
def test_no_part_without_its_tensor_hides_behind_what_is_not_quite_json(value, place):
    beside = {name: b',"x":' + value if name == place else b"" for name in ("body", "message", "part")}
    part = b'{"type":"image_embeds","image_embeds":{"image_grid_thw":[1,44,80]},"uuid":"h"%s}' % beside["part"]
    message = b'{"role":"user","content":[%s]%s}' % (part, beside["message"])
    with pytest.raises(RequestError, match="image_embeds holds no tensor"):
        media_items("chat", Document(b'{"messages":[%s]%s}' % (message, beside["body"])))


BARE = b'{"type":"image_embeds","image_embeds":{"image_grid_thw":[1,44,80]},"uuid":"u"}'
BODY = b'{"messages":[{"role":"user","content":[%s]}]}'


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","\\ud800":1,"content":[%s]}]}' % BARE,
        b'{"messages":[{"role":"user","content":[%s]}],"\\udc00":1}' % BARE,
        BODY % BARE.replace(b'"u"', b'"\\ud800"'),
        BODY % BARE.replace(b'"u"', b'"\xed\xa0\x80"'),
        (BODY % BARE).decode().encode("utf-16"),
        (BODY % BARE).decode().encode("utf-8-sig"),
        BODY % BARE.replace(b"[1,44,80]", b'"AAAA"'),
        BODY % BARE.replace(b"]}", b'],"other":"AAAA"}'),
    ],
)
def test_what_would_end_the_engine_is_found_in_whatever_the_engine_can_read(body):
    assert json.loads(body), "the engine reads it"
    with pytest.raises(RequestError, match="holds no tensor"):
        media_items("chat", Document(body))


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        ("image_embeds", {"image_embeds": "AAAA", "image_grid_thw": "AAAA"}),
        ("video_embeds", {"video_embeds": "AAAA", "video_grid_thw": [1, 2, 2], "timestamps": [0.5]}),
        ("audio_embeds", {"input_audio_features": "AAAA", "audio_feature_lengths": [3]}),
    ],
)
def test_a_tensor_with_what_it_is_like_is_no_harm(kind, entries):
    assert parts("chat", chat({"type": kind, kind: entries})) == [None]


def test_a_body_nested_deeper_than_is_read_is_refused():
    # An engine with a higher limit would read what we have not seen.
    with pytest.raises(RequestError, match="nested too deeply"):
        Document(b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_much_text_that_is_not_quite_json_is_refused():
    body = b'{"x":NaN,"text":"' + b"y" * MAX_REREAD_BYTES + b'"}'
    with pytest.raises(RequestError, match=f"holds {len(body)} bytes, at most 4194304") as refused:
        Document(body)
    assert refused.value.status == 413


def test_a_large_field_is_not_sent_with_every_picture():
    body = chat(url("http://a"), url("http://b"), model="m", plain="x" * MAX_FIELD_BYTES, small="x" * 9)
    body["cut"] = f"data:{'y' * (600 << 10)}"
    document = Document(json.dumps(body).encode())
    for item in media_items("chat", document):
        assert json.loads(encode_leg(document, PATHS["chat"], item)).keys() == {
            *("messages", "model", "small", "max_tokens", "stream"),
        }
