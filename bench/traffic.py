"""Who asks and who answers in the benchmarks of the whole road? One process each, as cheap as Python allows.

Neither is measured, but both share the machine with what is: an answerer that looks
at nothing but lengths, and clients that send one prepared request again and again.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple, cast

import uvloop

PAGE = Path(__file__).parent.parent / "tests/live/data/vllm-metrics.txt"
FIRST_TOKENS = re.compile(rb"(\nvllm:time_to_first_token_seconds_count\{[^}]*\} )(\S+)")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CHUNKED_END = b"\r\n0\r\n\r\n"
"""What a body without a length ends with; no JSON text holds it."""
USAGE = b'{"prompt_tokens":120,"total_tokens":128,"completion_tokens":8}'
ANSWER = b'{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"m","choices":[],"usage":' + USAGE + b"}"
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


class Endpoint:
    """A server that answers every POST at once, and GET with a vLLM's metrics page."""

    def __init__(self) -> None:
        page = PAGE.read_bytes()
        count = FIRST_TOKENS.search(page)
        assert count is not None
        self._before, self._after = page[: count.start(2)], page[count.end(2) :]
        self.num_answered = 0

    def page(self) -> bytes:
        """The recorded page with its count of first tokens kept true."""
        page = b"%s%d.0%s" % (self._before, self.num_answered, self._after)
        return b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n\r\n%s" % (len(page), page)


class Connected(asyncio.Protocol):
    """One connection to an endpoint; no request comes before the last is answered."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._head = b""
        self._num_left: int | None = None
        self._tail = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if self._num_left is None:
            self._head += data
            head, ended, data = self._head.partition(b"\r\n\r\n")
            if not ended:
                return
            if head.startswith(b"GET"):
                self._head = b""
                self._transport.write(self._endpoint.page())
                return
            length = LENGTH.search(head)
            # Without a length the body is chunked: it has as many bytes left as it takes.
            self._num_left = int(length[1]) if length else 1 << 62
        self._num_left -= len(data)
        self._tail = (self._tail + data[-len(CHUNKED_END) :])[-len(CHUNKED_END) :]
        if self._num_left == 0 or (self._num_left > 1 << 61 and self._tail == CHUNKED_END):
            self._head, self._num_left, self._tail = b"", None, b""
            self._endpoint.num_answered += 1
            self._transport.write(REPLY)


def play_endpoints(num_endpoints: int, ports: Connection) -> None:
    """Serve until killed; sends the ports first."""

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        makers = [partial(Connected, Endpoint()) for _ in range(num_endpoints)]
        servers = [await loop.create_server(maker, "127.0.0.1", 0) for maker in makers]
        ports.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(serve())


class Job(NamedTuple):
    """What the clients are to do."""

    port: int
    body: str
    num_clients: int
    window_s: float


class Done(NamedTuple):
    """What they did."""

    latencies_s: list[float]
    elapsed_s: float
    num_errors: int


class Client(asyncio.Protocol):
    """One keep-alive connection: the same request until ``ends_at``, each as soon as the last is answered."""

    def __init__(self, request: bytes, ends_at: float) -> None:
        self._request = request
        self._ends_at = ends_at
        self._answer = b""
        self.latencies_s: list[float] = []
        self.num_errors = 0
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, ended, body = self._answer.partition(b"\r\n\r\n")
        length = LENGTH.search(head) if ended else None
        if length is None or len(body) < int(length[1]):
            return
        now = time.perf_counter()
        self.latencies_s.append(now - self._sent_at)
        self.num_errors += not (head.startswith(b"HTTP/1.1 200") and body == ANSWER)
        if now < self._ends_at:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.num_errors += time.perf_counter() < self._ends_at
        self.ended.set_result(None)

    def _send(self) -> None:
        self._answer = b""
        self._sent_at = time.perf_counter()
        self._transport.write(self._request)


def play_clients(bodies: Mapping[str, bytes], jobs: Connection) -> None:
    """Do each Job that comes and answer with its Done, until killed."""
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: "
    requests = {name: f"{head}{len(body)}\r\n\r\n".encode() + body for name, body in bodies.items()}

    async def work(job: Job) -> Done:
        loop = asyncio.get_running_loop()
        began = time.perf_counter()
        make = partial(Client, requests[job.body], began + job.window_s)
        opened = [await loop.create_connection(make, "127.0.0.1", job.port) for _ in range(job.num_clients)]
        clients = [client for _, client in opened]
        await asyncio.gather(*(client.ended for client in clients))
        latencies_s = [each for client in clients for each in client.latencies_s]
        return Done(latencies_s, time.perf_counter() - began, sum(client.num_errors for client in clients))

    async def serve() -> None:
        while True:
            jobs.send(await work(jobs.recv()))

    uvloop.run(serve())
