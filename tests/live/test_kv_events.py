import asyncio
import json
import resource
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import zmq
import zmq.asyncio

from tessera.core.facts import Joined, KVCleared, KVRemoved, KVStored
from tessera.core.matching.kv_parameters import KVEventsConfig, PodDiscoveryConfig
from tessera.core.matching.kv_wire import encode_batch
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer
from tessera.core.types import Endpoint
from tessera.live.kv_events import KVEvents

from .kv_engine import END, endpoint_of, until

LINES = (Path(__file__).parents[1] / "data" / "kv" / "events.jsonl").read_text().splitlines()
RECORDED = [(row["topic"], row["seq"], bytes.fromhex(row["payload_hex"])) for row in map(json.loads, LINES)]


class Listener:
    """Collects what is emitted; waits until something holds."""

    def __init__(self, **config):
        self.events = []
        self._changed = asyncio.Event()
        self.kv = KVEvents(self._take, KVEventsConfig(**config), clock=lambda: 1.0)

    def _take(self, event):
        self.events.append(event)
        self._changed.set()

    async def until(self, holds):
        async with asyncio.timeout(10):
            while not holds(self.events):
                self._changed.clear()
                await self._changed.wait()

    def of(self, kind):
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def listeners():
    made = []

    def make(**config):
        made.append(Listener(**config))
        return made[-1]

    yield make
    for each in made:
        await each.kv.close()


def batch(*hashes, endpoint_id="x"):
    event = KVStored(at=0.0, endpoint_id=endpoint_id, block_hashes=hashes, token_ids=(1, 2) * len(hashes), block_size=2)
    return encode_batch([event], ts=0.0)


def has_stored(block_hash):
    return lambda events: any(isinstance(each, KVStored) and block_hash in each.block_hashes for each in events)


async def test_recorded_batches_arrive_in_order_and_fill_the_index(engines, listeners):
    engine, listener = engines(), listeners()
    endpoint = endpoint_of(engine)
    listener.kv.follow(endpoint)
    assert await engine.subscribed() == "kv@"
    for _, number, payload in RECORDED[:5]:
        await engine.publish(number, payload)
    await listener.until(lambda events: sum(isinstance(each, KVStored) for each in events) == 5)
    assert listener.of(KVStored)[0].block_hashes[0] == 9347024127733473122
    assert {(each.endpoint_id, each.rank, each.at) for each in listener.events} == {("127.0.0.1:8000", 0, 1.0)}
    producer = PrecisePrefixCacheProducer(hash_seed="0")
    producer.observe(Joined(at=0.0, endpoint=endpoint))
    for event in listener.events:
        producer.observe(event)
    # 4 blocks of text, 4 of salted text, 10 of the picture; one is stored a second time.
    assert producer.index.num_blocks == 18
    assert listener.kv.counts.num_losses == listener.kv.counts.num_malformed == 0


async def test_what_was_stored_before_is_replayed(engines, listeners):
    engine, listener = engines(), listeners()
    for _, number, payload in RECORDED[:3]:
        await engine.publish(number, payload, send=False)
    listener.kv.follow(endpoint_of(engine))
    await listener.until(lambda events: sum(isinstance(each, KVStored) for each in events) == 3)
    assert engine.asked == [0]
    assert listener.kv.counts.num_replayed == 3


async def test_a_gap_is_filled_by_a_replay(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine))
    await engine.subscribed()
    await engine.publish(0, batch(10))
    await listener.until(has_stored(10))
    await engine.publish(1, batch(11), send=False)
    await engine.publish(2, batch(12))
    await engine.publish(3, batch(13))
    await listener.until(has_stored(13))
    assert [each.block_hashes for each in listener.of(KVStored)] == [(10,), (11,), (12,), (13,)]
    assert len(listener.of(KVCleared)) == 1
    assert (listener.kv.counts.num_gaps, listener.kv.counts.num_losses) == (1, 0)
    assert engine.asked == [0, 1]


@pytest.mark.parametrize("replays", [True, False])
async def test_what_is_lost_clears_the_engine(engines, listeners, replays):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine, replays=replays))
    await engine.subscribed()
    await engine.publish(0, batch(10))
    await listener.until(has_stored(10))
    engine.history.clear()
    await engine.publish(5, batch(15))
    await listener.until(has_stored(15))
    assert [type(each) for each in listener.events] == [KVCleared, KVStored, KVCleared, KVStored]
    assert (listener.kv.counts.num_gaps, listener.kv.counts.num_losses) == (1, 1)


async def test_a_late_start_without_replay_is_no_loss(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine, replays=False))
    await engine.subscribed()
    await engine.publish(7, batch(17))
    await listener.until(has_stored(17))
    assert listener.kv.counts.num_gaps == listener.kv.counts.num_losses == 0


async def test_numbers_that_go_backwards_clear_the_engine(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine))
    await engine.subscribed()
    for number in range(3):
        await engine.publish(number, batch(10 + number))
    await listener.until(has_stored(12))
    engine.history.clear()
    await engine.publish(0, batch(20), send=False)
    await engine.publish(1, batch(21))
    await listener.until(has_stored(21))
    assert [each.block_hashes for each in listener.of(KVStored)][3:] == [(20,), (21,)]
    assert isinstance(listener.events[-3], KVCleared)
    assert listener.kv.counts.num_restarts == 1


async def test_an_engine_that_comes_back_is_heard_again(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine, replays=False))
    await engine.subscribed()
    await engine.publish(0, batch(10))
    await listener.until(has_stored(10))
    engine.publisher.close()
    again = None
    async with asyncio.timeout(10):
        while again is None:
            # ZMQ gives a port back in a thread of its own.
            await asyncio.sleep(0)
            with suppress(zmq.ZMQError):
                again = engines(engine.port)
    await again.subscribed()
    await again.publish(0, batch(20))
    await listener.until(has_stored(20))
    assert len(listener.of(KVCleared)) == 2


async def test_other_topics_are_not_heard_and_nonsense_is_survived(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine, replays=False))
    await engine.subscribed()
    await engine.publish(0, batch(1), topic="other")
    await engine.publisher.send_multipart([b"kv@", b"short", b""])
    await engine.publisher.send_multipart([b"kv@", END, b""])
    await engine.publish(0, b"\xc1 no batch")
    await engine.publish(1, msgspec.msgpack.encode([0.0, [["Unknown"], ["BlockRemoved", [4]]]]))
    await listener.until(lambda events: any(isinstance(each, KVRemoved) for each in events))
    assert [type(each) for each in listener.events] == [KVCleared, KVCleared, KVRemoved]
    assert (listener.kv.counts.num_malformed, listener.kv.counts.num_skipped_events) == (3, 1)


async def test_ranks_have_ports_of_their_own(engines, listeners):
    first, second = engines(), None
    while second is None:
        # Somebody else may have the next port.
        with suppress(zmq.ZMQError):
            second = engines(first.port + 1)
        first = first if second else engines()
    listener = listeners(data_parallel_size=2)
    listener.kv.follow(endpoint_of(first, replays=False))
    await first.subscribed()
    await second.subscribed()
    await second.publish(0, batch(20))
    await listener.until(has_stored(20))
    assert listener.of(KVStored)[0].rank == 1


async def test_the_plugins_ports_serve_where_the_endpoint_names_none(engines, listeners):
    engine = engines()
    discovery = PodDiscoveryConfig(socket_port=engine.port, replay_socket_port=engine.replay_port)
    listener = listeners(pod_discovery_config=discovery, topic_filter="")
    await engine.publish(0, batch(10), send=False)
    listener.kv.follow(Endpoint(address="127.0.0.1", port=8000))
    assert await engine.subscribed() == ""
    await listener.until(has_stored(10))


async def test_following_twice_and_leaving(engines, listeners):
    engine, listener = engines(), listeners()
    endpoint = endpoint_of(engine, replays=False)
    listener.kv.follow(endpoint)
    listener.kv.follow(replace(endpoint, labels={"a": "b"}))
    await engine.subscribed()
    other = engines()
    listener.kv.follow(endpoint_of(other, replays=False))
    await other.subscribed()
    await other.publish(0, batch(30))
    await listener.until(has_stored(30))
    listener.kv.unfollow(endpoint.id)
    listener.kv.unfollow("unknown")
    assert len(listener.of(KVCleared)) == 2


async def test_nobody_is_subscribed_to_where_discovery_is_off(listeners):
    listener = listeners(discover_pods=False)
    listener.kv.follow(Endpoint(address="127.0.0.1", port=8000))
    assert listener.events == []


async def test_each_subscription_says_whether_the_engine_is_there_and_was_heard(engines, listeners):
    engine, listener = engines(), listeners()
    listener.kv.follow(endpoint_of(engine, replays=False))
    (state,) = listener.kv.subscriptions()
    assert (state.endpoint_id, state.rank, state.is_connected, state.heard_at) == ("127.0.0.1:8000", 0, False, None)
    await until(lambda: state.is_connected)
    await engine.subscribed()
    await engine.publish(0, b"\xc1 no batch")
    await listener.until(lambda events: len(events) == 2)
    assert state.heard_at is None
    await engine.publish(1, batch(1))
    await listener.until(has_stored(1))
    assert state.heard_at == 1.0
    engine.publisher.close()
    await until(lambda: not state.is_connected)


async def test_in_the_middle_of_a_batch_an_endpoint_leaves_and_nothing_more_is_told(engines, listeners):
    engine, listener = engines(), listeners()
    endpoint = endpoint_of(engine)
    listener.kv.follow(endpoint)
    await engine.subscribed()
    events = [KVRemoved(at=0.0, endpoint_id="x", block_hashes=(number,)) for number in range(1000)]
    await engine.publish(0, encode_batch(events, ts=0.0))
    await listener.until(lambda told: len(told) > 1)
    listener.kv.unfollow(endpoint.id)
    # The first slice, behind the KVCleared of the beginning.
    assert len(listener.events) == 1 + 256
    assert listener.kv.subscriptions() == []
    assert await engine.unsubscribed() == "kv@"
    await until(lambda: len(listener.kv) == 0)
    assert len(listener.events) == 1 + 256


async def test_ten_thousand_joins_and_leaves_leave_no_subscription(listeners):
    listener = listeners()
    known = set(asyncio.all_tasks())
    for number in range(10_000):
        endpoint = Endpoint(address="127.0.0.1", port=1 + number, kv_events_port=9)
        listener.kv.follow(endpoint)
        if number % 50 == 0:
            # This one has opened its sockets when it goes.
            await listener.until(lambda events, name=endpoint.id: any(each.endpoint_id == name for each in events))
        listener.kv.unfollow(endpoint.id)
    assert len(listener.kv) <= 51
    await until(lambda: len(listener.kv) == 0)
    assert listener.kv.subscriptions() == []
    await until(lambda: set(asyncio.all_tasks()) <= known)
    assert len(listener.events) == 200


async def test_more_engines_than_a_context_has_sockets_for_by_itself(listeners):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 4096:
        pytest.skip("this machine allows a process fewer than 4,096 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4096), hard))
    listener = listeners(data_parallel_size=64)
    for port in range(1, 9):
        listener.kv.follow(Endpoint(address="127.0.0.1", port=port, kv_events_port=65_472))
    await listener.until(lambda events: len({(each.endpoint_id, each.rank) for each in events}) == 512)
    assert len(listener.kv.subscriptions()) == 512
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
