"""The way from a path and a body to a request that holds no byte of it."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from tessera.core.dialects.chat import ChatDialect
from tessera.core.dialects.completions import CompletionsDialect
from tessera.core.errors import RequestError
from tessera.core.parts import MediaItem, Modality, TextPart, TokenPart
from tessera.core.reading import dialect_for, dialect_of
from tessera.core.router import Router
from tessera.core.types import ModelProfile, Objective

CHAT = {":method": "POST", ":path": "/v1/chat/completions"}
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


def read(body, headers=CHAT, **limits):
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    profile = ModelProfile(**limits)
    request, _ = Router.read(body, headers, profile, request_id="r1", at=1.5, wall_at=9.0)
    return request


def user(*content):
    return {"messages": [{"role": "user", "content": list(content)}]}


def picture(data=PNG):
    url = "data:image/png;base64," + base64.b64encode(data).decode()
    return {"type": "image_url", "image_url": {"url": url}}


def digest(data):
    return xxh3_64_intdigest(data).to_bytes(8, "little")


@pytest.mark.parametrize(
    ("path", "dialect"),
    [
        ("/v1/chat/completions", ChatDialect),
        ("/v1/completions", CompletionsDialect),
        ("/any/prefix/v1/chat/completions?key=/v1/completions", ChatDialect),
        ("/v1/chat/completions/", ChatDialect),
        ("/v1/completions?", CompletionsDialect),
        ("/v1/xcompletions", type(None)),
        ("/v1/chat/completions/render", type(None)),
        ("/v1/models", type(None)),
        ("", type(None)),
        ("?/v1/completions", type(None)),
    ],
)
def test_the_longest_suffix_of_the_path_names_the_dialect(path, dialect):
    assert type(dialect_of(path)) is dialect


@pytest.mark.parametrize(
    ("headers", "dialect"),
    [
        ({":path": "/v1/completions"}, CompletionsDialect),
        ({":path": "/v1/completions", ":method": "post"}, CompletionsDialect),
        ({":path": "/v1/completions", ":method": "GET"}, type(None)),
        ({":path": "/rewritten", "x-original-path": "/v1/completions"}, CompletionsDialect),
        ({":path": "/rewritten", "x-forwarded-path": "/v1/chat/completions"}, ChatDialect),
        ({":path": "/" + "x" * 1100 + "/v1/completions"}, type(None)),
        ({}, type(None)),
    ],
)
def test_other_methods_and_unknown_paths_are_routed_unread(headers, dialect):
    assert type(dialect_for(headers, ModelProfile())) is dialect


@pytest.mark.parametrize(("dialects", "dialect"), [(None, ChatDialect), (("chat",), ChatDialect), ((), type(None))])
def test_a_shape_that_no_parser_is_configured_for_is_routed_unread(dialects, dialect):
    profile = ModelProfile(dialects=None if dialects is None else frozenset(dialects))
    assert type(dialect_for(CHAT, profile)) is dialect


@pytest.mark.parametrize("headers", [{":path": "/v1/models", ":method": "GET"}, {":path": "/tokenize"}, {}])
def test_an_unread_request_may_hold_anything(headers):
    request = read(b"\xff not JSON", headers)
    assert (request.dialect, request.prompts, request.body_bytes) == ("opaque", (), 10)


def test_a_body_that_the_gateway_keeps_is_routed_unread():
    request = read(None)
    assert (request.dialect, request.prompts, request.body_bytes) == ("opaque", (), 0)


def test_a_model_that_is_an_adapter():
    body = user("Hi") | {"model": "sql"}
    assert [read(body, adapters=frozenset(names)).lora for names in ((), ("sql",), ("SQL", "sq"))] == [
        None,
        "sql",
        None,
    ]


def test_an_empty_body_is_no_chat_completion():
    with pytest.raises(RequestError) as caught:
        read(b"")
    assert caught.value.status == 400


def test_text_is_measured_with_its_role_and_cut_into_chunks():
    request = read({"model": "m", "messages": [{"role": "user", "content": "é" * 40}]})
    run = b"user" + "é".encode() * 40
    assert request.prompts == ((TextPart(num_bytes=84, digests=digest(run[:64]) + digest(run[64:])),),)
    assert (request.request_id, request.at, request.wall_at) == ("r1", 1.5, 9.0)


def test_tools_are_a_run_of_their_own():
    request = read(b'{"tools":[1], "messages":[{"role":"u","content":"a"}]}')
    assert request.prompts == (
        (TextPart(num_bytes=3, digests=digest(b"[1]")), TextPart(num_bytes=2, digests=digest(b"ua"))),
    )


def test_a_picture_is_known_by_its_content_and_size():
    request = read(user(picture(), {"type": "text", "text": "?"}))
    role, item, text = request.prompts[0]
    assert isinstance(item, MediaItem)
    assert (item.modality, item.format, item.width, item.height) == (Modality.IMAGE, "png", 1, 1)
    assert (item.num_bytes, item.has_content, item.reason) == (len(PNG), True, None)
    assert (role.num_bytes, text.num_bytes) == (4, 1)


def test_token_ids_are_counted_and_digested():
    request = read({"prompt": [[1, 2], [3] * 17]}, {":path": "/v1/completions"})
    raw = b"".join(number.to_bytes(8, "little") for number in (1, 2))
    (first,), (second,) = request.prompts
    assert first == TokenPart(num_tokens=2, digests=digest(raw))
    assert (second.num_tokens, len(second.digests)) == (17, 16)
    assert request.num_engine_requests == 2


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_a_lone_surrogate_in_text_is_measured(text):
    request = read({"model": text, "messages": [{"role": text, "content": text}]})
    assert request.prompts[0][0].num_bytes == 2 * len(text.encode("utf-8", "surrogatepass"))
    assert request.guesses == ("body-reread",)
    assert request.model == text.encode("utf-8", "replace").decode()


def test_media_items_are_bounded():
    body = user(*[{"type": "image_url", "image_url": "http://x"}] * 5)
    assert len(read(body, max_items=5).prompts[0]) == 6
    with pytest.raises(RequestError, match="carries 5 media items, at most 4") as caught:
        read(body, max_items=4)
    assert (caught.value.status, caught.value.code) == (400, "too_many_media_items")


def test_only_named_headers_are_kept_and_cut():
    headers = CHAT | {"authorization": "secret", "cookie": "x", "x-request-id": "c" * 2000, "x-llm-d-video-fps": "24"}
    assert read(user(), headers).headers == {"x-request-id": "c" * 1024, "x-llm-d-video-fps": "24"}


@pytest.mark.parametrize(
    ("headers", "objective"),
    [
        ({}, Objective()),
        (
            {
                "x-llm-d-inference-fairness-id": "a",
                "x-gateway-inference-fairness-id": "b",
                "x-llm-d-slo-ttft-ms": "250",
                "x-llm-d-slo-tpot-ms": "20.5",
                "x-slo-ttft-ms": "1",
            },
            Objective(fairness_id="a", ttft_slo_s=0.25, tpot_slo_s=0.0205),
        ),
        (
            {"x-gateway-inference-fairness-id": "b" * 2000, "x-slo-ttft-ms": "100", "x-slo-tpot-ms": "-1"},
            Objective(fairness_id="b" * 1024, ttft_slo_s=0.1),
        ),
        ({"x-llm-d-slo-ttft-ms": "1e12", "x-llm-d-slo-tpot-ms": "nan"}, Objective()),
    ],
)
def test_slos_and_the_fairness_id_in_both_spellings(headers, objective):
    assert read(user(), CHAT | headers).objective == objective


@given(data=st.binary(min_size=1, max_size=100))
def test_one_picture_has_one_identity_whatever_its_spelling(data):
    standard = base64.b64encode(data).decode()
    spellings = [
        standard,
        standard.rstrip("="),
        base64.urlsafe_b64encode(data).decode(),
        "\n".join(standard[at : at + 20] for at in range(0, len(standard), 20)),
    ]
    heads = ["data:image/png;base64,", "data:image/jpeg;base64,", "DATA:;charset=x;BASE64,"]
    items = [
        read(user({"type": "image_url", "image_url": {"url": head + spelling}})).prompts[0][1]
        for head in heads
        for spelling in spellings
    ]
    assert len({item.identifier for item in items}) == 1
    assert {item.num_bytes for item in items} == {len(data)}


def test_pictures_are_named_as_the_engine_that_is_known_names_them():
    def item(body=None, **known):
        (found,) = (part for part in read(body or user(picture()), **known).prompts[0] if isinstance(part, MediaItem))
        return found

    unknown, known = item(), item(engine_model="m")
    assert (len(unknown.identifier), unknown.is_identity_exact) == (32, False)
    assert (len(known.identifier), known.is_identity_exact) == (64, True)
    assert len(item(engine_model="m", mm_hasher_algorithm="sha512").identifier) == 128
    black = {"image": {"rgba_background_color": [0, 0, 0]}}
    told = item(engine_model="m", media_io_kwargs=black)
    asked = item(user(picture()) | {"media_io_kwargs": black}, engine_model="m")
    assert told.identifier == asked.identifier != known.identifier
    assert item(user(picture()) | {"mm_processor_kwargs": {"a": 1}}, engine_model="m").is_identity_exact
    unread = user(picture()) | {"mm_processor_kwargs": {"a": [[[[1]]]]}}
    assert item(unread, engine_model="m").identifier == unknown.identifier


def test_keys_of_links_that_are_ignored():
    def name(url, **known):
        return read(user({"type": "image_url", "image_url": {"url": url}}), **known).prompts[0][-1].identifier

    ignored = {"url_keys_ignored": frozenset({"sig"})}
    assert name("https://x/a?sig=1", **ignored) == name("https://x/a?sig=2", **ignored) == name("https://x/a")
    assert name("https://x/a?sig=1") != name("https://x/a?sig=2")


def test_without_a_plugin_that_compares_with_the_engine_items_are_named_at_half_the_cost():
    def item(**known):
        (found,) = (part for part in read(user(picture()), **known).prompts[0] if isinstance(part, MediaItem))
        return found

    known, ours = item(engine_model="m"), item(engine_model="m", names_as_engine=False)
    assert (len(known.identifier), known.is_identity_exact) == (64, True)
    assert (len(ours.identifier), ours.is_identity_exact) == (32, False)
    assert ours.identifier == item().identifier
