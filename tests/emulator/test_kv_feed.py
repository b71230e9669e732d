"""Does whoever subscribes learn what the cache holds, also when it comes late?"""

import asyncio
from dataclasses import replace

import aiohttp
import pytest
import zmq
import zmq.asyncio

from tessera.core.facts import KVCleared, KVStored
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, block_key
from tessera.core.matching.kv_wire import decode_batch
from tessera.core.types import Endpoint
from tessera.emulator import Emulator, KVEventSettings, kv_feed
from tessera.engine.profiles import PROFILES
from tessera.live.kv_events import KVEvents

SMALL = replace(PROFILES["h200-tp2-qwen3-vl-32b"], block_size=16, num_blocks=40)
PROMPT = list(range(40))


@pytest.fixture
async def publishing(settings):
    own = KVEventSettings(hash_seed="7", hash_algorithm=HashAlgorithm.SHA256_CBOR)
    async with Emulator(replace(settings, profile=SMALL, max_model_len=0, kv_events=own)) as running:
        yield running


async def complete(emulator, prompt, max_tokens=1):
    body = {"prompt": prompt, "max_tokens": max_tokens}
    async with aiohttp.ClientSession() as http, http.post(f"{emulator.url}/v1/completions", json=body) as answer:
        assert answer.status == 200
        return (await answer.json())["usage"]["prompt_tokens_details"]["cached_tokens"]


async def replayed(emulator, start):
    """Numbers and events of what the replay remembers from ``start`` on."""
    with zmq.asyncio.Context() as context, context.socket(zmq.DEALER) as socket:
        socket.connect(f"tcp://127.0.0.1:{emulator.ports['kv_replay']}")
        for malformed in ([b""], [b"", b"?"], [b"", b"", b"", b""]):
            await socket.send_multipart(malformed)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        found = []
        async with asyncio.timeout(10):
            while True:
                empty, topic, number, batch = await socket.recv_multipart()
                assert empty == b""
                if int.from_bytes(number, "big", signed=True) == -1:
                    assert (topic, batch) == (b"", b"")
                    return found
                assert topic == f"kv@127.0.0.1:{emulator.port}@tiny-qwen3-vl".encode()
                events = decode_batch(batch, at=0.0, endpoint_id="e").events
                found.append((int.from_bytes(number, "big"), [type(event) for event in events]))


async def test_the_routers_own_subscriber_follows(publishing, until):
    heard = []
    subscriber = KVEvents(heard.append)
    ports = publishing.ports
    subscriber.follow(
        Endpoint(address="127.0.0.1", port=1, kv_events_port=ports["kv_events"], kv_replay_port=ports["kv_replay"])
    )
    (state,) = subscriber.subscriptions()
    await until(lambda: state.is_connected)
    assert await complete(publishing, PROMPT) == 0
    await until(lambda: any(isinstance(event, KVStored) for event in heard))
    (stored,) = (event for event in heard if isinstance(event, KVStored))
    hashes = BlockHasher(HashAlgorithm.SHA256_CBOR, "7").hashes(PROMPT, 16)
    assert stored.block_hashes == tuple(map(block_key, hashes))
    assert stored.token_ids == tuple(PROMPT[:32])
    assert (stored.parent_block_hash, stored.block_size) == (None, 16)
    # What is there is not told again.
    assert await complete(publishing, PROMPT) == 32
    async with aiohttp.ClientSession() as http, http.post(f"{publishing.url}/reset_prefix_cache") as answer:
        assert await answer.json() == {"success": True}
    await until(lambda: isinstance(heard[-1], KVCleared))
    assert await complete(publishing, PROMPT) == 0
    await until(lambda: isinstance(heard[-1], KVStored))
    assert heard[-1].block_hashes == stored.block_hashes
    assert (subscriber.counts.num_gaps, subscriber.counts.num_malformed) == (0, 0)
    await subscriber.close()


async def test_who_missed_something_asks_again(publishing):
    assert await replayed(publishing, 0) == []
    for first in range(3):
        await complete(publishing, range_of(first))
    assert await replayed(publishing, 0) == [(number, [KVStored]) for number in range(3)]
    assert await replayed(publishing, 2) == [(2, [KVStored])]
    assert await replayed(publishing, 3) == []


def range_of(first):
    return list(range(1000 * first, 1000 * first + 40))


@pytest.mark.parametrize(("limit", "kept"), [("BUFFER_BATCHES", 2), ("BUFFER_BYTES", 2)])
async def test_what_is_remembered_is_bounded(publishing, monkeypatch, limit, kept):
    await complete(publishing, range_of(9))
    size = publishing._kv_feed._buffer_bytes
    monkeypatch.setattr(kv_feed, limit, kept if limit == "BUFFER_BATCHES" else kept * (size + 40))
    for first in range(1, 5):
        await complete(publishing, range_of(first))
    assert [number for number, _ in await replayed(publishing, 0)] == [3, 4]


async def test_a_taken_port_is_an_error_and_leaves_none_open(publishing, settings):
    own = KVEventSettings(port=publishing.ports["kv_events"])
    taken = Emulator(replace(settings, kv_events=own))
    with pytest.raises(OSError, match="in use"):
        async with taken:
            pass
    with pytest.raises(OSError, match=r"closed|descriptor"):
        _ = taken.port


async def test_no_ports_where_nothing_is_published(emulator):
    assert emulator.ports == {"http": emulator.port}
