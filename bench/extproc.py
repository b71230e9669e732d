"""What does a request cost Envoy and Tessera, and how much of it would Envoy spend alone?

    python bench/extproc.py [--write bench/results/extproc.json]

Two ``tessera serve --envoy`` run side by side, one for each body mode, in front of
four endpoints that answer at once; beside them ``bare_server.py``, the least that a
picker on grpc.aio can do. For every body and number of clients, windows of Envoy alone
(the listener that spreads by round robin without asking), of the bare picker, of
BUFFERED and of FULL_DUPLEX_STREAMED take turns, so that whatever else the machine does
meets all four. CPU is that of all threads of a process in nanoseconds, from
/proc/PID/task/*/schedstat, divided by the requests of the window; medians over the
windows. Nothing is subtracted: Tessera's share includes scraping four endpoints every
50 ms and a log line for each request. Linux only.
"""

import argparse
import contextlib
import json
import multiprocessing
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from bodies import LONG, PICTURES, SHORT, all_bodies
from report import arguments, headed, keep
from traffic import Done, Job, play_clients, play_endpoints

CELLS = ((SHORT, 1), (SHORT, 16), (LONG, 1), (LONG, 16), (PICTURES, 1), (PICTURES, 8))
"""Bodies, and clients that send them at the same time."""
MODES = ("BUFFERED", "FULL_DUPLEX_STREAMED")
ALONE, BARE = "envoy_alone", "bare_picker"
NUM_ENDPOINTS = 4
LOG_FLUSH_S = 0.1
"""The access log leaves Envoy up to 50 ms later."""
STOP_TIMEOUT_S = 10


@dataclass(frozen=True)
class Serving:
    """One picker and its Envoy: ``tessera serve --envoy``, or the bare one."""

    picker_pid: int
    envoy_pid: int
    ports: dict[str, int]

    def num_decided(self) -> int:
        """Decisions that it has made."""
        return self.counted("llm_d_epp_request_total")

    def counted(self, name: str) -> int:
        """The sum of a counter over all of its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports['metrics']}/metrics") as answer:
            page = answer.read().decode()
        return sum(int(float(value)) for value in re.findall(rf"^{name}\{{.*\}} (\S+)$", page, re.MULTILINE))

    def cpu_us(self) -> tuple[float, float]:
        """CPU microseconds so far, of Envoy and of the picker."""
        return cpu_us(self.envoy_pid), cpu_us(self.picker_pid)


@dataclass(frozen=True)
class Way:
    """One way from the clients to the endpoints."""

    name: str
    serving: Serving
    port: int
    counts: bool = False
    """Whether each of its requests must have been decided by Tessera."""


def cpu_us(pid: int) -> float:
    """CPU time that all threads of a process have used, in microseconds."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1000


def serve_command(mode: str, endpoints: Path, config: Path | None = None) -> list[str]:
    """``tessera serve`` with its defaults but for the mode, the ports and, where it is given, the configuration."""
    ports = [word for name in ("listen", "grpc-port", "metrics-port", "baseline-listen") for word in (f"--{name}", "0")]
    tessera = str(Path(sys.executable).with_name("tessera"))
    chosen = ["--config", str(config)] if config else []
    return [tessera, "serve", "--envoy", "--endpoints", str(endpoints), "--body-mode", mode, *chosen, *ports]


def bare_command(ports: list[int]) -> list[str]:
    """The bare picker in front of these endpoints."""
    return [sys.executable, str(Path(__file__).with_name("bare_server.py")), *map(str, ports)]


@contextlib.contextmanager
def serving(command: list[str]) -> Iterator[Serving]:
    """The picker that the command starts, from its line of JSON until it is told to end."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            ready = process.stdout.readline()
            if not ready:
                log.seek(0)
                raise RuntimeError(f"{command} did not start: {log.read()[-2000:]}")
            yield Serving(process.pid, child_of(process.pid), json.loads(ready)["ports"])
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def child_of(pid: int) -> int:
    """The only child of a process."""
    (child,) = (
        int(stat.parent.name)
        for stat in Path("/proc").glob("[0-9]*/stat")
        if stat.read_text().rpartition(")")[2].split()[1] == str(pid)
    )
    return child


def window(way: Way, job: Job, clients: Connection) -> dict[str, float]:
    """One window's figures; raises where a request failed or a decision was not asked for."""
    counts = way.counts
    # Read before the clock starts: rendering the page of metrics is no request's cost.
    decided = way.serving.num_decided() if counts else 0
    before = way.serving.cpu_us()
    clients.send(job)
    done: Done = clients.recv()
    time.sleep(LOG_FLUSH_S)
    envoy_us, picker_us = (now - then for now, then in zip(way.serving.cpu_us(), before, strict=True))
    num = len(done.latencies_s)
    assert done.num_errors == 0, f"{done.num_errors} of {num} requests failed: {way.name}, {job}"
    assert not counts or way.serving.num_decided() - decided == num, f"some were not decided: {way.name}, {job}"
    return {
        "envoy_us": envoy_us / num,
        "picker_us": picker_us / num,
        "requests_per_s": num / done.elapsed_s,
        "p50_ms": 1000 * statistics.median(done.latencies_s),
    }


def measure(
    ways: list[Way], clients: Connection, args: argparse.Namespace, cells: Sequence[tuple[str, int]] = CELLS
) -> Iterator[dict[str, Any]]:
    """The figures of each body, number of clients and way."""
    for body, num_clients in cells:
        print(f"  {body}, {num_clients} clients", file=sys.stderr, flush=True)
        windows: dict[str, list[dict[str, float]]] = {way.name: [] for way in ways}
        for number in range(args.num_windows + 1):
            window_s = args.window_s if number else args.warm_up_s
            for way in ways:
                figures = window(way, Job(way.port, body, num_clients, window_s), clients)
                if number:
                    windows[way.name].append(figures)
        yield {
            "body": body,
            "num_clients": num_clients,
            "ways": {name: summary(each) for name, each in windows.items()},
        }


def idle(serves: dict[str, Serving], args: argparse.Namespace) -> dict[str, Any]:
    """CPU milliseconds a second without any request: scraping and timers."""
    windows: dict[str, list[dict[str, float]]] = {mode: [] for mode in serves}
    for _ in range(args.num_windows):
        before = {mode: each.cpu_us() for mode, each in serves.items()}
        time.sleep(args.window_s)
        for mode, each in serves.items():
            envoy_us, picker_us = (now - then for now, then in zip(each.cpu_us(), before[mode], strict=True))
            per_s = 1000 * args.window_s
            windows[mode].append({"envoy_ms_per_s": envoy_us / per_s, "picker_ms_per_s": picker_us / per_s})
    return {mode: summary(each) for mode, each in windows.items()}


def summary(windows: list[dict[str, float]]) -> dict[str, Any]:
    """The median of each figure, and every window."""
    medians = {key: round(statistics.median(each[key] for each in windows), 2) for key in windows[0]}
    return {**medians, "windows": [{key: round(value, 2) for key, value in each.items()} for each in windows]}


def table(cells: list[dict[str, Any]]) -> str:
    """The cells as a table for people."""
    rows = [f"{'body':26}{'clients':>8} {'way':22}{'Envoy us':>10}{'picker us':>11}{'req/s':>8}{'p50 ms':>8}"]
    for cell in cells:
        for name, way in cell["ways"].items():
            cpu = f"{way['envoy_us']:10.0f}{way['picker_us']:11.0f}"
            pace = f"{way['requests_per_s']:8.0f}{way['p50_ms']:8.2f}"
            rows.append(f"{cell['body']:26}{cell['num_clients']:>8} {name:22}{cpu}{pace}")
    return "\n".join(rows)


@contextlib.contextmanager
def playing(work: Any, *args: Any) -> Iterator[Connection]:
    """A process that does ``work(*args, connection)``, and our end of the connection."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.Process(target=work, args=(*args, there), daemon=True)
    process.start()
    there.close()
    try:
        yield here
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def fleet(bodies: Mapping[str, bytes]) -> Iterator[tuple[list[int], Path, Connection]]:
    """Endpoints that answer at once and clients that send these bodies: ports, endpoints file, clients."""
    with contextlib.ExitStack() as stack:
        ports = stack.enter_context(playing(play_endpoints, NUM_ENDPOINTS)).recv()
        clients = stack.enter_context(playing(play_clients, bodies))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        entries = [{"name": f"e{n}", "address": "127.0.0.1", "port": str(port)} for n, port in enumerate(ports)]
        endpoints = Path(folder, "endpoints.yaml")
        endpoints.write_text(json.dumps({"endpoints": entries}))
        yield ports, endpoints, clients


def run(args: argparse.Namespace) -> dict[str, Any]:
    """Start everything, measure, stop everything."""
    with contextlib.ExitStack() as stack:
        ports, endpoints, clients = stack.enter_context(fleet(all_bodies()))
        serves = {mode: stack.enter_context(serving(serve_command(mode, endpoints))) for mode in MODES}
        bare = stack.enter_context(serving(bare_command(ports)))
        buffered = serves["BUFFERED"]
        ways = [Way(ALONE, buffered, buffered.ports["baseline"]), Way(BARE, bare, bare.ports["envoy"])]
        ways += [Way(mode, each, each.ports["envoy"], counts=True) for mode, each in serves.items()]
        return {"idle": idle(serves, args), "cells": list(measure(ways, clients, args))}


def with_windows(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser with how many windows are measured, and how long each is."""
    parser.add_argument("--num-windows", type=int, default=3)
    parser.add_argument("--window-s", type=float, default=2.0)
    parser.add_argument("--warm-up-s", type=float, default=0.5)
    return parser


def main() -> None:
    args = with_windows(arguments(__doc__)).parse_args()
    figures = run(args)
    result = {
        **headed("CPU of Envoy and of Tessera for one request, by body, clients and body mode"),
        "num_endpoints": NUM_ENDPOINTS,
        **figures,
    }
    print(table(result["cells"]))
    for mode, each in result["idle"].items():
        print(f"idle, {mode}: Envoy {each['envoy_ms_per_s']:.1f} ms/s, Tessera {each['picker_ms_per_s']:.1f} ms/s")
    keep(result, args.write)


if __name__ == "__main__":
    main()
