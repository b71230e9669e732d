"""Is the metrics page the one that routers expect of vLLM, and do its numbers move?"""

from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tessera.emulator import EmulatorSettings
from tessera.emulator.metrics import Metrics
from tessera.emulator.prompts import EnginePrompt
from tessera.emulator.tickets import Work
from tessera.engine.engine import Engine
from tessera.engine.events import CacheCounters, EngineFacts
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import EngineRequest, TextSegment

RECORDED = Path(__file__).parents[1] / "live" / "data" / "vllm-metrics.txt"
COUNTERS = (
    *("prefix_cache_queries", "prefix_cache_hits", "mm_cache_queries", "mm_cache_hits"),
    *("num_preemptions", "prompt_tokens", "generation_tokens"),
)
IDLE = Engine(PROFILES["h200-tp2-qwen3-vl-32b"]).facts(0.0)


def families(page: str) -> Iterator[Metric]:
    yield from text_string_to_metric_families(page)


def values(page: str) -> dict[str, float]:
    """Value by name, for the series that a name has only one of."""
    return {sample.name: sample.value for family in families(page) for sample in family.samples}


async def read(http: aiohttp.ClientSession) -> str:
    async with http.get("/metrics") as answer:
        assert answer.status == 200
        assert answer.content_type == "text/plain"
        return await answer.text()


def labels_and_buckets(page: str) -> dict[str, tuple[str, set[str], set[str]]]:
    found = {}
    for family in families(page):
        if family.name.startswith("vllm:") and not family.name.endswith("_created"):
            labels = {name for sample in family.samples for name in sample.labels}
            buckets = {sample.labels["le"] for sample in family.samples if "le" in sample.labels}
            found[family.name] = (family.type, labels, buckets)
    return found


async def test_every_family_is_one_of_vllm(http: aiohttp.ClientSession) -> None:
    ours, recorded = labels_and_buckets(await read(http)), labels_and_buckets(RECORDED.read_text())
    assert ours.keys() <= recorded.keys()
    for name in ours.keys() - {"vllm:cache_config_info"}:
        assert ours[name] == recorded[name]
    assert ours["vllm:cache_config_info"][1] <= recorded["vllm:cache_config_info"][1]


async def test_the_cache_and_the_start_of_the_process(http: aiohttp.ClientSession) -> None:
    page = await read(http)
    [info] = [f for f in families(page) if f.name == "vllm:cache_config_info"]
    labels = info.samples[0].labels
    assert (labels["block_size"], labels["num_gpu_blocks"], labels["kv_cache_size_tokens"]) == ("32", "300", "9600")
    assert values(page)["process_start_time_seconds"] > 1.7e9


async def test_the_numbers_move(http: aiohttp.ClientSession) -> None:
    before = values(await read(http))
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "x" * 40}], "max_tokens": 7, "n": 2}
    async with http.post("/v1/chat/completions", json=body) as answer:
        assert answer.status == 200
    async with http.post("/v1/chat/completions", json={**body, "max_tokens": -1}) as answer:
        assert answer.status == 400
    after = values(await read(http))
    moved = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    expected = {
        "vllm:prompt_tokens_total": 36,
        "vllm:prefix_cache_queries_total": 36,
        "vllm:generation_tokens_total": 14,
        "vllm:time_to_first_token_seconds_count": 2,
        "vllm:inter_token_latency_seconds_count": 12,
        "vllm:e2e_request_latency_seconds_count": 2,
    }
    assert expected.items() <= moved.items()
    assert 'finished_reason="length",model_name="tiny-qwen3-vl"} 2.0' in await read(http)
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0


async def test_hits_of_the_three_caches_are_told(http: aiohttp.ClientSession, picture: Callable[..., str]) -> None:
    content = [{"type": "image_url", "image_url": {"url": picture(640, 480)}}, {"type": "text", "text": "x" * 400}]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": content}], "max_tokens": 1}
    cached = []
    for _ in range(2):
        async with http.post("/v1/chat/completions", json=body) as answer:
            details = (await answer.json())["usage"]["prompt_tokens_details"]
            cached.append((details["cached_tokens"], details["created_cache_tokens"]))
    # 3 + 1 + 300 + 1 + 100 + 5 tokens: 12 blocks of 32 are full, and none is left for the second request to fill.
    assert cached == [(0, 384), (384, 0)]
    page = values(await read(http))
    assert {name: page[f"vllm:{name}_total"] for name in COUNTERS} == {
        "prefix_cache_queries": 820,
        "prefix_cache_hits": 384,
        "mm_cache_queries": 2,
        "mm_cache_hits": 1,
        "num_preemptions": 0,
        "prompt_tokens": 820,
        "generation_tokens": 2,
    }


def test_the_page_is_the_state_of_the_engine(settings: EmulatorSettings) -> None:
    metrics = Metrics(settings)
    facts = EngineFacts(
        num_waiting=1,
        num_running=2,
        kv_usage_fraction=0.25,
        num_blocks=300,
        block_size=32,
        num_first_tokens=3,
        prefix_cache=CacheCounters(4, 5),
        processor_cache=CacheCounters(6, 7),
        encoder_cache=CacheCounters(8, 9),
        num_preemptions=10,
        num_prompt_tokens=11,
        num_generation_tokens=12,
    )
    page = values(metrics.page(facts).decode())
    assert [page[f"vllm:{name}"] for name in ("num_requests_waiting", "num_requests_running")] == [1, 2]
    assert page["vllm:kv_cache_usage_perc"] == 0.25
    assert [page[f"vllm:{name}_total"] for name in COUNTERS] == [4, 5, 6, 7, 10, 11, 12]


def test_times_of_tokens(settings: EmulatorSettings) -> None:
    metrics = Metrics(settings)
    request = EngineRequest("r", (TextSegment(1, 1),), num_output_tokens=5, num_choices=2)
    work = Work(request, EnginePrompt(token_ids=array("q", [1])), "length")
    work.arrived_at = 10.0
    for choice, num_new, at in ((0, 1, 10.5), (1, 2, 10.75), (0, 4, 12.5)):
        metrics.tokens_came(work, choice, num_new, at)
        work.num_produced[choice] += num_new
        work.last_token_at[choice] = at
    metrics.work_aborted(work)
    page = metrics.page(IDLE)
    found = values(page.decode())
    ttft, gap, e2e = (
        f"vllm:{name}_seconds" for name in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
    )
    assert (found[f"{ttft}_count"], found[f"{ttft}_sum"]) == (2, 0.5 + 0.75)
    assert (found[f"{gap}_count"], found[f"{gap}_sum"]) == (1 + 4, 0 + 2.0)
    assert (found[f"{e2e}_count"], found[f"{e2e}_sum"]) == (1, 2.5)
    assert b'finished_reason="length",model_name="tiny-qwen3-vl"} 1.0' in page
    assert b'finished_reason="abort",model_name="tiny-qwen3-vl"} 1.0' in page
