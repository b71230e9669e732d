"""How much of a core does it take to scrape 100 endpoints every 50 ms?

    python bench/scrape.py [--write bench/results/scrape.json]

One other process plays every endpoint: a port each, and a page recorded from vLLM
with numbers that change. What is measured is this process's CPU time (user and
system), over several windows; beside it the same polls made with aiohttp and
prometheus_client, one endpoint's at a time so that the figure is a cost per poll.
"""

import argparse
import asyncio
import multiprocessing
import statistics
import time
import timeit
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import aiohttp
import uvloop
from prometheus_client.parser import text_string_to_metric_families

from report import arguments, as_text, headed, keep
from tessera.core.facts import FleetEvent
from tessera.core.types import Endpoint
from tessera.live.metrics_page import ENGINES, read_page
from tessera.live.scrape import Scraper

PAGE = Path(__file__).parent.parent / "tests/live/data/vllm-metrics.txt"
WAITING = b'vllm:num_requests_waiting{engine="0",model_name="tiny-qwen3-vl"} '
NUM_PAGES = 16


class _Page(asyncio.Protocol):
    """Answers each request with the next of a few pages."""

    replies: tuple[bytes, ...] = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._num_sent = 0

    def data_received(self, data: bytes) -> None:
        assert data.endswith(b"\r\n\r\n")
        self._num_sent += 1
        self._transport.write(self.replies[self._num_sent % NUM_PAGES])


def play_endpoints(num_endpoints: int, ports: Connection) -> None:
    """Serve until killed; sends the ports first."""
    page = PAGE.read_bytes()
    pages = [page.replace(WAITING + b"0.0", WAITING + b"%d.0" % n) for n in range(NUM_PAGES)]
    head = b"HTTP/1.1 200 OK\r\ndate: Mon, 01 Jan 2026 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
    kind = b"content-type: text/plain; version=1.0.0; charset=utf-8\r\n\r\n"
    _Page.replies = tuple(head % len(each) + kind + each for each in pages)

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        servers = [await loop.create_server(_Page, "127.0.0.1", 0) for _ in range(num_endpoints)]
        ports.send([server.sockets[0].getsockname()[1] for server in servers])
        await asyncio.Event().wait()

    uvloop.run(serve())


async def tessera_windows(args: argparse.Namespace, ports: list[int]) -> list[dict[str, float]]:
    """CPU and polls of each window, scraping every port."""
    num_scraped = 0

    def take(_: FleetEvent) -> None:
        nonlocal num_scraped
        num_scraped += 1

    loop = asyncio.get_running_loop()
    scraper = Scraper(take, loop.time, interval_s=args.interval_s, on_problem=print)
    for port in ports:
        scraper.add(Endpoint(address="127.0.0.1", port=port))
    await asyncio.sleep(args.warm_up_s)
    windows = []
    for _ in range(args.num_windows):
        before, cpu, wall = num_scraped, time.process_time(), time.perf_counter()
        await asyncio.sleep(args.window_s)
        cpu, wall, polls = time.process_time() - cpu, time.perf_counter() - wall, num_scraped - before
        windows.append({"core_fraction": cpu / wall, "polls_per_s": polls / wall, "cpu_us_per_poll": 1e6 * cpu / polls})
    num_errors = sum(scraper.num_errors(f"127.0.0.1:{port}") for port in ports)
    assert num_errors == 0, f"{num_errors} polls failed"
    await scraper.close()
    return windows


async def aiohttp_windows(args: argparse.Namespace, ports: list[int]) -> list[dict[str, float]]:
    """CPU of each window, one poll after the other."""
    names = {"vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc"}
    windows = []
    async with aiohttp.ClientSession() as session:
        for _ in range(args.num_windows):
            polls, cpu = 0, time.process_time()
            for port in ports[: args.num_compared]:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = await answer.text()
                found = [family for family in text_string_to_metric_families(text) if family.name in names]
                assert len(found) == len(names)
                polls += 1
            windows.append({"cpu_us_per_poll": 1e6 * (time.process_time() - cpu) / polls})
    return windows


def summary(windows: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure, and every window."""
    medians = {key: round(statistics.median(w[key] for w in windows), 3) for key in windows[0]}
    return {**medians, "windows": [{key: round(value, 3) for key, value in w.items()} for w in windows]}


def per_call_us(call: Callable[[], object], number: int) -> float:
    """Median of five repeats, microseconds."""
    return round(1e6 * statistics.median(timeit.repeat(call, number=number, repeat=5)) / number, 1)


def measure(args: argparse.Namespace, ports: list[int]) -> dict[str, Any]:
    page = PAGE.read_bytes()
    text = page.decode()
    result = {
        "tessera_uvloop": summary(uvloop.run(tessera_windows(args, ports))),
        "tessera_asyncio": summary(asyncio.run(tessera_windows(args, ports))),
        "parse_us_per_page": {
            "tessera": per_call_us(lambda: read_page(page, ENGINES["vllm"], 0.0), 1000),
            "prometheus_client": per_call_us(lambda: list(text_string_to_metric_families(text)), 5),
        },
        "aiohttp_prometheus_client": summary(uvloop.run(aiohttp_windows(args, ports))),
    }
    polls_per_s = args.num_endpoints / args.interval_s
    other = result["aiohttp_prometheus_client"]
    other["core_fraction_at_full_rate"] = round(other["cpu_us_per_poll"] * polls_per_s / 1e6, 2)
    return result


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--num-endpoints", type=int, default=100)
    parser.add_argument("--interval-s", type=float, default=0.05)
    parser.add_argument("--num-windows", type=int, default=5)
    parser.add_argument("--window-s", type=float, default=3.0)
    parser.add_argument("--warm-up-s", type=float, default=1.0)
    parser.add_argument("--num-compared", type=int, default=50, help="polls a window with aiohttp")
    args = parser.parse_args()
    here, there = multiprocessing.Pipe()
    endpoints = multiprocessing.Process(target=play_endpoints, args=(args.num_endpoints, there), daemon=True)
    endpoints.start()
    try:
        figures = measure(args, here.recv())
    finally:
        endpoints.kill()
        endpoints.join()
    result = {
        **headed("CPU to scrape 100 endpoints every 50 ms, 56 KB pages; target: under half a core"),
        "page_bytes": PAGE.stat().st_size,
        "num_endpoints": args.num_endpoints,
        "interval_s": args.interval_s,
        **figures,
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
