"""Commands of ours in processes of their own, so that they can be killed."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


class Process:
    """One command, known by the ports that it prints when it is ready."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments
        self._process = _started(arguments)
        self._ports: dict[str, int] = {}

    @property
    def ports(self) -> dict[str, int]:
        """Its ports; waits until it is ready."""
        if not self._ports:
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            assert line, f"{self._process.args} ended before it was ready"
            self._ports = json.loads(line)["ports"]
        return self._ports

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.ports['http']}"

    def get(self, path: str, port: str = "http") -> bytes:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=10) as answer:
            content: bytes = answer.read()
        return content

    def post(self, path: str, body: object) -> None:
        data = json.dumps(body).encode()
        asked = urllib.request.Request(f"http://{self.id}{path}", data, {"content-type": "application/json"})
        with urllib.request.urlopen(asked, timeout=10) as answer:
            answer.read()

    def counters(self, port: str = "metrics") -> dict[str, float]:
        """The numbers of its metrics page, by name and labels."""
        lines = [line for line in self.get("/metrics", port).decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

    def begin_again(self) -> None:
        """As it was started, at the port that it had; it must have been killed, and have had but one."""
        port = str(self.ports["http"])
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process = _started([port if each == "0" else each for each in self._arguments])
        self._ports = {}

    def ask_to_end(self) -> None:
        self._process.terminate()

    def wait_for_end(self) -> None:
        """Killed where it does not end by itself."""
        try:
            self._process.wait(20)
        finally:
            self._process.kill()
            self._process.wait(10)
            assert self._process.stdout is not None
            self._process.stdout.close()


def _started(arguments: Sequence[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tessera.cli.main", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ)


@contextmanager
def processes() -> Iterator[list[Process]]:
    """A list whose processes end with the block, all at once."""
    started: list[Process] = []
    try:
        yield started
    finally:
        for each in started:
            each.ask_to_end()
        for each in started:
            each.wait_for_end()
