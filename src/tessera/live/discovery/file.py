"""Which endpoints does a file list, now and whenever it changes?"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path

from tessera.config.endpoints import read_endpoints_file
from tessera.core.errors import ConfigError
from tessera.core.facts import Joined, Left
from tessera.core.types import Endpoint

POLL_S = 0.5
"""How often the file is looked at. A look is one ``stat``."""

_log = logging.getLogger("tessera.discovery")


async def watch_file(
    path: Path, clock: Callable[[], float], *, poll_s: float = POLL_S
) -> AsyncIterator[Sequence[Joined | Left]]:
    """Every endpoint of the file as one batch of ``Joined``; then, for each change of it, what joined, changed or left.

    The first batch may be empty: then the file lists nobody. An endpoint whose
    labels or ports changed is told as ``Joined`` again. A file that cannot be read
    keeps the old set and is logged once.

    Raises:
        ConfigError: the file cannot be read at the start.
    """
    known: dict[str, Endpoint] = {}
    stamp = await asyncio.to_thread(_stamp, path)
    listed = await asyncio.to_thread(_read, path)
    while True:
        yield _changes(known, listed, clock())
        known = listed
        listed, stamp = await _next_version(path, stamp, poll_s)


async def _next_version(
    path: Path, stamp: tuple[int, int, int] | None, poll_s: float
) -> tuple[dict[str, Endpoint], tuple[int, int, int] | None]:
    """Wait for a version of the file that is another and can be read."""
    while True:
        await asyncio.sleep(poll_s)
        newest = await asyncio.to_thread(_stamp, path)
        if newest == stamp:
            continue
        stamp = newest
        try:
            return await asyncio.to_thread(_read, path), stamp
        except ConfigError as error:
            _log.warning("%s: the endpoints stay as they were: %s", path, error)


def _changes(known: dict[str, Endpoint], listed: dict[str, Endpoint], at: float) -> list[Joined | Left]:
    left: list[Joined | Left] = [Left(at=at, endpoint=known[gone]) for gone in known.keys() - listed.keys()]
    return left + [Joined(at=at, endpoint=each) for name, each in listed.items() if _differs(known.get(name), each)]


def _differs(old: Endpoint | None, new: Endpoint) -> bool:
    return old is None or old != new or dict(old.labels) != dict(new.labels)


def _read(path: Path) -> dict[str, Endpoint]:
    endpoints, problems = read_endpoints_file(path)
    for problem in problems:
        _log.warning("%s: %s", path, problem)
    return {endpoint.id: endpoint for endpoint in endpoints}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
