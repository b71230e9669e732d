"""That no body does harm, and that router and sidecar count a body's items alike."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.errors import RequestError
from tessera.core.flow.document import Document
from tessera.core.flow.legs import encode_leg, prefill_leg, why_not_prefill_apart
from tessera.core.flow.media_items import media_items
from tessera.core.flow.shapes import SHAPES
from tessera.core.parts import MediaItem
from tessera.core.reading import read_request
from tessera.core.types import ModelProfile

KEYS = (
    *("messages", "content", "type", "image_url", "url", "video_url", "input_audio", "data", "format", "uuid", "input"),
    *("image_embeds", "image_grid_thw", "source", "media_type", "tool_result", "output", "content_parts", "file", "n"),
    *("sampling_params", "prompt", "stream", "max_tokens", "multi_modal_uuids", "image", "file_id", "file_data"),
)
WORDS = (
    *(
        "image",
        "image_url",
        "input_image",
        "input_audio",
        "tool_result",
        "base64",
        "url",
        "document",
        "content",
        "file",
    ),
    *("data:image/png;base64,AAAA", "data:", "http://a", "user", "", "\u00e9", "message", "function_call_output"),
)
leaves = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=25,
)


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(KEYS), values, max_size=6), st.sampled_from(list(SHAPES.values())))
def test_whatever_is_in_a_body_legs_are_json_or_it_is_refused(body, shape):
    document = Document(json.dumps(body).encode())
    try:
        items = media_items(shape.name, document)
    except RequestError:
        return
    why_not_prefill_apart(document, shape)
    for item in items:
        if item.part is not None:
            leg = json.loads(encode_leg(document, shape, item))
            assert len(leg["messages"][0]["content"]) == 1
    short = json.loads(prefill_leg(document, shape, {}))
    kept = {name: value for name, value in body.items() if name not in short}
    assert kept.keys() <= {"min_tokens", "stream_options", "background"}


@given(st.binary(max_size=200))
def test_whatever_bytes_come(body):
    for shape in SHAPES.values():
        assert media_items(shape.name, Document(body)) == [] or Document(body).is_readable


PICTURES = (
    "http://a",
    "http://b",
    "data:image/png;base64,AAAA",
    "data:image/jpeg;base64,AAAA",
    "data:image/png;base64,BBBB",
)
urls = st.sampled_from(PICTURES)
uuids = st.sampled_from([None, None, "u", "v"])


def chat_part(url, uuid):
    return {"type": "image_url", "image_url": {"url": url}, **({"uuid": uuid} if uuid else {})}


def responses_part(url, uuid):
    return {"type": "input_image", "image_url": url, **({"uuid": uuid} if uuid else {})}


def messages_part(url, _):
    head, comma, data = url.partition(",")
    inline = {"type": "base64", "media_type": head[5:].partition(";")[0], "data": data}
    return {"type": "image", "source": inline if comma else {"type": "url", "url": url}}


@pytest.mark.parametrize(
    ("path", "field", "make"),
    [
        ("/v1/chat/completions", "messages", chat_part),
        ("/v1/responses", "input", responses_part),
        ("/v1/messages", "messages", messages_part),
    ],
)
@given(chosen=st.lists(st.tuples(urls, uuids), max_size=8))
def test_router_and_sidecar_count_items_alike(path, field, make, chosen):
    body = json.dumps({"model": "m", field: [{"role": "user", "content": [make(*each) for each in chosen]}]}).encode()
    request, _ = read_request(body, {":path": path}, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    names = [part.identifier for prompt in request.prompts for part in prompt if isinstance(part, MediaItem)]
    assert len(names) == len(chosen)
    assert len(media_items(SHAPES[path].name, Document(body))) == len(dict.fromkeys(names))
