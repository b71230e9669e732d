"""Which processes does the demo run, and how do they all end with it?"""

import asyncio
import contextlib
import ctypes
import json
import signal
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import yaml

from tessera.core.errors import ConfigError, Problem

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
_PR_SET_PDEATHSIG = 1


class DemoFleet:
    """Emulated servers, Tessera and Envoy, each a process, on loopback and on ports that the system chose."""

    def __init__(self, *, model: str, num_servers: int, speed: float, config: Path | None) -> None:
        self._model = model
        self._num_servers = num_servers
        self._speed = speed
        self._config = config
        self._processes: list[asyncio.subprocess.Process] = []
        self._folder = tempfile.TemporaryDirectory(prefix="tessera-demo-")
        self.server_ports: list[int] = []
        self.ports: dict[str, int] = {}
        """``envoy``, ``baseline``, ``grpc`` and ``metrics``."""
        self.log_path = Path(self._folder.name, "tessera.log")

    async def __aenter__(self) -> Self:
        """Start everything; returns when requests can be sent."""
        try:
            emulate = ["emulate", "--model", self._model, "--port", "0", "--speed", str(self._speed)]
            ready = await asyncio.gather(*(self._start(*emulate) for _ in range(self._num_servers)))
            self.server_ports = [ports["http"] for ports in ready]
            serve = ["serve", "--endpoints", str(self._write_endpoints()), "--envoy", "--baseline-listen", "0"]
            for option in ("--listen", "--grpc-port", "--metrics-port"):
                serve += [option, "0"]
            if self._config:
                serve += ["--config", str(self._config)]
            self.ports = await self._start(*serve)
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything, the router first."""
        await self._stop()

    def _write_endpoints(self) -> Path:
        path = Path(self._folder.name, "endpoints.yaml")
        endpoints = [
            {"name": f"server-{index}", "address": "127.0.0.1", "port": str(port)}
            for index, port in enumerate(self.server_ports)
        ]
        path.write_text(yaml.safe_dump({"endpoints": endpoints}))
        return path

    async def _start(self, *arguments: str) -> dict[str, int]:
        """Start a command of ours; the ports that its ready line names."""
        with self.log_path.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tessera.cli.main", *arguments),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                # Ctrl-C reaches the demo alone, which stops the others in order.
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        self._processes.append(process)
        assert process.stdout is not None, "stdout is piped"
        line = b""
        with contextlib.suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
        try:
            ports = json.loads(line)["ports"]
        except (ValueError, KeyError):
            tail = self.log_path.read_text(errors="replace")[-2000:]
            message = f"`tessera {' '.join(arguments)}` did not start within {START_TIMEOUT_S:.0f} s; it said:\n{tail}"
            raise ConfigError([Problem("", message)]) from None
        return {str(name): int(port) for name, port in ports.items()}

    async def _stop(self) -> None:
        for process in reversed(self._processes):
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
                    break
        self._folder.cleanup()


def _die_with_parent() -> None:
    """Linux ends the child when the demo is killed; elsewhere nothing happens."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
