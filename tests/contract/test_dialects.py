"""What every dialect holds to, whatever bytes it is given."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.draft import Draft
from tessera.core.errors import RequestError
from tessera.core.plugin import Dialect, registered
from tessera.core.reading import dialect_of
from tessera.core.router import Router
from tessera.core.types import ModelProfile

discover()

DIALECTS = {cls.type: cls for cls in registered(Dialect).values()}
every_dialect = pytest.mark.parametrize("type_name", DIALECTS)
PATHS = [f"/v1{path}" for cls in DIALECTS.values() for path in cls.paths]

KEYS = st.sampled_from(
    [
        "messages",
        "prompt",
        "model",
        "tools",
        "stream",
        "n",
        "max_tokens",
        "max_completion_tokens",
        "cache_salt",
        "session_id",
        "role",
        "content",
        "type",
        "text",
        "image_url",
        "url",
        "uuid",
        "video_url",
        "audio_url",
        "input_audio",
        "data",
        "format",
        "tool_calls",
        "function",
        "name",
        "arguments",
        "mm_processor_kwargs",
        "input",
        "system",
        "source",
        "output",
        "summary",
        "image_embeds",
        "file",
        "file_data",
        "media_io_kwargs",
        "multi_modal_uuids",
        "image",
        "token_ids",
        "features",
        "mm_hashes",
        "mm_placeholders",
        "offset",
        "length",
        "content_parts",
        "sampling_params",
    ]
) | st.text(max_size=3)
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["data:image/png;base64,iVBORw0KGgo=", "data:,%ff", "http://x/y", "\ud800"])
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=30
)
TYPES = st.sampled_from(
    [
        *[
            "text",
            "input_text",
            "image_url",
            "input_image",
            "video_url",
            "input_audio",
            "image_embeds",
            "prompt_embeds",
        ],
        *["file", "input_file", "image", "document", "tool_use", "tool_result", "thinking", "base64", "url", "content"],
        *["message", "reasoning", "function_call", "function_call_output", "computer_call_output", "item_reference"],
    ]
)
PARTS = st.recursive(
    st.tuples(TYPES, st.dictionaries(KEYS, VALUES, max_size=4)).map(lambda drawn: {"type": drawn[0]} | drawn[1]),
    lambda inner: (
        st.tuples(TYPES, st.sampled_from(["content", "source", "output", "file", "summary"]), inner).map(
            lambda drawn: {"type": drawn[0], drawn[1]: drawn[2]} | {"role": drawn[0]}
        )
        | st.lists(inner, max_size=3)
    ),
    max_leaves=5,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": LEAVES, "content": st.lists(PARTS, max_size=3) | VALUES}) | PARTS, max_size=3
)
SPANS = st.dictionaries(
    st.sampled_from(["image", "video", "audio", "x"]),
    st.lists(st.fixed_dictionaries({"offset": st.integers(), "length": st.integers()}) | VALUES, max_size=4) | VALUES,
)
HASHES = st.dictionaries(st.sampled_from(["image", "video", "audio", "x"]), st.lists(LEAVES, max_size=4) | VALUES)
SKELETONS = {
    "chat": st.fixed_dictionaries({"messages": MESSAGES, "multi_modal_uuids": HASHES, "media_io_kwargs": VALUES}),
    "completions": st.fixed_dictionaries({"prompt": VALUES | st.lists(st.integers() | LEAVES)}),
    "responses": st.fixed_dictionaries({"input": MESSAGES, "instructions": LEAVES, "mm_processor_kwargs": VALUES}),
    "messages": st.fixed_dictionaries({"messages": MESSAGES, "system": st.lists(PARTS, max_size=3) | LEAVES}),
    "generate": st.fixed_dictionaries(
        {
            "token_ids": st.lists(st.integers(0, 9)) | VALUES,
            "features": st.fixed_dictionaries({"mm_hashes": HASHES, "mm_placeholders": SPANS}) | VALUES,
            "content_parts": st.lists(PARTS, max_size=3) | VALUES,
            "sampling_params": VALUES,
        }
    ),
}
"""Bodies of the right shape, in which anything may stand."""
FORM_PIECES = st.sampled_from(
    [
        *[b"--b", b"\r\n--b", b"\r\n", b"\r\n\r\n", b"--", b"--b--"],
        *[b'Content-Disposition: form-data; name="%s"' % name for name in (b"file", b"model", b"stream", b"prompt")],
    ]
)
FORMS = st.lists(FORM_PIECES | st.binary(max_size=9), max_size=30).map(lambda pieces: b"--b\r\n" + b"".join(pieces))
FORM = {"content-type": "multipart/form-data; boundary=b"}
BODIES = (
    st.binary(max_size=200)
    | VALUES.map(lambda value: json.dumps(value).encode())
    | st.dictionaries(KEYS, VALUES).map(lambda value: json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    | st.tuples(VALUES, st.sampled_from(["utf-16", "utf-8-sig", "utf-32"])).map(
        lambda drawn: json.dumps(drawn[0]).encode(drawn[1])
    )
)


def parsed(type_name, body):
    """The Draft, or the RequestError; whatever else is raised fails the test."""
    try:
        return DIALECTS[type_name]().parse(body, ModelProfile(), FORM)
    except RequestError as error:
        return error


@every_dialect
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_only_a_request_error_leaves(type_name, data):
    shaped = SKELETONS[type_name].map(lambda value: json.dumps(value).encode()) if type_name in SKELETONS else FORMS
    draft = parsed(type_name, data.draw(BODIES | shaped))
    if isinstance(draft, RequestError):
        assert 400 <= draft.status < 500
        assert draft.message
        return
    assert isinstance(draft, Draft)
    assert draft.dialect == type_name
    assert draft.num_choices >= 1
    draft.model.encode()


@given(
    body=BODIES | FORMS | st.one_of(*SKELETONS.values()).map(lambda value: json.dumps(value).encode()),
    path=st.sampled_from(PATHS) | st.text(max_size=30),
    method=st.sampled_from(["POST", "GET", "", "post"]),
)
def test_reading_anything_anywhere_raises_only_a_request_error(body, path, method):
    headers = {":path": path, ":method": method} | FORM
    with contextlib.suppress(RequestError):
        request, _ = Router.read(body, headers, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
        assert request.body_bytes == len(body)


@every_dialect
@pytest.mark.parametrize("opener", [b"[", b'{"a":', b'{"messages":[', b'{"tools":[', b'{"prompt":[', b'{"input":['])
@pytest.mark.parametrize("depth", [100_000, 990, 500])
def test_deep_nesting_is_read_or_refused(type_name, opener, depth):
    closers = opener.replace(b"{", b"}").replace(b"[", b"]")
    closer = bytes(byte for byte in reversed(closers) if byte in b"}]")
    inner = b"1"
    for body in (opener * depth, opener * depth + inner + closer * depth):
        draft = parsed(type_name, body)
        assert isinstance(draft, Draft) or draft.status == 400


@every_dialect
def test_its_paths_lead_to_it(type_name):
    for path in DIALECTS[type_name].paths:
        assert type(dialect_of(f"/v1{path}?x=/other")) is DIALECTS[type_name]
        assert type(dialect_of(f"/prefix/v1{path}/")) is DIALECTS[type_name]
