"""Who is told what the engine's KV cache holds? Subscribers over ZMQ, as vLLM tells them, and who missed something."""

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import Final

import zmq
import zmq.asyncio

from tessera.core.matching.block_keys import BlockHasher
from tessera.core.matching.kv_wire import encode_batch
from tessera.emulator.kv_names import BlockNames
from tessera.emulator.prompts import EnginePrompt
from tessera.emulator.settings import EmulatorSettings, KVEventSettings
from tessera.engine.events import KVEvent
from tessera.engine.requests import EngineRequest

BUFFER_BATCHES: Final = 10_000
"""Batches that are replayed at most, the last ones. Source: vLLM's ``buffer_steps``."""
BUFFER_BYTES: Final = 64 << 20
"""Bytes that all of them have together; the oldest go first."""
MAX_QUEUED: Final = 100_000
"""Batches that wait for one subscriber; further ones are dropped. Source: vLLM's ``hwm``."""
_NUMBER_BYTES = 8
_END = (-1).to_bytes(_NUMBER_BYTES, "big", signed=True)


class KVFeed:
    """One engine's publisher and replay.

    A message is ``[topic, number, batch]``: the number counts from 0, 8 bytes, big-endian. A
    replay is asked for with the first number that is wanted and ends with the number -1.
    Source: vLLM 0.32, ``vllm/distributed/kv_events.py``.
    """

    def __init__(self, settings: EmulatorSettings, kv_events: KVEventSettings, *, topic: str) -> None:
        """Bind both sockets; an OSError where a port is taken."""
        hasher = BlockHasher(kv_events.hash_algorithm, kv_events.hash_seed)
        self._names = BlockNames(hasher, settings.profile.block_size)
        self._topic = topic.encode()
        self._context = zmq.Context()
        self._publisher = self._context.socket(zmq.PUB)
        self._replayer = zmq.asyncio.Context(self._context).socket(zmq.ROUTER)
        self._next_number = 0
        self._buffer: deque[tuple[int, bytes]] = deque()
        self._buffer_bytes = 0
        try:
            self.port = _bind(self._publisher, settings.host, kv_events.port, MAX_QUEUED)
            self.replay_port = _bind(self._replayer, settings.host, kv_events.replay_port, BUFFER_BATCHES + 1)
        except zmq.ZMQError as error:
            self._end()
            raise OSError(error.errno, f"KV events on {settings.host}: {error.strerror}") from None
        self._replaying = asyncio.get_running_loop().create_task(self._replay())

    def expect(self, request: EngineRequest, prompt: EnginePrompt) -> None:
        """A request whose blocks the engine may tell of from now on."""
        self._names.expect(request, prompt)

    def forget(self, request_id: str) -> None:
        """The engine tells no more of a request's blocks."""
        self._names.forget(request_id)

    def tell(self, told: Sequence[KVEvent]) -> None:
        """Publish one batch, unless nothing was told."""
        if not told:
            return
        batch = encode_batch(self._names.published(told), ts=time.time())
        number, self._next_number = self._next_number, self._next_number + 1
        self._buffer.append((number, batch))
        self._buffer_bytes += len(batch)
        while len(self._buffer) > BUFFER_BATCHES or self._buffer_bytes > BUFFER_BYTES:
            self._buffer_bytes -= len(self._buffer.popleft()[1])
        # A publisher never blocks.
        self._publisher.send_multipart([self._topic, number.to_bytes(_NUMBER_BYTES, "big"), batch])

    async def close(self) -> None:
        """Let go of the ports."""
        self._replaying.cancel()
        await asyncio.gather(self._replaying, return_exceptions=True)
        self._end()

    def _end(self) -> None:
        self._publisher.close()
        self._replayer.close()
        self._context.term()

    async def _replay(self) -> None:
        while True:
            frames = await self._replayer.recv_multipart()
            if len(frames) != 3 or len(frames[2]) != _NUMBER_BYTES:
                continue
            head, start = [frames[0], b""], int.from_bytes(frames[2], "big")
            for number, batch in list(self._buffer):
                if number >= start:
                    await self._replayer.send_multipart(
                        [*head, self._topic, number.to_bytes(_NUMBER_BYTES, "big"), batch]
                    )
            await self._replayer.send_multipart([*head, b"", _END, b""])


def _bind(socket: "zmq.Socket[bytes] | zmq.asyncio.Socket", host: str, port: int, max_queued: int) -> int:
    """Bind, 0 meaning any port; the port."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.SNDHWM, max_queued)
    socket.setsockopt(zmq.IPV6, int(":" in host))
    place = f"[{host}]" if ":" in host else host
    socket.bind(f"tcp://{place}:{port or '*'}")
    bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]
    return int(bound.rstrip(b"\0").rpartition(b":")[2])
