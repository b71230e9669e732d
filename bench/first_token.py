"""What does the true first-token time from Envoy's access log cost, and is it right?

Three Envoys run side by side with the generated configuration, without its ext_proc filter (whose cost another
benchmark measures): without the access-log tag, with it, and with it and a progress entry every 250 ms. CPU is that of
all threads of an Envoy in nanoseconds from /proc/PID/task/*/schedstat; each round runs all, in turn, and the medians
over the rounds are reported.

Run: ``python bench/first_token.py [RESULTS.json]``. Linux only; about a minute.
"""

import asyncio
import json
import os
import platform
import statistics
import sys
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import grpc
from aiohttp import web

from tessera.live.envoy import LISTENER, EnvoySettings, envoy_config
from tessera.live.envoy_process import EnvoyProcess
from tessera.live.extproc import access_log_pb2 as pb
from tessera.live.extproc.names import ACCESS_LOG_METHOD, FIRST_BODY_TAG

NUM_ROUNDS = 9
NUM_REQUESTS = 400
NUM_STREAMS = 20
NUM_CHUNKS = 100
CHUNK_S = 0.01
CHUNK = b'data: {"choices":[{"index":0,"delta":{"content":" word"},"finish_reason":null}],"usage":null}\n\n'
USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":11,"completion_tokens":100}}\n\ndata: [DONE]\n\n'


async def answer(request: web.Request) -> web.StreamResponse:
    """A server that sends its headers at once, waits ``wait`` seconds and then sends ``chunks`` chunks, or JSON."""
    await request.read()
    wait_s, num_chunks = float(request.query.get("wait", 0)), int(request.query.get("chunks", 0))
    if num_chunks == 0:
        await asyncio.sleep(wait_s)
        return web.json_response({"usage": {"prompt_tokens": 11, "completion_tokens": 1}})
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await asyncio.sleep(wait_s)
    for _ in range(num_chunks):
        await response.write(CHUNK)
        await asyncio.sleep(float(request.query["gap"]))
    await response.write(USAGE)
    return response


class AccessLog:
    """Keeps the last entry of Envoy's access log."""

    def __init__(self) -> None:
        self.entries: asyncio.Queue[pb.HTTPAccessLogEntry] = asyncio.Queue()

    async def stream(self, messages: AsyncIterator[pb.StreamAccessLogsMessage], _: Any) -> pb.StreamAccessLogsResponse:
        async for message in messages:
            for entry in message.http_logs.log_entry:
                self.entries.put_nowait(entry)
        return pb.StreamAccessLogsResponse()

    async def serve(self) -> tuple[grpc.aio.Server, int]:
        """The running server and its port."""
        server = grpc.aio.server()
        service, _, method = ACCESS_LOG_METHOD[1:].partition("/")
        handler = grpc.stream_unary_rpc_method_handler(
            self.stream, pb.StreamAccessLogsMessage.FromString, pb.StreamAccessLogsResponse.SerializeToString
        )
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        return server, port


def variant(settings: EnvoySettings, *, tagged: bool) -> dict[str, Any]:
    """The generated configuration without ext_proc, and without the tag unless ``tagged``."""
    config = envoy_config(settings)
    manager = config["static_resources"]["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    manager["http_filters"] = [each for each in manager["http_filters"] if each["name"] != "ext_proc"]
    if not tagged:
        del manager["access_log"][0]["typed_config"]["common_config"]["custom_tags"]
    return config


def cpu_us(pid: int) -> float:
    """CPU time that all threads of a process have used, in microseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


async def get(session: aiohttp.ClientSession, url: str, repeat: int = 1) -> None:
    for _ in range(repeat):
        async with session.post(url, data=b"{}") as response:
            await response.read()


async def cost(session: aiohttp.ClientSession, envoy: EnvoyProcess, path: str, parallel: int, repeat: int) -> float:
    """Envoy's CPU microseconds for ``parallel`` clients that each send ``repeat`` requests."""
    url = f"http://127.0.0.1:{envoy.ports[LISTENER]}{path}"
    before = cpu_us(envoy.pid)
    await asyncio.gather(*(get(session, url, repeat) for _ in range(parallel)))
    # The access log leaves Envoy up to 50 ms later.
    await asyncio.sleep(0.1)
    return cpu_us(envoy.pid) - before


async def check(session: aiohttp.ClientSession, envoy: EnvoyProcess, log: AccessLog, path: str) -> Mapping[str, float]:
    """What the log says of one request: milliseconds to the answer's headers, its first body byte and its end."""
    while not log.entries.empty():
        log.entries.get_nowait()
    await get(session, f"http://127.0.0.1:{envoy.ports[LISTENER]}{path}")
    common = (await log.entries.get()).common_properties
    return {
        "headers_ms": common.time_to_first_upstream_rx_byte.ToMicroseconds() / 1000,
        "first_body_ms": int(common.custom_tags[FIRST_BODY_TAG]) / 1000,
        "last_byte_ms": common.time_to_last_upstream_rx_byte.ToMicroseconds() / 1000,
    }


async def measure(session: aiohttp.ClientSession, envoys: Mapping[str, EnvoyProcess]) -> dict[str, Any]:
    """Medians of CPU per request (JSON answers) and per chunk (SSE), by variant."""
    streams = f"/v1/chat/completions?chunks={NUM_CHUNKS}&gap={CHUNK_S}"
    per_request: dict[str, list[float]] = {name: [] for name in envoys}
    per_chunk: dict[str, list[float]] = {name: [] for name in envoys}
    for round_number in range(NUM_ROUNDS + 1):
        for name, envoy in sorted(envoys.items(), reverse=bool(round_number % 2)):
            request_us = await cost(session, envoy, "/v1/chat/completions", 8, NUM_REQUESTS // 8)
            chunk_us = await cost(session, envoy, streams, NUM_STREAMS, 1)
            if round_number > 0:
                per_request[name].append(request_us / NUM_REQUESTS)
                per_chunk[name].append(chunk_us / NUM_STREAMS / NUM_CHUNKS)
    return {
        name: {
            "us_per_request": round(statistics.median(per_request[name]), 1),
            "us_per_request_rounds": [round(value, 1) for value in per_request[name]],
            "us_per_chunk": round(statistics.median(per_chunk[name]), 2),
            "us_per_chunk_rounds": [round(value, 2) for value in per_chunk[name]],
        }
        for name in envoys
    }


async def main() -> dict[str, Any]:
    """Run it all and return the results."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    log = AccessLog()
    server, log_port = await log.serve()
    plain = EnvoySettings(
        listen_port=0, ext_proc_address=f"127.0.0.1:{log_port}", endpoints=[runner.addresses[0][:2]], concurrency=1
    )
    configs = {
        "without_tag": variant(plain, tagged=False),
        "with_tag": variant(plain, tagged=True),
        "with_tag_and_progress": variant(replace(plain, progress_interval_s=0.25), tagged=True),
    }
    envoys: dict[str, EnvoyProcess] = {}
    try:
        for name, config in configs.items():
            envoys[name] = await EnvoyProcess.start(config, concurrency=plain.concurrency)
        async with aiohttp.ClientSession() as session:
            envoy = envoys["with_tag"]
            stream = await check(session, envoy, log, "/v1/chat/completions?wait=0.3&chunks=20&gap=0.05")
            whole = await check(session, envoy, log, "/v1/chat/completions?wait=0.3")
            costs = await measure(session, envoys)
    finally:
        for running in envoys.values():
            await running.stop()
        await server.stop(None)
        await runner.cleanup()
    return {
        "command": "python bench/first_token.py",
        "machine": f"{os.cpu_count()} shared cores, {platform.machine()}, Python {platform.python_version()}",
        "stream, headers at once, first chunk after 300 ms, 20 chunks 50 ms apart": stream,
        "JSON answer after 300 ms": whole,
        "Envoy CPU": costs,
    }


if __name__ == "__main__":
    results = json.dumps(asyncio.run(main()), indent=2)
    print(results)
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(results + "\n")
