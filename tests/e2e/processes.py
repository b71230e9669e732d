"""Commands of ours in processes of their own, so that they can be killed."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


class Process:
    """One command, known by the ports that it prints when it is ready."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tessera.cli.main", *arguments]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=os.environ)
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

    def counters(self, port: str = "metrics") -> dict[str, float]:
        """The numbers of its metrics page, by name and labels."""
        lines = [line for line in self.get("/metrics", port).decode().splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10)

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
