"""Which servers may a header make us ask?"""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tessera.core.facts import Joined
from tessera.live.discovery.file import watch_file


class AllowList:
    """Servers by address and port, as an endpoints file lists them now; without a file, all."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._ids: set[str] = set()
        self._read = asyncio.Event()

    @property
    def is_on(self) -> bool:
        """Whether anybody is kept out."""
        return self._path is not None

    def allows(self, endpoint: str) -> bool:
        """Whether ``ip:port`` may be asked."""
        return self._path is None or endpoint in self._ids

    async def read(self) -> None:
        """Return once the file has been read."""
        await self._read.wait()

    async def watch(self, clock: Callable[[], float]) -> None:
        """Follow the file for ever.

        Raises:
            ConfigError: the file cannot be read at the start.
        """
        assert self._path is not None, "there is no file to watch"
        async for events in watch_file(self._path, clock):
            for event in events:
                if isinstance(event, Joined):
                    self._ids.add(event.endpoint.id)
                else:
                    self._ids.discard(event.endpoint.id)
            self._read.set()
