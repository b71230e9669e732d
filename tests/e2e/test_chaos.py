"""Does traffic go on when Tessera dies, and end well when it is asked to stop?"""

import hashlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tessera.emulator import Emulator
from tessera.live.envoy_process import EnvoyProcess

from .conftest import MODEL, LoopThread, emulator, wait_for, write_endpoints
from .pictures import body, chat, data_uri

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]


def tessera(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tessera.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def ready(process: subprocess.Popen[str]) -> dict[str, int]:
    assert process.stdout is not None
    line = json.loads(process.stdout.readline())
    assert line["ready"] is True
    ports: dict[str, int] = line["ports"]
    return ports


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def servers(thread: LoopThread) -> Iterator[list[Emulator]]:
    emulators = [emulator() for _ in range(3)]
    for each in emulators:
        thread.run(each.start())
    yield emulators
    for each in emulators:
        thread.run(each.stop())


@pytest.fixture
def endpoints(servers: list[Emulator], tmp_path: Path) -> Path:
    return write_endpoints(tmp_path / "endpoints.yaml", [each.port for each in servers])


class Load:
    """Clients that ask one question after the other until they are stopped."""

    def __init__(self, url: str, num_clients: int = 6) -> None:
        self.statuses: list[int] = []
        self.errors: list[str] = []
        self._url = url
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(index,)) for index in range(num_clients)]
        for each in self._threads:
            each.start()

    def _ask(self, index: int) -> None:
        fields = chat(MODEL, [data_uri(320, 240, seed=index)], stream=bool(index % 2), max_tokens=8)
        with httpx.Client(timeout=20) as client:
            while not self._stopping.is_set():
                try:
                    answer = client.post(f"{self._url}/v1/chat/completions", json=fields)
                    self.statuses.append(answer.status_code)
                except httpx.HTTPError as error:
                    self.errors.append(repr(error))

    def stop(self) -> None:
        self._stopping.set()
        for each in self._threads:
            each.join(30)


def num_decisions(port: int) -> int:
    page = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    lines = [line for line in page.splitlines() if line.startswith("llm_d_epp_request_total{")]
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines))


def test_envoy_goes_on_when_tessera_is_killed_and_asks_again_when_it_is_back(
    thread: LoopThread, endpoints: Path
) -> None:
    grpc_port = free_port()
    options = ["--endpoints", str(endpoints), "--listen", "0", "--admin-port", "0", "--grpc", f"127.0.0.1:{grpc_port}"]
    written = subprocess.run(
        [sys.executable, "-m", "tessera.cli.main", "envoy-config", *options], capture_output=True, text=True, check=True
    )
    envoy = thread.run(EnvoyProcess.start(json.loads(written.stdout)))
    serve = ["serve", "--endpoints", str(endpoints), "--grpc-port", str(grpc_port), "--metrics-port", "0"]
    router = tessera(*serve)
    again = None
    load = None
    try:
        before = ready(router)
        load = Load(f"http://127.0.0.1:{envoy.ports['tessera']}")
        wait_for(lambda: num_decisions(before["metrics"]) > 20, 20)
        router.kill()
        router.wait(10)
        answered = len(load.statuses)
        wait_for(lambda: load and len(load.statuses) > answered + 40, 20)
        again = tessera(*serve)
        after = ready(again)
        wait_for(lambda: num_decisions(after["metrics"]) > 20, 20)
        load.stop()
        assert load.errors == []
        assert set(load.statuses) == {200}
    finally:
        if load:
            load.stop()
        for process in (router, again):
            if process:
                process.kill()
                process.wait(10)
        thread.run(envoy.stop())


def test_sigterm_lets_an_answer_end(endpoints: Path) -> None:
    options = ["--listen", "0", "--grpc-port", "0", "--metrics-port", "0"]
    router = tessera("serve", "--endpoints", str(endpoints), "--envoy", *options)
    try:
        ports = ready(router)
        fields = chat(MODEL, [], max_tokens=400, stream=True)
        url = f"http://127.0.0.1:{ports['envoy']}/v1/chat/completions"
        with httpx.stream("POST", url, json=fields, timeout=20) as answer:
            lines = answer.iter_lines()
            next(lines)
            router.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(f"http://127.0.0.1:{ports['metrics']}/readyz").status_code == 503)
            rest = list(lines)
        assert "data: [DONE]" in rest
        assert router.wait(15) == 0
    finally:
        router.kill()
        router.wait(10)


def test_full_duplex_streams_are_routed_and_carry_the_same_bytes(
    thread: LoopThread, servers: list[Emulator], endpoints: Path
) -> None:
    options = ["--listen", "0", "--grpc-port", "0", "--metrics-port", "0", "--body-mode", "FULL_DUPLEX_STREAMED"]
    router = tessera("serve", "--endpoints", str(endpoints), "--envoy", *options)
    try:
        ports = ready(router)
        url = f"http://127.0.0.1:{ports['envoy']}"
        for size in (10, 300_000, 20 << 20):
            content = body(MODEL, [data_uri(1280, 720)], text="x" * size)
            headers = {"content-type": "application/json"}
            answer = httpx.post(f"{url}/v1/chat/completions", content=content, headers=headers, timeout=60)
            assert answer.status_code == (400 if size == 20 << 20 else 200)
            hashes = {record.sha256 for each in servers for record in each.records}
            assert hashlib.sha256(content).hexdigest() in hashes
        assert httpx.get(f"{url}/v1/models").status_code == 200
        assert httpx.post(f"{url}/v1/nowhere", content=b"some body").status_code == 404
        streamed = httpx.post(f"{url}/v1/chat/completions", json=chat(MODEL, [], stream=True), timeout=20)
        assert streamed.text.endswith("data: [DONE]\n\n")
        deadline = time.monotonic() + 5
        page = ""
        while "tessera_requests_ended_total" not in page and time.monotonic() < deadline:
            page = httpx.get(f"http://127.0.0.1:{ports['metrics']}/metrics").text
        assert "tessera_streams_ended_early_total 0.0" in page
    finally:
        router.kill()
        router.wait(10)


def test_an_endpoint_that_joins_is_used_and_one_that_leaves_is_not(
    thread: LoopThread, servers: list[Emulator], tmp_path: Path
) -> None:
    path = write_endpoints(tmp_path / "endpoints.yaml", [servers[0].port])
    options = ["--listen", "0", "--grpc-port", "0", "--metrics-port", "0"]
    router = tessera("serve", "--endpoints", str(path), "--envoy", *options)
    try:
        ports = ready(router)
        url = f"http://127.0.0.1:{ports['envoy']}/v1/chat/completions"

        def served_by(index: int) -> bool:
            before = len(servers[index].records)
            answer = httpx.post(url, json=chat(MODEL, [], max_tokens=1), timeout=20)
            assert answer.status_code == 200
            return len(servers[index].records) > before

        assert served_by(0)
        write_endpoints(path, [servers[1].port])
        wait_for(lambda: served_by(1), 10)
        assert served_by(1)
        write_endpoints(path, [])
        wait_for(lambda: httpx.get(f"http://127.0.0.1:{ports['metrics']}/readyz").status_code == 503, 10)
        refused = httpx.post(url, json=chat(MODEL, []), timeout=20)
        assert refused.status_code == 503
        assert refused.headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
        assert refused.json()["error"]["code"] == "rejected-no-endpoints"
    finally:
        router.kill()
        router.wait(10)
