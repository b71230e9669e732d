"""In no API, and in no place of a body, do the bytes of media weigh as text."""

import json
from base64 import b64encode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.parts import MediaItem, TextPart, TokenPart
from tessera.core.plugin import Dialect, registered
from tessera.core.pricing.text import num_text_tokens
from tessera.core.router import Router
from tessera.core.types import ModelProfile

discover()

PDF, PICTURE = "data:application/pdf;base64,", "data:image/png;base64,"

OPENAI_PARTS = {
    "image_url": lambda data: {"type": "image_url", "image_url": {"url": PICTURE + data}},
    "image_url, plain": lambda data: {"image_url": PICTURE + data},
    "image_url, percent": lambda data: {"image_url": "data:image/png," + data.replace("+", "%2B")},
    "image_url, beside text": lambda data: {"type": "text", "text": "see", "image_url": PICTURE + data},
    "image_url, with uuid": lambda data: {"type": "image_url", "image_url": {"url": PICTURE + data}, "uuid": "u"},
    "input_image": lambda data: {"type": "input_image", "image_url": PICTURE + data},
    "video_url": lambda data: {"type": "video_url", "video_url": {"url": "data:video/mp4;base64," + data}},
    "audio_url": lambda data: {"type": "audio_url", "audio_url": {"url": "data:audio/wav;base64," + data}},
    "input_audio": lambda data: {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}},
    "image_embeds": lambda data: {"type": "image_embeds", "image_embeds": data},
    "image_embeds, named": lambda data: {"type": "image_embeds", "image_embeds": {"a": data, "b": "AA=="}},
    "audio_embeds": lambda data: {"type": "audio_embeds", "audio_embeds": data},
    "video_embeds": lambda data: {"type": "video_embeds", "video_embeds": data},
    "prompt_embeds": lambda data: {"type": "prompt_embeds", "data": data},
    "file": lambda data: {"type": "file", "file": {"filename": "a.pdf", "file_data": PDF + data}},
    "file, a picture": lambda data: {"type": "file", "file": {"file_data": PICTURE + data}},
    "input_file": lambda data: {"type": "input_file", "filename": "a.pdf", "file_data": PDF + data},
    "input_file, bare": lambda data: {"type": "input_file", "file_data": data},
    "unknown": lambda data: {"type": "brand_new", "brand_new": data, "data": data},
}
ANTHROPIC_BLOCKS = {
    "image": lambda data: {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}},
    "image, url": lambda data: {"type": "image", "source": {"type": "url", "url": PICTURE + data}},
    "tool_result": lambda data: {"type": "tool_result", "content": [ANTHROPIC_BLOCKS["image"](data)]},
    "document": lambda data: {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": data},
    },
    "document, pictures": lambda data: {
        "type": "document",
        "source": {"type": "content", "content": [ANTHROPIC_BLOCKS["image"](data)]},
    },
    "redacted_thinking": lambda data: {"type": "redacted_thinking", "data": data},
    "thinking": lambda data: {"type": "thinking", "thinking": "Hm.", "signature": data},
}
RESPONSES_ITEMS = {
    "function_call_output": lambda data: {
        "type": "function_call_output",
        "output": [{"type": "input_image", "image_url": PICTURE + data}],
    },
    "computer_call_output": lambda data: {
        "type": "computer_call_output",
        "output": {"type": "computer_screenshot", "image_url": PICTURE + data},
    },
    "image_generation_call": lambda data: {"type": "image_generation_call", "result": data},
    "reasoning": lambda data: {"type": "reasoning", "summary": [], "encrypted_content": data},
}


def json_body(**fields):
    return json.dumps({"model": "m"} | fields).encode()


def said(content):
    return [{"role": "user", "content": [content, {"type": "text", "text": "What is this?"}]}]


def generate(data):
    spans = {"mm_hashes": {"image": ["a"]}, "mm_placeholders": {"image": [{"offset": 1, "length": 3}]}}
    return json_body(token_ids=list(range(9)), features=spans | {"kwargs_data": {"image": [data]}})


def transcriptions(data):
    head = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'
    return head % b"prompt" + b"Ada\r\n" + head % b"file" + data.encode() + b"\r\n--b--"


BODIES = {
    "chat": {name: lambda data, p=part: json_body(messages=said(p(data))) for name, part in OPENAI_PARTS.items()},
    "responses": {name: lambda data, p=part: json_body(input=said(p(data))) for name, part in OPENAI_PARTS.items()}
    | {
        name: lambda data, i=item: json_body(input=[i(data), {"role": "user", "content": "And?"}])
        for name, item in RESPONSES_ITEMS.items()
    },
    "messages": {
        name: lambda data, b=block: json_body(messages=said(b(data)), system=[b(data)])
        for name, block in ANTHROPIC_BLOCKS.items()
    },
    "generate": {
        name: lambda data, p=part: json_body(token_ids=[1, 2], content_parts=[p(data)])
        for name, part in OPENAI_PARTS.items()
    }
    | {"features": generate},
    "transcriptions": {"file": transcriptions},
}
CASES = [(dialect, name) for dialect, bodies in BODIES.items() for name in bodies]


def weighed(dialect, name, content):
    """Text and ids of a request in tokens and digests, and how many bytes of media it carries."""
    body = BODIES[dialect][name](b64encode(content).decode())
    path = "/v1" + registered(Dialect)[dialect].paths[0]
    headers = {":path": path, "content-type": "multipart/form-data; boundary=b"}
    request, _ = Router.read(body, headers, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    assert request.dialect == dialect
    parts = [part for prompt in request.prompts for part in prompt]
    digests = [part.digests for part in parts if isinstance(part, TextPart | TokenPart)]
    return num_text_tokens(request), digests, len(parts), [part for part in parts if isinstance(part, MediaItem)]


def test_every_api_that_takes_media_is_here():
    assert BODIES.keys() == registered(Dialect).keys() - {"completions"}


@pytest.mark.parametrize(("dialect", "name"), CASES)
def test_a_large_picture_weighs_the_text_of_a_small_one(dialect, name):
    small, large = (weighed(dialect, name, b"x" * size) for size in (3, 300_000))
    assert small[:3] == large[:3]


@settings(max_examples=200, deadline=None)
@given(case=st.sampled_from(CASES), content=st.binary(min_size=1, max_size=4000), more=st.binary(max_size=4000))
def test_more_bytes_of_media_are_no_more_text(case, content, more):
    assert weighed(*case, content)[:3] == weighed(*case, content + more)[:3]


@pytest.mark.parametrize("name", [name for name in OPENAI_PARTS if "embeds" in name and name != "prompt_embeds"])
def test_tensors_are_items_without_a_size(name):
    items = [weighed("chat", name, content)[3][0] for content in (b"one", b"two", b"one")]
    assert [item.reason for item in items] == ["embeds"] * 3
    assert all(item.width is None and item.format is None for item in items)
    assert items[0].identifier == items[2].identifier != items[1].identifier
