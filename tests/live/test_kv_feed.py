"""The whole way: an endpoints file, engines that publish, the index, and the page that tells of it."""

import json
import logging
from pathlib import Path

import pytest
import yaml

from tessera.config.load import load_data
from tessera.core.facts import Joined, KVCleared, Left
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer
from tessera.core.types import Endpoint
from tessera.live.app import LiveRouter, ServeSettings
from tessera.live.kv_feed import KVFeed

from .kv_engine import until

LINES = (Path(__file__).parents[1] / "data" / "kv" / "events.jsonl").read_text().splitlines()
RECORDED = [(row["seq"], bytes.fromhex(row["payload_hex"])) for row in map(json.loads, LINES)]
PRECISE = "precise-prefix-cache-producer"


def config(**events):
    """A configuration with exact producers of these names, each with its kvEventsConfig."""
    plugins = [
        {"name": name, "type": PRECISE, "parameters": {"hashSeed": "0", "kvEventsConfig": each}}
        for name, each in events.items()
    ]
    plugins += [{"type": "token-producer"}, {"type": "queue-scorer"}, {"type": "max-score-picker"}]
    profile = {"name": "default", "plugins": [{"pluginRef": "queue-scorer"}, {"pluginRef": "max-score-picker"}]}
    return load_data(
        {
            "apiVersion": "llm-d.ai/v1alpha1",
            "kind": "EndpointPickerConfig",
            "plugins": plugins,
            "schedulingProfiles": [profile],
        }
    )


def entry(port, engine, *, replays=True):
    """An endpoint that answers no scrape."""
    ports = {"kvEventsPort": engine.port} | ({"kvReplayPort": engine.replay_port} if replays else {})
    return {"address": "127.0.0.1", "port": str(port)} | ports


def write(path, *entries):
    path.write_text(yaml.safe_dump({"endpoints": list(entries)}))


def producers(loaded):
    return [each for each in loaded.router.memories if isinstance(each, PrecisePrefixCacheProducer)]


def page(service):
    return {
        (sample.name.removeprefix("tessera_kv_"), *sample.labels.values()): sample.value
        for family in service.metrics.registry.collect()
        for sample in family.samples
        if sample.name.startswith("tessera_kv_") and not sample.name.startswith("tessera_kv_belief")
    }


@pytest.fixture
async def serve(tmp_path):
    """Starts a router over these endpoints."""
    started = []
    path = tmp_path / "endpoints.yaml"

    async def start(loaded, *entries):
        write(path, *entries)
        settings = ServeSettings(config=loaded, endpoints_path=path, grpc_port=0, metrics_port=0)
        started.append(LiveRouter(settings))
        await started[-1].start()
        return started[-1], path

    yield start
    for each in started:
        await each.stop(drain_timeout_s=0)


async def test_events_reach_the_index_until_their_endpoint_leaves(engines, serve):
    first, second = engines(), engines()
    for number, payload in RECORDED[:2]:
        await first.publish(number, payload, send=False)
    loaded = config(exact={})
    (producer,) = producers(loaded)
    router, path = await serve(loaded, entry(1, first), entry(2, second, replays=False))
    await first.subscribed()
    await second.subscribed()
    for number, payload in RECORDED[2:5]:
        await first.publish(number, payload)
    await second.publish(0, RECORDED[0][1])
    # 4 blocks of text, 4 of salted text, 10 of the picture, of which one is stored twice; and 4 of text.
    await until(lambda: page(router.service)["batches_total", "exact"] == 6)
    assert producer.index.num_blocks == 22
    await until(lambda: sum(number for name, number in page(router.service).items() if name[0] == "connected") == 2)
    assert set(map(str, producer.key_modes().values())) == {"direct"}

    found = page(router.service)
    assert 0 <= found.pop(("heard_age_seconds", "exact", "127.0.0.1:1", "0")) < 10
    assert 0 <= found.pop(("heard_age_seconds", "exact", "127.0.0.1:2", "0")) < 10
    modes = {
        ("key_mode", "exact", f"127.0.0.1:{port}", "0", mode): float(mode == "direct")
        for port in (1, 2)
        for mode in ("unknown", "direct", "rechained")
    }
    assert found == modes | {
        ("connected", "exact", "127.0.0.1:1", "0"): 1,
        ("connected", "exact", "127.0.0.1:2", "0"): 1,
        ("batches_total", "exact"): 6,
        ("events_total", "exact"): 6,
        ("skipped_events_total", "exact"): 0,
        ("malformed_batches_total", "exact"): 0,
        ("gaps_total", "exact"): 0,
        ("replayed_batches_total", "exact"): 2,
        ("losses_total", "exact"): 0,
        ("restarts_total", "exact"): 0,
        ("hash_algorithm", "exact", "sha256"): 1,
        ("unkeyed_blocks_total", "exact"): 0,
        ("miscounted_prompts_total", "exact"): 0,
        ("index_blocks", "exact"): 22,
        ("index_max_blocks", "exact"): 1 << 23,
        ("index_evicted_blocks_total", "exact"): 0,
    }

    write(path, entry(2, second, replays=False))
    await first.unsubscribed()
    assert producer.index.num_blocks == 4
    assert {name[2] for name in page(router.service) if name[0] == "connected"} == {"127.0.0.1:2"}
    write(path)
    await second.unsubscribed()
    assert (producer.index.num_blocks, producer.index.num_endpoints, producer.key_modes()) == (0, 0, {})
    assert page(router.service)["batches_total", "exact"] == 6


async def test_an_endpoint_whose_ports_change_is_heard_there_and_what_was_known_is_forgotten(engines, serve):
    first, second = engines(), engines()
    loaded = config(exact={})
    (producer,) = producers(loaded)
    _, path = await serve(loaded, entry(1, first))
    await first.subscribed()
    await first.publish(*RECORDED[0])
    await until(lambda: producer.index.num_blocks == 4)
    write(path, entry(1, second))
    await first.unsubscribed()
    await second.subscribed()
    await until(lambda: producer.index.num_blocks == 0)
    await second.publish(*RECORDED[0])
    await until(lambda: producer.index.num_blocks == 4)


async def test_stopping_closes_every_subscription(engines, serve):
    engine = engines()
    router, _ = await serve(config(exact={}), entry(1, engine))
    await engine.subscribed()
    await router.stop(drain_timeout_s=0)
    await engine.unsubscribed()


async def test_each_producer_hears_by_its_own_parameters(engines):
    first, second = engines(), engines()
    at_first, at_second = ({"podDiscoveryConfig": {"socketPort": each.port}} for each in (first, second))
    loaded = config(a=at_first, b=at_second)
    feed = KVFeed(loaded.router, clock=lambda: 1.0, failed=pytest.fail)
    joined = Joined(at=0.0, endpoint=Endpoint(address="127.0.0.1", port=1))
    loaded.router.observe(joined)
    feed.observe(joined)
    await first.subscribed()
    await second.subscribed()
    await second.publish(*RECORDED[0])
    one, other = producers(loaded)
    await until(lambda: other.index.num_blocks == 4)
    assert one.index.num_blocks == 0
    feed.observe(Left(at=1.0, endpoint=joined.endpoint))
    await first.unsubscribed()
    await second.unsubscribed()
    await feed.close()


async def test_without_an_exact_producer_nothing_is_subscribed_to(engines):
    engine = engines()
    joined = Joined(at=0.0, endpoint=Endpoint(address="127.0.0.1", port=1, kv_events_port=engine.port))
    feeds = [
        KVFeed(config(**events).router, clock=lambda: 1.0, failed=pytest.fail)
        for events in ({}, {"off": {"discoverPods": False}}, {"exact": {"topicFilter": "mine"}})
    ]
    for feed in feeds:
        feed.observe(joined)
    assert await engine.subscribed() == "mine"
    assert list(feeds[0].gauges()) == []
    for feed in feeds:
        await feed.close()
    await engine.unsubscribed()


async def test_a_fault_of_ours_is_counted_and_ends_no_subscription(engines, monkeypatch, caplog):
    engine, faults, now = engines(), [], [1.0]
    loaded = config(exact={})
    (producer,) = producers(loaded)
    told = []

    def breaks(event):
        told.append(event)
        raise KeyError(event.endpoint_id)

    monkeypatch.setattr(producer, "observe", breaks)
    feed = KVFeed(loaded.router, clock=lambda: now[0], failed=faults.append)
    feed.observe(Joined(at=0.0, endpoint=Endpoint(address="127.0.0.1", port=8000, kv_events_port=engine.port)))
    with caplog.at_level(logging.ERROR, "tessera.kv_events"):
        await engine.subscribed()
        await engine.publish(*RECORDED[0])
        await until(lambda: len(told) == 2)
        assert isinstance(told[0], KVCleared)
        assert faults == ["kv-events"] * 2
        assert len(caplog.records) == 1
        now[0] = 2.0
        await engine.publish(*RECORDED[1])
        await until(lambda: len(told) == 3)
    assert len(caplog.records) == 2
    await feed.close()
