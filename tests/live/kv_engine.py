"""An engine as its KV events show it: a publisher and a replay, on loopback."""

import asyncio

import zmq
import zmq.asyncio

from tessera.core.types import Endpoint

TOPIC = "kv@engine@model"
END = (-1).to_bytes(8, "big", signed=True)


class Engine:
    """Publishes and replays batches as vLLM does, on loopback."""

    def __init__(self, context, port):
        self.history = []
        self.asked = []
        self.publisher = context.socket(zmq.XPUB)
        self.publisher.setsockopt(zmq.LINGER, 0)
        # A subscriber that comes back subscribes anew, and each one's end is told.
        self.publisher.setsockopt(zmq.XPUB_VERBOSER, 1)
        try:
            self.port = self._bind(self.publisher, port)
        except zmq.ZMQError:
            self.publisher.close()
            raise
        self.router = context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.LINGER, 0)
        self.replay_port = self._bind(self.router, None)
        self.answering = asyncio.get_running_loop().create_task(self._answer())

    @staticmethod
    def _bind(socket, port):
        if port is None:
            return socket.bind_to_random_port("tcp://127.0.0.1")
        socket.bind(f"tcp://127.0.0.1:{port}")
        return port

    async def subscribed(self):
        """Wait for a subscription; its topic filter."""
        return await self._heard(b"\x01")

    async def unsubscribed(self):
        """Wait for the end of one, as when its socket is closed; its topic filter."""
        return await self._heard(b"\x00")

    async def _heard(self, sign):
        while (frame := await asyncio.wait_for(self.publisher.recv(), 10))[:1] != sign:
            pass
        return frame[1:].decode()

    async def publish(self, number, payload, topic=TOPIC, *, remember=True, send=True):
        if remember:
            self.history.append((topic, number, payload))
        if send:
            await self.publisher.send_multipart([topic.encode(), number.to_bytes(8, "big"), payload])

    async def _answer(self):
        while True:
            client, _, start = await self.router.recv_multipart()
            self.asked.append(int.from_bytes(start, "big"))
            for topic, number, payload in list(self.history):
                if number >= self.asked[-1]:
                    head = [client, b"", topic.encode(), number.to_bytes(8, "big")]
                    await self.router.send_multipart([*head, payload])
            await self.router.send_multipart([client, b"", b"", END, b""])

    def stop(self):
        self.answering.cancel()
        self.publisher.close()
        self.router.close()


async def until(holds):
    """Let everything else run until something holds."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0)


def endpoint_of(engine, *, replays=True):
    return Endpoint(
        address="127.0.0.1",
        port=8000,
        kv_events_port=engine.port,
        kv_replay_port=engine.replay_port if replays else None,
    )
