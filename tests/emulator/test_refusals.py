"""Are refusals the recorded ones of vLLM 0.32, word for word?"""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tessera.emulator import Emulator

Picture = Callable[..., str]
Case = Callable[[Picture], Any]


def chat(*urls: str | None, text: str = "What is this?", **rest: Any) -> dict[str, Any]:
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    messages = [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]
    return {"model": "tiny-qwen3-vl", "messages": messages, **rest}


def one_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"model": "tiny-qwen3-vl", "messages": [{"role": "user", "content": [part, {"type": "text", "text": "x"}]}]}


NOT_AN_IMAGE = "data:image/png;base64," + base64.b64encode(b"hello world, not a png").decode()

RECORDED: dict[str, Case] = {
    "unknown-model": lambda _: {**chat(), "model": "no-such-model"},
    "bad-base64": lambda _: chat("data:image/png;base64,@@@not-base64@@@"),
    "not-an-image": lambda _: chat(NOT_AN_IMAGE),
    "image-url-bad-scheme": lambda _: chat("ftp://127.0.0.1/x.png"),
    "image-file-url": lambda _: chat("file:///etc/hostname"),
    "too-long-prompt": lambda _: chat(text="word " * 9000),
    "too-long-images": lambda picture: chat(*[picture(2048, 2048)] * 3),
    "max-tokens-too-large": lambda _: chat(max_tokens=100_000),
    "max-tokens-negative": lambda _: chat(max_tokens=-1),
    "too-many-images": lambda picture: chat(*[picture(64, 64)] * 9),
    "video-not-allowed": lambda _: one_part({"type": "video_url", "video_url": {"url": "http://127.0.0.1:9/x.mp4"}}),
    "no-messages": lambda _: {"model": "tiny-qwen3-vl"},
    "empty-messages": lambda _: {"model": "tiny-qwen3-vl", "messages": []},
    "temperature-string": lambda _: chat(temperature="hot"),
    "uuid-unknown": lambda _: one_part({"type": "image_url", "image_url": None, "uuid": "never-seen"}),
    "invalid-json": lambda _: "{not json",
    "stream-bad-base64": lambda _: chat("data:image/png;base64,@@@", stream=True),
}


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_refusal(
    name: str, emulator: Emulator, http: aiohttp.ClientSession, samples: Path, picture: Picture
) -> None:
    recorded = json.loads((samples / "errors.json").read_text())[name]
    asked = RECORDED[name](picture)
    body = asked if isinstance(asked, str) else json.dumps(asked)
    async with http.post("/v1/chat/completions", data=body, headers={"content-type": "application/json"}) as answer:
        assert answer.status == recorded["status"]
        assert answer.content_type == recorded["content_type"]
        assert await answer.json() == recorded["body"]
    [record] = emulator.records
    assert (record.status, record.ending) == (recorded["status"], "refused")
    assert emulator.facts().num_running == 0


async def test_routes_methods_and_media_types(http: aiohttp.ClientSession, samples: Path) -> None:
    recorded = json.loads((samples / "errors.json").read_text())
    body = json.dumps(chat())
    async with http.get("/v1/nothing") as answer:
        assert (answer.status, await answer.json()) == (404, json.loads(recorded["unknown-path"]["body"]))
    async with http.get("/v1/chat/completions") as answer:
        assert (answer.status, await answer.json()) == (405, json.loads(recorded["wrong-method"]["body"]))
    async with http.post("/v1/chat/completions", data=body, headers={"content-type": "text/plain"}) as answer:
        assert (answer.status, await answer.json()) == (400, json.loads(recorded["wrong-content-type"]["body"]))


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        (b"[]", 400, "array"),
        (b"\xff{}", 400, "UTF-8"),
        (b"[" * 200_000, 400, "deep"),
        (b'{"messages": 7}', 400, "list"),
        (json.dumps(chat(n=0)).encode(), 400, "n must be in 1..128"),
        (json.dumps(chat(n=True)).encode(), 400, "integer"),
        (json.dumps(chat(stream_options={"include_usage": True})).encode(), 400, "stream"),
        (json.dumps(chat(max_tokens=8190)).encode(), 400, "together"),
        (json.dumps(chat("http://x/y.png", text="word " * 5900, max_tokens=40)).encode(), 400, "Input length"),
        (json.dumps(chat("data:image/png,x")).encode(), 400, "base64"),
        (json.dumps(one_part({"type": "input_audio", "input_audio": {"data": "AA"}})).encode(), 400, "audio"),
    ],
)
async def test_other_refusals(http: aiohttp.ClientSession, body: bytes, status: int, word: str) -> None:
    async with http.post("/v1/chat/completions", data=body, headers={"content-type": "application/json"}) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (status, status)
    assert word in error["message"]


async def test_a_needle_is_refused_as_the_processor_does(http: aiohttp.ClientSession, picture: Picture) -> None:
    async with http.post("/v1/chat/completions", json=chat(picture(2001, 10))) as answer:
        assert (answer.status, "aspect ratio" in (await answer.json())["error"]["message"]) == (400, True)


@pytest.mark.parametrize("prompt", [[], "", {}, None, [[]]])
async def test_a_completion_without_a_prompt(http: aiohttp.ClientSession, prompt: Any) -> None:
    async with http.post("/v1/completions", json={"prompt": prompt, "n": 2}) as answer:
        assert answer.status == 400


async def test_strange_but_readable_bodies_are_served(http: aiohttp.ClientSession) -> None:
    body = b'{"temperature": NaN, "messages": [{"role": "user", "content": "\\ud800 \\/"}], "max_tokens": 1}'
    async with http.post("/v1/chat/completions", data=body, headers={"content-type": "application/json"}) as answer:
        assert answer.status == 200
    async with http.post("/v1/chat/completions", json={"messages": [{"content": None}], "max_tokens": 1}) as answer:
        assert answer.status == 200


async def test_a_uuid_recalls_the_picture_it_came_with(http: aiohttp.ClientSession, picture: Picture) -> None:
    part = {"type": "image_url", "image_url": {"url": picture(640, 480)}, "uuid": "mine"}
    for image_url in (part["image_url"], None):
        body = one_part({**part, "image_url": image_url})
        async with http.post("/v1/chat/completions", json={**body, "max_tokens": 1}) as answer:
            assert (await answer.json())["usage"]["prompt_tokens"] == 300 + 2 + 8 + 1


async def test_a_linked_picture_has_the_configured_size(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/chat/completions", json=chat("http://127.0.0.1:9/x.png", max_tokens=1)) as answer:
        assert (await answer.json())["usage"]["prompt_tokens"] == 880 + 2 + 8 + 4
