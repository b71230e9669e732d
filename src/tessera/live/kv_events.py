"""What do the engines say of their KV caches? A ZMQ subscription for each endpoint and rank."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import zmq
import zmq.asyncio
from zmq.utils.monitor import parse_monitor_message

from tessera.core.facts import KVCleared, KVEvent
from tessera.core.matching.kv_parameters import KVEventsConfig
from tessera.core.matching.kv_wire import MAX_BATCH_BYTES, decode_batch
from tessera.core.types import Endpoint
from tessera.live.kv_sequence import BatchSequence, Heard

MAX_QUEUED_BATCHES: Final = 1024
"""Batches of one engine that wait to be read; the engine drops further ones, which shows as a gap."""
MAX_REPLAYED_BATCHES: Final = 100_000
"""Batches of one answer to a replay (vLLM keeps 10,000)."""
REPLAY_TIMEOUT_S: Final = 5.0
"""From one replayed batch to the next."""
RETRY_S: Final = 1.0
_SLICE = 256
"""Events that are told before other tasks have their turn; about 5 ms."""
_RECONNECT_MS, _RECONNECT_MAX_MS, _HEARTBEAT_MS = 100, 5000, 5000
_NUMBER_BYTES = 8

_log = logging.getLogger("tessera.kv_events")


@dataclass(slots=True)
class KVEventCounts:
    """What was heard, over all engines since the start."""

    num_batches: int = 0
    num_events: int = 0
    num_skipped_events: int = 0
    """Events of unknown kinds."""
    num_malformed: int = 0
    """Messages that are no batch."""
    num_gaps: int = 0
    """Times at which batches were missing."""
    num_replayed: int = 0
    """Batches that replays brought."""
    num_losses: int = 0
    """Times at which missing batches stayed missing: what was known of that engine was forgotten."""
    num_restarts: int = 0
    """Times at which an engine counted anew."""


@dataclass(slots=True)
class Subscription:
    """How one engine's subscription is doing."""

    endpoint_id: str
    rank: int
    is_connected: bool = False
    """Whether the engine's publisher is at the other end."""
    heard_at: float | None = None
    """When the last batch came, seconds on the clock; nothing before any did since the endpoint is followed."""


class KVEvents:
    """Subscribes to the endpoints that it is told of and hands on what they say.

    Memory: per engine ``MAX_QUEUED_BATCHES`` messages of at most ``MAX_BATCH_BYTES``,
    and four file descriptors.
    """

    def __init__(
        self,
        emit: Callable[[KVEvent], None],
        config: KVEventsConfig | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``emit`` is called on the loop, for each engine in the order of its events."""
        self.counts = KVEventCounts()
        self._emit = emit
        self._config = config or KVEventsConfig()
        self._clock = clock
        self._context = zmq.asyncio.Context()
        # Its own limit of 1,023 sockets is too few for some hundred engines.
        self._context.set(zmq.MAX_SOCKETS, self._context.get(zmq.SOCKET_LIMIT))
        self._followed: dict[str, _Followed] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """Subscriptions that have not ended, those of endpoints that were just left included."""
        return sum(len(each.tasks) for each in self._followed.values()) + len(self._ending)

    def subscriptions(self) -> list[Subscription]:
        """One for each engine of the endpoints that are followed."""
        return [each for followed in self._followed.values() for each in followed.subscriptions]

    def follow(self, endpoint: Endpoint) -> None:
        """Subscribe to an endpoint's engines; again where its ports have changed."""
        if not self._config.discover_pods:
            return
        sources = tuple(_sources(endpoint, self._config))
        if (known := self._followed.get(endpoint.id)) and known.sources == sources:
            return
        self.unfollow(endpoint.id)
        subscriptions = [Subscription(endpoint.id, rank) for rank in range(len(sources))]
        listening = map(self._listen, sources, subscriptions)
        tasks = [*map(asyncio.get_running_loop().create_task, listening)]
        self._followed[endpoint.id] = _Followed(sources, subscriptions, tasks)

    def unfollow(self, endpoint_id: str) -> None:
        """Drop an endpoint's subscriptions; nothing of it is told from here on."""
        followed = self._followed.pop(endpoint_id, None)
        for task in followed.tasks if followed else ():
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
            task.cancel()

    async def close(self) -> None:
        """Drop every subscription."""
        for endpoint_id in list(self._followed):
            self.unfollow(endpoint_id)
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._context.destroy(linger=0)

    async def _listen(self, source: "_Source", engine: Subscription) -> None:
        topic = self._config.topic_filter
        while True:
            try:
                await _Listener(source, engine, self._context, topic, self._tell, self.counts).run()
            except zmq.ZMQError as error:
                _log.warning("KV events of %s rank %d: %s", engine.endpoint_id, engine.rank, error)
            except Exception:
                _log.exception("KV events of %s rank %d", engine.endpoint_id, engine.rank)
            await asyncio.sleep(RETRY_S)

    async def _tell(self, engine: Subscription, payload: bytes | None) -> None:
        """Hand on a batch's events; nothing: the engine's cache is empty, or unknown."""
        at = self._clock()
        if payload is None:
            self._emit(KVCleared(at=at, endpoint_id=engine.endpoint_id, rank=engine.rank))
            return
        try:
            batch = decode_batch(payload, at=at, endpoint_id=engine.endpoint_id, rank=engine.rank)
        except ValueError as error:
            self.counts.num_malformed += 1
            _log.debug("KV events of %s rank %d: %s", engine.endpoint_id, engine.rank, error)
            self._emit(KVCleared(at=at, endpoint_id=engine.endpoint_id, rank=engine.rank))
            return
        engine.heard_at = at
        self.counts.num_batches += 1
        self.counts.num_events += len(batch.events)
        self.counts.num_skipped_events += batch.num_skipped
        for start in range(0, len(batch.events), _SLICE):
            for event in batch.events[start : start + _SLICE]:
                self._emit(event)
            await asyncio.sleep(0)


@dataclass(frozen=True, slots=True)
class _Source:
    """Where one engine publishes and replays."""

    address: str
    replay_address: str | None


def _sources(endpoint: Endpoint, config: KVEventsConfig) -> list[_Source]:
    host = endpoint.id.rpartition(":")[0]
    discovery = config.pod_discovery_config
    port = endpoint.kv_events_port or discovery.socket_port
    replay = endpoint.kv_replay_port or discovery.replay_socket_port
    return [
        _Source(
            f"tcp://{host}:{port + rank}",
            f"tcp://{host}:{replay + rank}" if replay is not None else None,
        )
        for rank in range(config.data_parallel_size)
    ]


@dataclass(frozen=True, slots=True)
class _Followed:
    """One endpoint's engines, by rank."""

    sources: tuple[_Source, ...]
    subscriptions: list[Subscription]
    tasks: list[asyncio.Task[None]]


class _Listener:
    """One engine's batches, in order."""

    def __init__(
        self,
        source: _Source,
        engine: Subscription,
        context: zmq.asyncio.Context,
        topic: str,
        tell: Callable[[Subscription, bytes | None], Awaitable[None]],
        counts: KVEventCounts,
    ) -> None:
        self._source = source
        self._engine = engine
        self._context = context
        self._topic = topic.encode()
        self._tell = tell
        self._counts = counts
        self._sequence = BatchSequence()

    async def run(self) -> None:
        """Listen until cancelled."""
        with self._socket(zmq.SUB) as socket, self._watched(socket):
            socket.connect(self._source.address)
            socket.setsockopt(zmq.SUBSCRIBE, self._topic)
            # A former subscription may have been told what is no longer true.
            await self._tell(self._engine, None)
            await self._catch_up()
            while True:
                message = _numbered(await _receive(socket))
                if message is None:
                    self._counts.num_malformed += 1
                else:
                    await self._take(*message)

    async def _take(self, number: int, payload: bytes) -> None:
        sequence = self._sequence
        heard = sequence.hear(number)
        is_first = sequence.due == 0 and heard is Heard.GAP
        if heard is Heard.BACKWARDS:
            self._counts.num_restarts += 1
            await self._tell(self._engine, None)
        elif heard is Heard.GAP and not is_first:
            self._counts.num_gaps += 1
        if number > sequence.due:
            await self._catch_up()
        if number < sequence.due:
            return
        if number > sequence.due:
            await self._lost()
        await self._apply(number, payload)

    async def _catch_up(self) -> None:
        """Apply what the engine still remembers of the batches that are due."""
        if self._source.replay_address is None:
            return
        sequence = self._sequence
        async with aclosing(self._replay(self._source.replay_address, sequence.due)) as batches:
            async for number, payload in batches:
                if number < sequence.due:
                    continue
                if number > sequence.due:
                    await self._lost()
                self._counts.num_replayed += 1
                await self._apply(number, payload)

    async def _lost(self) -> None:
        """Batches are missing for good: blocks may be gone of which we were not told."""
        if self._sequence.due:
            self._counts.num_losses += 1
            await self._tell(self._engine, None)

    async def _apply(self, number: int, payload: bytes) -> None:
        self._sequence.applied(number)
        await self._tell(self._engine, payload)

    async def _replay(self, address: str, start: int) -> AsyncGenerator[tuple[int, bytes], None]:
        with self._socket(zmq.DEALER) as socket, suppress(TimeoutError):
            socket.connect(address)
            await socket.send_multipart([b"", start.to_bytes(_NUMBER_BYTES, "big")])
            for _ in range(MAX_REPLAYED_BATCHES):
                async with asyncio.timeout(REPLAY_TIMEOUT_S):
                    frames = await _receive(socket)
                message = _numbered(frames[1:])
                if message is None:
                    return
                yield message

    @contextmanager
    def _watched(self, socket: zmq.asyncio.Socket) -> Iterator[None]:
        """Note whether a socket that has not connected yet is connected, for as long as this lasts."""
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        task = asyncio.get_running_loop().create_task(self._watch(monitor))
        try:
            yield
        finally:
            task.cancel()
            self._engine.is_connected = False
            socket.disable_monitor()
            monitor.close()

    async def _watch(self, monitor: zmq.asyncio.Socket) -> None:
        while True:
            event = parse_monitor_message(await monitor.recv_multipart())
            self._engine.is_connected = event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED

    def _socket(self, kind: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        options = {
            zmq.LINGER: 0,
            zmq.RCVHWM: MAX_QUEUED_BATCHES,
            zmq.MAXMSGSIZE: MAX_BATCH_BYTES,
            zmq.RECONNECT_IVL: _RECONNECT_MS,
            zmq.RECONNECT_IVL_MAX: _RECONNECT_MAX_MS,
            zmq.HEARTBEAT_IVL: _HEARTBEAT_MS,
            zmq.IPV6: int("[" in self._source.address),
        }
        for option, value in options.items():
            socket.setsockopt(option, value)
        return socket


async def _receive(socket: zmq.asyncio.Socket) -> list[bytes]:
    """The next message. Other tasks have their turn before it, though it be there already."""
    await asyncio.sleep(0)
    return await socket.recv_multipart()


def _numbered(frames: list[bytes]) -> tuple[int, bytes] | None:
    """A batch's number and payload; nothing for anything else, and for the end of a replay."""
    if len(frames) != 3 or len(frames[1]) != _NUMBER_BYTES:
        return None
    number = int.from_bytes(frames[1], "big", signed=True)
    return (number, frames[2]) if number >= 0 else None
