"""Does the emulator answer the official client, and aiohttp, as vLLM does?"""

import asyncio
import base64
import hashlib
import io
import json
import signal
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError
from openai.types.chat import ChatCompletionMessageParam

from tessera.emulator import Emulator, EmulatorSettings
from tessera.engine.events import EngineFacts

Picture = Callable[..., str]
Until = Callable[[Callable[[], bool]], Awaitable[None]]
MODEL = "tiny-qwen3-vl"


def ask(*images: str, text: str = "What is this?") -> list[ChatCompletionMessageParam]:
    parts: list[Any] = [{"type": "image_url", "image_url": {"url": url}} for url in images]
    return [{"role": "user", "content": [*parts, {"type": "text", "text": text}]}]


def events_of(text: str) -> list[Any]:
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def shape(value: Any) -> Any:
    """Names and kinds, without the values that differ from run to run."""
    if isinstance(value, dict):
        return [(name, shape(item)) for name, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


async def test_a_chat_with_a_picture(client: AsyncOpenAI, picture: Picture) -> None:
    answer = await client.chat.completions.create(model=MODEL, messages=ask(picture(1280, 720)), max_tokens=8)
    assert answer.usage is not None
    # 880 of the picture, 2 markers, 8 of the template, 4 of the 13 bytes of text.
    assert answer.usage.prompt_tokens == 880 + 2 + 8 + 4
    assert (answer.usage.completion_tokens, answer.usage.total_tokens) == (8, 902)
    [choice] = answer.choices
    assert choice.finish_reason == "length"
    assert len((choice.message.content or "").split()) == 8


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "WEBP"])
async def test_every_format_is_priced(emulator: Emulator, client: AsyncOpenAI, picture: Picture, kind: str) -> None:
    await client.chat.completions.create(model=MODEL, messages=ask(picture(640, 480, kind)), max_tokens=1)
    [item] = emulator.records[0].items
    assert (item.width, item.height, item.num_tokens, item.num_wrapper_tokens) == (640, 480, 300, 2)


async def test_a_stream_is_what_was_recorded(http: aiohttp.ClientSession, samples: Path, picture: Picture) -> None:
    cases: list[tuple[str, list[str], dict[str, Any]]] = [
        ("stream-text", [], {}),
        ("stream-image-usage", [picture(640, 480)], {"include_usage": True}),
        ("stream-image-continuous-usage", [picture(640, 480)], {"include_usage": True, "continuous_usage_stats": True}),
    ]
    for name, images, stream_options in cases:
        body = {"model": MODEL, "messages": ask(*images), "max_tokens": 8, "stream": True}
        async with http.post("/v1/chat/completions", json={**body, "stream_options": stream_options}) as answer:
            assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            events = events_of(await answer.text())
        recorded = events_of((samples / f"{name}.txt").read_text())
        assert [shape(event) for event in events] == [shape(event) for event in recorded], name
        if images:
            # The third request is the second again: what it found in the cache is told too.
            assert events[-2]["usage"] == recorded[-2]["usage"]


async def test_a_whole_answer_is_what_was_recorded(
    http: aiohttp.ClientSession, samples: Path, picture: Picture
) -> None:
    body = {"model": MODEL, "messages": ask(picture(1280, 720)), "max_tokens": 8}
    async with http.post("/v1/chat/completions", json=body) as answer:
        made = await answer.json()
    recorded = json.loads((samples / "chat-image-response.json").read_text())
    assert made["usage"].pop("prompt_tokens_details")["multimodal_tokens"] == {"image": 880}
    recorded["usage"].pop("prompt_tokens_details")
    assert shape(made) == shape(recorded)
    assert made["usage"] == recorded["usage"]


async def test_the_client_reads_streams_of_several_choices(client: AsyncOpenAI) -> None:
    stream = await client.chat.completions.create(
        model=MODEL, messages=ask(), max_completion_tokens=5, n=3, stream=True, stream_options={"include_usage": True}
    )
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    usage = None
    async for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert {index: len(text.split()) for index, text in texts.items()} == {0: 5, 1: 5, 2: 5}
    assert len(set(texts.values())) == 3
    assert reasons == {0: "length", 1: "length", 2: "length"}
    assert usage is not None
    assert usage.completion_tokens == 15


async def test_the_same_body_gets_the_same_answer_streamed_or_not(client: AsyncOpenAI) -> None:
    texts = []
    for _ in range(2):
        answer = await client.completions.create(model=MODEL, prompt=["one two", "three"], max_tokens=6, n=2)
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
        assert answer.usage is not None
        assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 24)
        texts.append([choice.text for choice in answer.choices])
    assert texts[0] == texts[1]
    stream = await client.completions.create(model=MODEL, prompt=[1, 2, 3], stream=True)
    chunks = [chunk async for chunk in stream]
    assert len(chunks) == 16
    assert chunks[-1].choices[0].finish_reason == "length"


async def test_an_answer_without_a_limit_stops_by_itself(client: AsyncOpenAI) -> None:
    answer = await client.chat.completions.create(model="", messages=ask())
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 128
    assert answer.model == MODEL


async def test_the_client_raises_the_errors_of_vllm(client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError) as unknown:
        await client.chat.completions.create(model="no-such-model", messages=ask())
    assert unknown.value.param == "model"
    with pytest.raises(BadRequestError, match="Non-base64 digit found"):
        await client.chat.completions.create(model=MODEL, messages=ask("data:image/png;base64,@@@"), stream=True)


async def test_the_record_of_a_request(emulator: Emulator, http: aiohttp.ClientSession, picture: Picture) -> None:
    body = json.dumps({"model": MODEL, "messages": ask(picture(64, 64)), "max_tokens": 2}).encode()
    headers = {"content-type": "application/json", "x-request-id": "abc", "x-tessera-encode-plan": "0=x", "cookie": "s"}
    async with http.post("/v1/chat/completions", data=body, headers=headers) as answer:
        assert (await answer.json())["id"] == "chatcmpl-abc"
    async with http.get("/emulator/requests") as answer:
        [record] = (await answer.json())["requests"]
    assert record["sha256"] == hashlib.sha256(body).hexdigest()
    assert (record["path"], record["body_bytes"], record["status"]) == ("/v1/chat/completions", len(body), 200)
    assert (record["ending"], record["num_prompt_tokens"], record["num_output_tokens"]) == ("finished", 78, 2)
    assert {"x-request-id": "abc", "x-tessera-encode-plan": "0=x"}.items() <= record["headers"].items()
    assert "cookie" not in record["headers"]
    assert record["start"] <= record["first_token"] <= record["end"]
    async with http.delete("/emulator/requests") as answer:
        assert await answer.json() == {"num_seen": 1, "requests": []}


async def test_the_engines_state_and_its_caches(
    emulator: Emulator, http: aiohttp.ClientSession, picture: Picture
) -> None:
    """One picture of 64 tokens twice, in a prompt of 78: 4 whole blocks of 16 are held, which do not reach its end."""
    body = {"model": MODEL, "messages": ask(picture(64, 64)), "max_tokens": 2}
    for _ in range(2):
        async with http.post("/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
    async with http.get("/emulator/facts") as answer:
        facts = await answer.json()
    assert (facts["num_running"], facts["num_waiting"], facts["num_first_tokens"]) == (0, 0, 2)
    assert facts["prefix_cache"] == {"num_queried": 156, "num_hit": 64}
    assert facts["processor_cache"] == {"num_queried": 2, "num_hit": 1}
    assert facts["encoder_cache"] == {"num_queried": 2, "num_hit": 1}


async def test_models_health_and_version(
    emulator: Emulator, client: AsyncOpenAI, http: aiohttp.ClientSession, samples: Path
) -> None:
    async with http.get("/v1/models") as answer:
        made = await answer.json()
    recorded = json.loads((samples / "models.json").read_text())
    assert sorted(made["data"][0]["permission"][0]) == sorted(recorded["data"][0]["permission"][0])
    for name in ("id", "owned_by", "root", "parent", "max_model_len"):
        assert made["data"][0][name] == recorded["data"][0][name]
    assert [model.id async for model in client.models.list()] == [MODEL]
    async with http.get("/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    async with http.get("/version") as answer:
        assert await answer.json() == json.loads((samples / "version.json").read_text())


async def test_caches_are_reset(
    emulator: Emulator, client: AsyncOpenAI, http: aiohttp.ClientSession, picture: Picture
) -> None:
    """Each reset makes the engine do again what that cache saved it, and nothing else."""
    # 9 blocks of 32 end within the picture: its embeddings are needed for the rest.
    for route, saved in ((None, (0, 0, 0)), (None, (288, 1, 1)), ("mm", (288, 0, 1)), ("prefix", (0, 1, 1))):
        if route:
            async with http.post(f"/reset_{route}_cache") as answer:
                assert answer.status == 200
        before = emulator.facts()
        await client.chat.completions.create(model=MODEL, messages=ask(picture(640, 480)), max_tokens=1)
        assert num_hits(before, emulator.facts()) == saved
    for route in ("prefix", "encoder"):
        async with http.post(f"/reset_{route}_cache") as answer:
            assert answer.status == 200
    before = emulator.facts()
    await client.chat.completions.create(model=MODEL, messages=ask(picture(640, 480)), max_tokens=1)
    assert num_hits(before, emulator.facts()) == (0, 1, 0)


def num_hits(before: EngineFacts, after: EngineFacts) -> tuple[int, int, int]:
    """Of the prefix, processor and encoder cache, between two states."""
    names = ("prefix_cache", "processor_cache", "encoder_cache")
    prefix, processor, encoder = (getattr(after, name).num_hit - getattr(before, name).num_hit for name in names)
    return prefix, processor, encoder


async def test_a_picture_is_not_recalled_from_a_cache_that_was_reset(
    client: AsyncOpenAI, http: aiohttp.ClientSession, picture: Picture
) -> None:
    part: Any = {"type": "image_url", "image_url": {"url": picture(64, 64)}, "uuid": "mine"}
    await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}], max_tokens=1)
    async with http.post("/reset_mm_cache") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    part["image_url"] = None
    with pytest.raises(BadRequestError, match="Cache miss for image"):
        await client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": [part]}], max_tokens=1)


async def test_the_headers_of_a_stream_come_before_its_first_token(settings: EmulatorSettings, until: Until) -> None:
    async with Emulator(replace(settings, speed=1e-3)) as emulator, aiohttp.ClientSession() as http:
        body = {"messages": ask(), "stream": True}
        async with http.post(f"{emulator.url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            assert emulator.records[0].num_output_tokens == 0
        await until(lambda: emulator.records[0].ending != "running")
        assert (emulator.records[0].ending, emulator.records[0].status) == ("aborted", 499)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_goes_away_ends_the_work(settings: EmulatorSettings, until: Until, stream: bool) -> None:
    async with Emulator(replace(settings, speed=10)) as emulator:
        _, writer = await asyncio.open_connection("127.0.0.1", emulator.port)
        body = json.dumps({"messages": ask(), "stream": stream, "n": 2, "max_tokens": 8000}).encode()
        head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        await until(lambda: emulator.facts().num_running == 2)
        writer.close()
        await until(lambda: emulator.records[0].ending != "running")
        assert emulator.records[0].ending == "aborted"
        await until(lambda: emulator.facts().num_running == 0)
        assert emulator.facts().kv_usage_fraction == 0
        aborted = 'vllm:request_success_total{engine="0",finished_reason="abort",model_name="tiny-qwen3-vl"} 2.0'
        assert aborted in emulator.metrics.page(emulator.facts()).decode()


async def test_a_20_mb_body_arrives_whole(emulator: Emulator, http: aiohttp.ClientSession, picture: Picture) -> None:
    content = base64.b64decode(picture(640, 480).partition(",")[2]) + bytes(15 << 20)
    padded = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    body = json.dumps({"messages": ask(padded), "max_tokens": 1}).encode()
    async with http.post(
        "/v1/chat/completions", data=io.BytesIO(body), headers={"content-type": "application/json"}
    ) as answer:
        assert (await answer.json())["usage"]["prompt_tokens"] == 314
    assert emulator.records[0].sha256 == hashlib.sha256(body).hexdigest()


async def test_a_server_of_its_own_process() -> None:
    program = (
        "import asyncio; from tessera.emulator import EmulatorSettings, run\n"
        "asyncio.run(run(EmulatorSettings(model='m'), say=lambda line: print(line, flush=True)))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        ready = json.loads(await asyncio.wait_for(process.stdout.readline(), 30))
        assert ready["ready"] is True
        url = f"http://127.0.0.1:{ready['ports']['http']}/health"
        async with aiohttp.ClientSession() as http, http.get(url) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()


async def test_a_taken_port_is_an_error(emulator: Emulator, settings: EmulatorSettings) -> None:
    with pytest.raises(OSError, match="in use"):
        await Emulator(replace(settings, port=emulator.port)).start()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    async with Emulator(replace(settings, port=port)) as chosen:
        assert chosen.port == port
