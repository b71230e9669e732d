"""Do servers of several roles hand embeddings and KV on as vLLM's do?"""

import asyncio
import copy
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tessera.emulator import Emulator, EmulatorSettings
from tessera.engine.profiles import Network, with_role
from tessera.engine.roles import Role

Picture = Callable[..., str]
GRID = [1, 44, 80]
"""Of a picture of 1280 x 720: sides of 1280 and 704, in patches of 16 pixels."""
NUM_TOKENS = 880 + 2 + 8 + 6
"""The picture, its markers, the template, 21 bytes of text."""


@dataclass
class Pool:
    """One server of each role."""

    by_role: dict[Role, Emulator]
    http: aiohttp.ClientSession

    async def post(self, role: Role, body: dict[str, Any]) -> tuple[int, Any]:
        url = f"{self.by_role[role].url}/v1/chat/completions"
        async with self.http.post(url, json=body) as answer:
            return answer.status, (await answer.text() if body.get("stream") else await answer.json())

    async def encode(self, *parts: dict[str, Any]) -> dict[str, Any]:
        status, answer = await self.post(Role.ENCODE, chat(*parts, max_tokens=1))
        assert status == 200
        told: dict[str, Any] = answer["ec_transfer_params"]
        return told

    async def prefill(self, body: dict[str, Any]) -> dict[str, Any]:
        asked = {**body, "max_tokens": 1, "kv_transfer_params": {"do_remote_decode": True, "do_remote_prefill": False}}
        status, answer = await self.post(Role.PREFILL, asked)
        assert status == 200
        told: dict[str, Any] = answer["kv_transfer_params"]
        return told


@asynccontextmanager
async def running(settings: EmulatorSettings, *roles: Role, **changes: Any) -> AsyncIterator[Pool]:
    async with AsyncExitStack() as stack:
        by_role = {}
        for role in roles:
            made = replace(settings, profile=with_role(settings.profile, role), max_model_len=8192, **changes)
            by_role[role] = await stack.enter_async_context(Emulator(made))
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)))
        yield Pool(by_role, http)


@pytest.fixture
async def pool(settings: EmulatorSettings) -> AsyncIterator[Pool]:
    async with running(settings, *Role) as made:
        yield made


def image(url: str, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **more}


def bare(uuid: str, grid: Any = GRID) -> dict[str, Any]:
    return {"type": "image_embeds", "image_embeds": {"image_grid_thw": grid}, "uuid": uuid}


TEXT = {"type": "text", "text": "Describe the picture."}


def chat(*parts: dict[str, Any], max_tokens: int = 8, **more: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": max_tokens, **more}


def words(answer: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    return answer["choices"][0]["message"]["content"], answer["usage"]


def shape(value: Any) -> Any:
    """Names and kinds; an identifier that is a hash stands for all such."""
    if isinstance(value, dict):
        return {re.sub("^[0-9a-f]{64}$", "<hash>", name): shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return type(value).__name__


async def test_the_recorded_exchanges(
    settings: EmulatorSettings, samples: Path, picture: Picture, tmp_path: Path
) -> None:
    recorded = [
        {**each, "to": each.get("to") or ("encode" if each["name"].startswith("encode") else "pd")}
        for name in ("epd-exchange", "epd-corners")
        for each in json.loads((samples / f"{name}.json").read_text())
    ]
    identifiers: dict[str, str] = {}
    shared = {"embeddings_folder": tmp_path / "store"}
    async with running(settings, Role.ENCODE, Role.PREFILL_DECODE, **shared) as pool:
        for each in recorded:
            role = Role.ENCODE if each["to"] == "encode" else Role.PREFILL_DECODE
            status, answer = await pool.post(role, filled(each, picture, identifiers))
            assert status == each["status"], each["name"]
            if isinstance(answer, str):
                assert num_events(answer) == num_events(each["response"])
                assert "ec_transfer_params" not in answer
                continue
            if status == 200 and answer["ec_transfer_params"]:
                assert list(answer["ec_transfer_params"].values()) == list(
                    each["response"]["ec_transfer_params"].values()
                )
                identifiers[each["name"].split(",")[0]] = next(iter(answer["ec_transfer_params"]))
                # Text is 4 bytes a token here.
                assert "max_tokens 8" in each["name"] or answer["usage"] == each["response"]["usage"]
            assert shape(answer) == shape(each["response"]), each["name"]
            if status != 200:
                assert answer == each["response"], each["name"]


def num_events(stream: str) -> int:
    return stream.count("data: ")


def filled(each: dict[str, Any], picture: Picture, identifiers: dict[str, str]) -> dict[str, Any]:
    """The recorded request with a picture as large as its own, one for each letter of the names."""
    body: dict[str, Any] = copy.deepcopy(each["request"])
    letter = re.search(r"image ([A-E])", each["name"])
    width, height = (640, 480) if "D, two" in each["name"] or "max_tokens 8" in each["name"] else (1280, 720)
    offset = ord(letter[1]) - ord("A") if letter else 9
    parts = [part for message in body["messages"] for part in message["content"]]
    for number, part in enumerate(parts):
        if part.get("image_url") and "bad" not in each["name"]:
            # A few pixels less on a side are another picture of as many tokens.
            part["image_url"]["url"] = picture(width - offset - number, height)
        elif part.get("image_url"):
            part["image_url"]["url"] = "data:image/png;base64,AAAA"
        if part["type"] == "image_embeds" and part["uuid"] not in ("img-90",) and "unknown" not in each["name"]:
            part["uuid"] = identifiers[f"encode image {letter[1] if letter else 'A'}"]
    return body


async def test_an_encoder_says_where_embeddings_are(pool: Pool, picture: Picture) -> None:
    same = picture(1280, 720)
    told = await pool.encode(image(same, uuid="a"), image(picture(640, 480), uuid="b"), image(same, uuid="a"))
    # A row is 5,120 numbers of the language model's width and as many for each of 3 deepstack levels, 2 bytes each.
    where = {"peer_host": "127.0.0.1", "peer_port": pool.by_role[Role.ENCODE].port}
    assert told == {
        "a": {
            "item_indices": [0, 2],
            "metadata": {"image_grid_thw": GRID},
            **where,
            "size_bytes": 880 * 40_960,
            "shape": [880, 20_480],
        },
        "b": {
            "item_indices": [1],
            "metadata": {"image_grid_thw": [1, 30, 40]},
            **where,
            "size_bytes": 300 * 40_960,
            "shape": [300, 20_480],
        },
    }
    async with pool.http.get(f"{pool.by_role[Role.ENCODE].url}/emulator/ec/a") as answer:
        assert await answer.json() == {"identifier": "a", "size_bytes": 880 * 40_960, "shape": [880, 20_480]}
    async with pool.http.get(f"{pool.by_role[Role.ENCODE].url}/emulator/ec/c") as answer:
        assert answer.status == 404
    record = pool.by_role[Role.ENCODE].records[0]
    assert [item.identifier for item in record.items] == ["a", "b", "a"]
    assert record.end is not None
    assert record.end > record.start


async def test_an_encoder_says_nothing(pool: Pool) -> None:
    url = pool.by_role[Role.ENCODE].url
    for path, body in (("chat/completions", chat(TEXT)), ("completions", {"prompt": "x" * 40, "max_tokens": 8})):
        async with pool.http.post(f"{url}/v1/{path}", json=body) as answered:
            answer = await answered.json()
        (choice,) = answer["choices"]
        assert choice["message"]["content"] == "" if "message" in choice else choice["text"] == ""
        assert choice["finish_reason"] == "stop"
        assert answer["usage"]["completion_tokens"] == 0
        assert answer["ec_transfer_params"] is None
    assert [record.num_output_tokens for record in pool.by_role[Role.ENCODE].records] == [0, 0]


async def test_an_encoder_keeps_no_kv_and_counts_prompts(pool: Pool, picture: Picture) -> None:
    await pool.encode(image(picture(1280, 720)))
    async with pool.http.get(f"{pool.by_role[Role.ENCODE].url}/metrics") as answer:
        page = await answer.text()
    labels = '{engine="0",model_name="tiny-qwen3-vl"}'
    for line in (
        f"vllm:prompt_tokens_total{labels} 890.0",
        f"vllm:time_to_first_token_seconds_count{labels} 1.0",
        f"vllm:generation_tokens_total{labels} 0.0",
        f"vllm:prefix_cache_queries_total{labels} 0.0",
        f"vllm:kv_cache_usage_perc{labels} 0.0",
    ):
        name, value = line.rsplit(" ", 1)
        assert sample_of(page, name.split("{")[0]) == float(value), line
    assert 'enable_prefix_caching="False"' in page
    assert 'num_gpu_blocks="1"' in page


def sample_of(page: str, name: str, label: str = "") -> float:
    return next(
        float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{") and label in line
    )


async def test_every_way_gives_the_same_answer(pool: Pool, picture: Picture) -> None:
    pixels = chat(image(picture(1280, 720)), TEXT)
    _, alone = await pool.post(Role.ALL, pixels)
    assert alone["usage"]["prompt_tokens"] == NUM_TOKENS
    told = await pool.encode(image(picture(1280, 720)))
    (identifier,) = told
    announced = {"ec_transfer_params": told}
    without = chat(bare(identifier), TEXT)

    _, with_pixels = await pool.post(Role.PREFILL_DECODE, pixels | announced)
    assert words(with_pixels) == words(alone)
    assert pool.by_role[Role.PREFILL_DECODE].facts().num_transferred_bytes == 880 * 40_960

    kv = await pool.prefill(without | announced)
    assert kv["remote_num_tokens"] == NUM_TOKENS
    assert len(kv["remote_block_ids"][0]) == NUM_TOKENS // 32
    assert pool.by_role[Role.PREFILL].facts().kv_usage_fraction == pytest.approx(28 / 300)
    _, decoded = await pool.post(Role.DECODE, pixels | {"kv_transfer_params": kv})
    assert words(decoded) == words(alone)
    facts = pool.by_role[Role.DECODE].facts()
    # All but the last token, which is computed to sample the first one of the answer.
    assert facts.external_prefix_cache == (NUM_TOKENS, NUM_TOKENS - 1)
    assert facts.num_transferred_bytes == (NUM_TOKENS - 1) * 262_144
    assert facts.encoder_cache.num_queried == 0
    page = pool.by_role[Role.DECODE].metrics.page(facts).decode()
    sources = ("local_compute", "local_cache_hit", "external_kv_transfer")
    counts = [sample_of(page, "vllm:prompt_tokens_by_source_total", source) for source in sources]
    assert counts == [1, 0, NUM_TOKENS - 1]


async def test_pulled_kv_is_given_back(pool: Pool, until: Any) -> None:
    body = chat({"type": "text", "text": "x" * 4000})
    kv = await pool.prefill(body)
    assert pool.by_role[Role.PREFILL].facts().kv_usage_fraction > 0
    await pool.post(Role.DECODE, body | {"kv_transfer_params": kv})
    await until(lambda: pool.by_role[Role.PREFILL].facts().kv_usage_fraction == 0)


async def test_kv_whose_lease_is_over_is_computed_again(settings: EmulatorSettings, until: Any) -> None:
    body = chat({"type": "text", "text": "x" * 4000})
    async with running(settings, Role.PREFILL, Role.DECODE, kv_lease_s=0.05) as pool:
        kv = await pool.prefill(body)
        await until(lambda: pool.by_role[Role.PREFILL].facts().kv_usage_fraction == 0)
        status, answer = await pool.post(Role.DECODE, body | {"kv_transfer_params": kv})
        assert status == 200
        assert answer["usage"]["completion_tokens"] == 8
        assert pool.by_role[Role.DECODE].facts().external_prefix_cache == (0, 0)


async def test_kv_of_a_dead_peer_is_computed_again(pool: Pool) -> None:
    body = chat({"type": "text", "text": "x" * 4000})
    kv = await pool.prefill(body)
    await pool.by_role[Role.PREFILL].stop()
    status, answer = await pool.post(Role.DECODE, body | {"kv_transfer_params": kv})
    assert (status, answer["usage"]["completion_tokens"]) == (200, 8)
    assert pool.by_role[Role.DECODE].facts().prefix_cache.num_queried == answer["usage"]["prompt_tokens"]


async def test_cached_tokens_are_those_of_the_prefill(pool: Pool) -> None:
    body = chat({"type": "text", "text": "x" * 4000})
    for num_cached in (0, 992):
        kv = await pool.prefill(body)
        assert kv["remote_prefill_cached_tokens"] == num_cached
        _, answer = await pool.post(Role.DECODE, body | {"kv_transfer_params": kv})
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == num_cached
    forged = kv | {"remote_prefill_cached_tokens": 10**9}
    _, answer = await pool.post(Role.DECODE, body | {"kv_transfer_params": forged})
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["usage"]["prompt_tokens"]


async def test_embeddings_of_a_dead_encoder_are_computed_where_there_are_pixels(pool: Pool, picture: Picture) -> None:
    told = await pool.encode(image(picture(1280, 720)))
    await pool.by_role[Role.ENCODE].stop()
    status, _ = await pool.post(Role.PREFILL_DECODE, chat(image(picture(1280, 720)), TEXT, ec_transfer_params=told))
    facts = pool.by_role[Role.PREFILL_DECODE].facts()
    assert (status, facts.num_transferred_bytes, facts.encoder_cache) == (200, 0, (1, 0))


async def test_an_announcement_that_does_not_hold_ends_the_request_alone(pool: Pool, picture: Picture) -> None:
    told = await pool.encode(image(picture(1280, 720), uuid="a"))
    await pool.by_role[Role.ENCODE].stop()
    status, _ = await pool.post(Role.PREFILL_DECODE, chat(bare("a"), TEXT, ec_transfer_params=told))
    assert status == 500
    status, _ = await pool.post(Role.PREFILL_DECODE, chat(TEXT))
    assert status == 200


async def test_a_picture_that_nobody_has_ends_the_server(pool: Pool) -> None:
    server = pool.by_role[Role.PREFILL_DECODE]
    url = server.url
    status, answer = await pool.post(Role.PREFILL_DECODE, chat(bare("never-stored"), TEXT))
    assert status == 500
    assert answer["error"]["message"].startswith("EngineCore encountered an issue.")
    await asyncio.wait_for(server.died.wait(), 10)
    with pytest.raises(aiohttp.ClientConnectionError):
        await pool.http.get(f"{url}/health")


async def test_a_stream_whose_picture_nobody_has_ends_with_an_error(pool: Pool) -> None:
    server = pool.by_role[Role.PREFILL_DECODE]
    status, stream = await pool.post(Role.PREFILL_DECODE, chat(bare("never-stored"), TEXT, stream=True))
    assert status == 200
    error, done = [event for event in stream.split("\n\n") if event]
    assert json.loads(error.removeprefix("data: "))["error"]["code"] == 500
    assert done == "data: [DONE]"
    await asyncio.wait_for(server.died.wait(), 10)


@pytest.mark.parametrize("uuid", ["a/b", "../../etc", "a b?c#d", "\u00fc%2F", "x" * 1024, "."])
async def test_a_uuid_may_be_anything(settings: EmulatorSettings, picture: Picture, tmp_path: Path, uuid: str) -> None:
    for folder in (None, tmp_path / "deep" / "store"):
        async with running(settings, Role.ENCODE, Role.PREFILL_DECODE, embeddings_folder=folder) as pool:
            told = await pool.encode(image(picture(1280, 720), uuid=uuid))
            assert list(told) == [uuid]
            status, _ = await pool.post(Role.PREFILL_DECODE, chat(bare(uuid), TEXT, ec_transfer_params=told))
            assert status == 200
    (stored,) = files_below(tmp_path)
    assert (stored.parts[:2], len(stored.parts)) == (("deep", "store"), 4)


def files_below(folder: Path) -> list[Path]:
    return [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]


async def test_what_waits_and_what_peers_sent_is_on_the_metrics_page(settings: EmulatorSettings, until: Any) -> None:
    slow = replace(settings, profile=replace(settings.profile, network=Network(bytes_per_s=1e6, latency_s=0.0)))
    body = chat({"type": "text", "text": "x" * 4000})
    async with running(slow, Role.PREFILL, Role.DECODE) as pool:
        kv = await pool.prefill(body)
        decode = pool.by_role[Role.DECODE]
        waiting = asyncio.create_task(pool.post(Role.DECODE, body | {"kv_transfer_params": kv}))
        await until(lambda: decode.facts().num_deferred == 1)
        page = decode.metrics.page(decode.facts()).decode()
        assert sample_of(page, "vllm:num_requests_waiting") == 1
        assert sample_of(page, "vllm:num_requests_waiting_by_reason", 'reason="deferred"') == 1
        assert sample_of(page, "vllm:num_requests_waiting_by_reason", 'reason="capacity"') == 0
        assert sample_of(page, "vllm:external_prefix_cache_queries_total") == kv["remote_num_tokens"]
        assert sample_of(page, "vllm:external_prefix_cache_hits_total") == kv["remote_num_tokens"] - 1
        waiting.cancel()
        await until(lambda: decode.facts().num_waiting == 0 and decode.facts().kv_usage_fraction == 0)
        await until(lambda: pool.by_role[Role.PREFILL].facts().kv_usage_fraction == 0)


async def test_a_wrong_grid_ends_the_request_alone(pool: Pool, picture: Picture) -> None:
    told = await pool.encode(image(picture(1280, 720), uuid="a"))
    asked = chat(bare("a", [1, 40, 40]), TEXT, ec_transfer_params=told)
    status, answer = await pool.post(Role.PREFILL_DECODE, asked)
    assert (status, answer["error"]["message"]) == (500, "Internal server error")
    status, _ = await pool.post(Role.PREFILL_DECODE, chat(bare("a"), TEXT, ec_transfer_params=told))
    assert status == 200


@pytest.mark.parametrize(
    ("part", "problem"),
    [
        (bare("a", [[1, 44, 80]]), "Metadata image_grid_thw must be a finite numeric array."),
        (bare("a", [1, float("inf"), 80]), "Metadata image_grid_thw must be a finite numeric array."),
        (bare("a", "bm90IGEgdGVuc29y"), "Metadata image_grid_thw must be a finite numeric array."),
        (bare("a", [1, 44]), "image_grid_thw has 2 numbers"),
        (bare("a", [1, 0, 80]), "image_grid_thw has 3 numbers, expected 3 of at least 1"),
        (bare("a", [1024, 1024, 1024]), "1048576 patches"),
        ({"type": "image_embeds", "image_embeds": "AAAA", "uuid": "a"}, "takes no embeddings from a request"),
        ({"type": "image_embeds", "image_embeds": {"image_grid_thw": GRID}}, "needs a uuid"),
    ],
)
async def test_malformed_metadata(pool: Pool, part: dict[str, Any], problem: str) -> None:
    body = json.dumps(chat(part, TEXT)).replace("Infinity", "1e999")
    url = f"{pool.by_role[Role.PREFILL_DECODE].url}/v1/chat/completions"
    async with pool.http.post(url, data=body, headers={"Content-Type": "application/json"}) as answer:
        assert (answer.status, problem in await answer.text()) == (400, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kv_transfer_params", [1]),
        ("ec_transfer_params", "x"),
        ("ec_transfer_params", {str(number): {} for number in range(1025)}),
    ],
)
async def test_malformed_transfer_params(pool: Pool, name: str, value: Any) -> None:
    status, answer = await pool.post(Role.PREFILL, chat(TEXT, **{name: value}))
    assert (status, answer["error"]["param"]) == (400, name)


async def test_a_server_of_one_role_passes_over_what_it_is_not_for(pool: Pool, picture: Picture) -> None:
    told = await pool.encode(image(picture(1280, 720)))
    kv = {"do_remote_decode": True, "do_remote_prefill": False}
    asked = chat(image(picture(1280, 720)), TEXT, max_tokens=1, ec_transfer_params=told, kv_transfer_params=kv)
    _, answer = await pool.post(Role.ALL, asked)
    assert (answer["kv_transfer_params"], answer["ec_transfer_params"]) == (None, None)
    assert pool.by_role[Role.ALL].facts().num_transferred_bytes == 0
    status, answer = await pool.post(Role.ALL, chat(bare("a"), TEXT))
    assert (status, answer["error"]["param"]) == (400, "image_embeds")
