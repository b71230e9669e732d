"""How does a command run a server until somebody ends it?"""

import asyncio
import json
import signal
from collections.abc import Awaitable, Callable
from typing import Protocol

import typer

from tessera.live.memory import keep_large_blocks


class Server(Protocol):
    """What serves from ``start`` on."""

    async def start(self) -> dict[str, int]:
        """Listen; the ports by name."""

    async def wait(self) -> None:
        """Return, or raise, when something has ended that must run for ever."""


async def serve_until_signalled(server: Server, stop: Callable[[bool], Awaitable[None]]) -> None:
    """Serve until SIGTERM or SIGINT, or until something that must run has ended; says on stdout when it is ready.

    At the end ``stop`` is called, with whether a signal asked for it.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    ended = None
    try:
        ports = await server.start()
        keep_large_blocks()
        typer.echo(json.dumps({"ready": True, "ports": ports}))
        ended = asyncio.create_task(server.wait())
        await asyncio.wait([ended, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
    finally:
        if ended:
            ended.cancel()
        await stop(stopping.is_set())
