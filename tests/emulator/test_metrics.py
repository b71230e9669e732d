"""Is the metrics page the one that routers expect of vLLM, and do its numbers move?"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tessera.emulator import EmulatorSettings
from tessera.emulator.metrics import Metrics
from tessera.emulator.pictures import ProcessorCache
from tessera.emulator.service import Service, Work

RECORDED = Path(__file__).parents[1] / "live" / "data" / "vllm-metrics.txt"


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


def test_the_page_follows_the_service(settings: EmulatorSettings) -> None:
    time = replace(settings.service_time, speed=1.0, overhead_s=0.0, prefill_tokens_per_s=1000.0)
    service, cache = Service(time, settings.num_gpu_blocks, settings.block_size), ProcessorCache()
    metrics = Metrics(settings, service, cache)
    for _ in range(3):
        service.submit(Work(num_prompt_tokens=960, num_embeds=0, num_output_tokens=2), at=0.0)
    cache.look_up("a")
    cache.put("a", (1, 1))
    cache.look_up("a")

    def page() -> dict[str, float]:
        return values(metrics.page().decode())

    start = page()
    assert (start["vllm:num_requests_running"], start["vllm:num_requests_waiting"]) == (1, 2)
    assert start["vllm:kv_cache_usage_perc"] == pytest.approx(30 / 300)
    assert start["vllm:time_to_first_token_seconds_count"] == 0
    assert (start["vllm:mm_cache_queries_total"], start["vllm:mm_cache_hits_total"]) == (2, 1)
    metrics.tokens_came(service.advance(0.95))
    assert page()["vllm:time_to_first_token_seconds_count"] == 0
    metrics.tokens_came(service.advance(0.961))
    later = page()
    assert later["vllm:time_to_first_token_seconds_count"] == 1
    assert later["vllm:time_to_first_token_seconds_sum"] == pytest.approx(0.96)
    assert later["vllm:kv_cache_usage_perc"] == pytest.approx(61 / 300)
    assert later["vllm:mm_cache_queries_total"] == 2
    metrics.tokens_came(service.advance(10.0))
    end = page()
    assert end["vllm:request_queue_time_seconds_sum"] == pytest.approx(0 + 0.96 + 1.92)


def test_the_processor_cache_forgets() -> None:
    cache = ProcessorCache(max_entries=2)
    for name in ("a", "b"):
        cache.put(name, (1, 1))
    cache.look_up("a")
    cache.put("c", (1, 1))
    assert [cache.look_up(name) is not None for name in "abc"] == [True, False, True]
