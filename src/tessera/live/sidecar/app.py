"""The whole sidecar, put together: ranks, allow-list, metrics, and how it starts and stops."""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from aiohttp import web

from tessera.core.errors import ConfigError, Problem
from tessera.live.extproc.budget import BodyBudget
from tessera.live.sidecar.allow_list import AllowList
from tessera.live.sidecar.certificate import Certificate
from tessera.live.sidecar.server import Rank
from tessera.live.sidecar.settings import SidecarSettings
from tessera.live.sidecar.upstream import MAX_HEADER_BYTES, Upstream
from tessera.telemetry.sidecar_metrics import SidecarMetrics

if TYPE_CHECKING:
    from tessera.telemetry.sidecar_traces import SidecarTracer

IDLE_S: Final = 300.0
"""How long a client's idle connection is kept; as llm-d's sidecar."""
BACKLOG: Final = 1024

_log = logging.getLogger("tessera.sidecar")


class Sidecar:
    """One running sidecar; ``start``, then ``stop``."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._settings = settings
        self.metrics = SidecarMetrics()
        self.allow_list = AllowList(settings.endpoints_path)
        self._runners: list[web.ServerRunner] = []
        self._upstream: Upstream | None = None
        self._watch: asyncio.Task[None] | None = None
        self._reload: asyncio.Task[None] | None = None
        self._tracer = _tracer() if settings.is_tracing else None

    async def start(self) -> dict[str, int]:
        """Listen on every port; the ports by name: ``http`` for rank 0, ``http1`` and so on, ``metrics``.

        Raises:
            ConfigError: the endpoints file or the certificate cannot be read.
        """
        settings = self._settings
        certificate = Certificate(settings.cert_path) if settings.cert_path else None
        if certificate:
            self._reload = asyncio.create_task(certificate.watch())
        context = certificate.context if certificate else None
        upstream = self._upstream = Upstream(settings)
        await self._start_watching()
        budget = BodyBudget(limit_bytes=settings.max_bodies_bytes, per_body_bytes=settings.max_body_bytes)
        ports: dict[str, int] = {}
        ranks: dict[int, Rank] = {}
        for index in range(settings.num_ranks):
            rank = Rank(
                settings,
                index,
                upstream=upstream,
                allow_list=self.allow_list,
                metrics=self.metrics,
                budget=budget,
                ranks=ranks,
                tracer=self._tracer,
            )
            port = settings.port + index if settings.port else 0
            ports[f"http{index or ''}"] = listening = await self._listen(_server(rank.handle), port, context)
            ranks[listening] = rank
        if settings.metrics_port is not None:
            ports["metrics"] = await self._listen(_server(self._metrics_page), settings.metrics_port, None)
        return ports

    async def wait(self) -> None:
        """Return, or raise, when what must run for ever has ended."""
        await (self._watch if self._watch else asyncio.Event().wait())

    async def stop(self) -> None:
        """Stop listening, let requests in flight end, close everything."""
        tasks = [task for task in (self._watch, self._reload) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(runner.cleanup() for runner in self._runners))
        if self._upstream:
            await self._upstream.close()
        if self._tracer:
            await asyncio.to_thread(self._tracer.close)

    async def _start_watching(self) -> None:
        if not self.allow_list.is_on:
            return
        self._watch = asyncio.create_task(self.allow_list.watch(asyncio.get_running_loop().time))
        reading = asyncio.create_task(self.allow_list.read())
        await asyncio.wait([reading, self._watch], return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
        if self._watch.done():
            self._watch.result()

    async def _listen(self, server: web.Server, port: int, context: ssl.SSLContext | None) -> int:
        runner = web.ServerRunner(server, shutdown_timeout=self._settings.drain_timeout_s)
        self._runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, self._settings.bind, port, ssl_context=context, backlog=BACKLOG).start()
        return int(runner.addresses[0][1])

    async def _metrics_page(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path != "/metrics":
            return web.Response(status=404, text="only /metrics is here\n")
        return web.Response(body=self.metrics.page(), content_type="text/plain", charset="utf-8")


def _server(handle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]) -> web.Server:
    return web.Server(
        handle,
        handler_cancellation=True,
        keepalive_timeout=IDLE_S,
        access_log=None,
        auto_decompress=False,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        lingering_time=1.0,
    )


def _tracer() -> "SidecarTracer":
    try:
        from tessera.telemetry.sidecar_traces import SidecarTracer
    except ImportError as error:
        message = f"{error}; install the extra: pip install tessera-router[otel]"
        raise ConfigError([Problem("--tracing", message)]) from None
    return SidecarTracer()
