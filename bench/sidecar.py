"""What does a sidecar cost a request and a chunk of a stream, beside the same engine without it?

    python bench/sidecar.py [--write bench/results/sidecar.json]

``tessera sidecar`` before an engine that answers at once, and three encoders that do. CPU of
the sidecar's process in nanoseconds from /proc/PID/task/*/schedstat, divided by the requests or chunks of a
window; a chunk's cost is that of a long stream less that of a short one. Time to the first
body byte with one request in flight, with the sidecar and without it in turn. Medians of
the windows. Linux only.
"""

import asyncio
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import uvloop

from bodies import LONG, PICTURES, SHORT, all_bodies
from report import arguments, as_text, headed, keep

NUM_WINDOWS = 5
NUM_REQUESTS = {SHORT: 400, LONG: 200, PICTURES: 40}
"""Of a window, by body."""
NUM_STREAMS = 16
NUM_CHUNKS = 200
CHUNK_PAUSE_S = 0.01
NUM_FIRST_TOKENS = 300
NUM_ENCODERS = 3
STREAM = "x-chunks"
"""The header by which the engine is told how many chunks to send."""

_EVENT = json.dumps({"id": "chatcmpl-1", "choices": [{"index": 0, "delta": {"content": " word"}}]})
CHUNK = f"data: {_EVENT}\n\n".encode()
REFERENCE = {"peer_host": "127.0.0.1", "peer_port": 5601, "size_bytes": 8, "shape": [1, 8]}
ANSWER = json.dumps({"choices": [], "ec_transfer_params": {"name": REFERENCE}}).encode()
REPLY = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)
STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One connection to an engine or an encoder."""
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(field(head, b"content-length") or 0))
            num_chunks = field(head, STREAM.encode())
            if num_chunks is None:
                writer.write(REPLY)
                continue
            writer.write(STREAM_HEAD)
            for index in range(int(num_chunks)):
                if index:
                    await asyncio.sleep(CHUNK_PAUSE_S)
                writer.write(b"%x\r\n%s\r\n" % (len(CHUNK), CHUNK))
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


def field(head: bytes, name: bytes) -> bytes | None:
    """A header's value."""
    _, found, rest = head.partition(b"\r\n" + name + b":")
    return rest.partition(b"\r\n")[0].strip() if found else None


def engines(ready: Connection) -> None:
    """The engine and the encoders, in a process of their own."""

    async def serve() -> None:
        servers = [await asyncio.start_server(answer, "127.0.0.1", 0, limit=1 << 20) for _ in range(1 + NUM_ENCODERS)]
        ready.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(serve())


@contextmanager
def running() -> Iterator[tuple[int, int, int, list[int]]]:
    """The sidecar's process id and port, the engine's port, the encoders' ports."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=engines, args=(theirs,), daemon=True)
    process.start()
    engine, *encoders = ours.recv()
    flags = ["--port", "0", "--bind", "127.0.0.1", "--model-server-port", str(engine), "--ec-connector", "ec-nixl"]
    command = [sys.executable, "-m", "tessera.cli.main", "sidecar", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as sidecar:
        try:
            assert sidecar.stdout is not None
            yield sidecar.pid, json.loads(sidecar.stdout.readline())["ports"]["http"], engine, encoders
        finally:
            sidecar.terminate()
            sidecar.wait(10)
            process.terminate()


def cpu_us(pid: int) -> float:
    """CPU of all threads of a process so far."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


class Client:
    """One connection, one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> "Client":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 20)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(self, body: bytes, extra: str = "") -> float:
        """Send a request and read its whole answer; seconds to the first byte of the answer's body."""
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n{extra}\r\n"
        began = time.perf_counter()
        self._writer.write(head.encode() + body)
        answered = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        assert answered.startswith(b"http/1.1 200"), answered
        length = field(answered, b"content-length")
        if length is not None:
            await self._reader.readexactly(1)
            took = time.perf_counter() - began
            await self._reader.readexactly(int(length) - 1)
            return took
        await self._reader.readuntil(b"\r\n")
        took = time.perf_counter() - began
        await self._reader.readuntil(b"\r\n0\r\n\r\n")
        return took


def encoders_header(encoders: list[int]) -> str:
    """What sends three pictures to three encoders."""
    return f"x-encoder-hosts-ports: {','.join(f'127.0.0.1:{port}' for port in encoders)}\r\n"


async def request_us(pid: int, port: int, body: bytes, count: int, extra: str) -> float:
    """CPU of the sidecar for one request."""
    windows = []
    async with Client(port) as client:
        await client.ask(body, extra)
        for _ in range(NUM_WINDOWS):
            before = cpu_us(pid)
            for _ in range(count):
                await client.ask(body, extra)
            windows.append((cpu_us(pid) - before) / count)
    return round(median(windows), 1)


async def streams_us(pid: int, port: int, body: bytes, num_chunks: int) -> float:
    """CPU of the sidecar for one stream of so many chunks, of ``NUM_STREAMS`` at once."""

    async def one() -> None:
        async with Client(port) as client:
            await client.ask(body, f"{STREAM}: {num_chunks}\r\n")

    windows = []
    for _ in range(NUM_WINDOWS):
        before = cpu_us(pid)
        await asyncio.gather(*(one() for _ in range(NUM_STREAMS)))
        windows.append((cpu_us(pid) - before) / NUM_STREAMS)
    return median(windows)


async def first_token_ms(with_port: int, without_port: int, body: bytes, extra: str) -> dict[str, float]:
    """Time to the first byte of the body, one request in flight, with and without the sidecar in turn."""
    times: dict[str, list[float]] = {"with": [], "without": []}
    async with Client(with_port) as there, Client(without_port) as direct:
        for _ in range(NUM_FIRST_TOKENS):
            times["with"].append(await there.ask(body, extra))
            times["without"].append(await direct.ask(body, extra))
    middle = {name: median(each) * 1000 for name, each in times.items()}
    added = middle["with"] - middle["without"]
    return {name: round(each, 3) for name, each in (middle | {"added": added}).items()}


async def measure(pid: int, port: int, engine: int, encoders: list[int]) -> dict[str, Any]:
    """Every figure."""
    bodies, encode = all_bodies(), encoders_header(encoders)
    one_chunk = f"{STREAM}: 1\r\n"
    requests = {name: await request_us(pid, port, bodies[name], count, "") for name, count in NUM_REQUESTS.items()}
    encoded = f"{PICTURES}, encoded by 3"
    requests[encoded] = await request_us(pid, port, bodies[PICTURES], NUM_REQUESTS[PICTURES], encode)
    short, long = [await streams_us(pid, port, bodies[SHORT], count) for count in (1, 1 + NUM_CHUNKS)]
    first_tokens = {name: await first_token_ms(port, engine, bodies[name], one_chunk) for name in NUM_REQUESTS}
    return {
        "request_us": requests,
        "chunk_us": round((long - short) / NUM_CHUNKS, 1),
        "first_byte_ms": first_tokens,
    }


def main() -> None:
    options = arguments(__doc__).parse_args()
    with running() as (pid, port, engine, encoders):
        measured = uvloop.run(measure(pid, port, engine, encoders))
    result = headed("What does a sidecar cost?") | {"unit": "us of CPU, ms to the first byte"} | measured
    print(as_text(result), end="")
    keep(result, options.write)


if __name__ == "__main__":
    main()
