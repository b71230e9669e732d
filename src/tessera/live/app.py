"""The whole live router, put together: discovery, scraping, KV events, ext_proc, debug pages, and an Envoy if asked."""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from tessera.config.load import LoadedConfig
from tessera.core.facts import Joined
from tessera.core.filters.decode import can_decode
from tessera.core.roles import APART_ROLES, ROLE_LABEL
from tessera.core.router import Router
from tessera.core.types import Endpoint
from tessera.live.admin import AdminServer
from tessera.live.discovery.file import watch_file
from tessera.live.envoy import BASELINE_LISTENER, LISTENER, BodyMode, EnvoySettings, envoy_config
from tessera.live.envoy_clusters import write_endpoints
from tessera.live.envoy_process import EnvoyEnded, EnvoyProcess
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.grpc_server import GrpcServer
from tessera.live.kv_feed import KVFeed
from tessera.live.models import watch_models
from tessera.live.scrape_settings import make_scraper
from tessera.live.service import RouterService
from tessera.telemetry.metrics import Gauges

DRAIN_TIMEOUT_S = 30.0
"""How long requests in flight may go on after SIGTERM; llm-d's ``--drain-timeout``."""
_DRAIN_POLL_S = 0.05

_log = logging.getLogger("tessera.live")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """What ``tessera serve`` was told."""

    config: LoadedConfig
    endpoints_path: Path
    bind: str = "127.0.0.1"
    listen_port: int = 8080
    """Envoy's port; 0 asks the system, as for the others."""
    grpc_port: int = 9002
    metrics_port: int = 9090
    with_envoy: bool = False
    body_mode: BodyMode = BodyMode.BUFFERED
    baseline_port: int | None = None
    """A second listener of Envoy that spreads by round robin; for comparison."""


class LiveRouter:
    """One running router; ``start``, then ``stop``."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        routing = settings.config.routing
        budget = BodyBudget(
            limit_bytes=routing.max_bodies_in_flight_bytes,
            per_body_bytes=routing.max_body_bytes,
        )
        self.service = RouterService(
            settings.config.router,
            settings.config.profile,
            seed=routing.seed,
            budget=budget,
            expects_log=settings.with_envoy,
        )
        self._kv = KVFeed(settings.config.router, clock=self.service.clock, failed=self.service.metrics.failed)
        self.service.metrics.add_gauges(Gauges(self._kv.gauges))
        self._grpc = GrpcServer(self.service)
        self._admin = AdminServer(self.service)
        self._scraper = make_scraper(settings.config.data_layer, self.service.observe, self.service.clock, _log.warning)
        self._tasks: list[asyncio.Task[None]] = []
        self._folder = tempfile.TemporaryDirectory(prefix="tessera-")
        self._discovered = asyncio.Event()
        self.envoy: EnvoyProcess | None = None

    async def start(self) -> dict[str, int]:
        """Listen on every port; the ports by name: ``envoy``, ``baseline``, ``grpc``, ``metrics``."""
        settings = self._settings
        self._spawn(self._discover())
        self._spawn(self.service.run_timers())
        service, model = self.service, settings.config.profile.engine_model
        self._spawn(watch_models(lambda: service.fleet.endpoints, service.serves, _log.warning, model=model))
        await self._until_discovered()
        grpc_port = await self._grpc.start(settings.bind, settings.grpc_port)
        ports = {"grpc": grpc_port, "metrics": await self._admin.start(settings.bind, settings.metrics_port)}
        if settings.with_envoy:
            ports |= await self._start_envoy(grpc_port)
        return ports

    async def wait(self) -> None:
        """Return when something that must run forever has ended; raises what ended it, EnvoyEnded among it."""
        waits = [*self._tasks]
        if self.envoy:
            waits.append(asyncio.create_task(self._envoy_ended(self.envoy)))
        done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def stop(self, drain_timeout_s: float = DRAIN_TIMEOUT_S) -> None:
        """Say that we go, let requests in flight end, then stop everything that was started."""
        self._admin.is_draining = True
        loop = asyncio.get_running_loop()
        drained_by = loop.time() + drain_timeout_s
        if self.envoy and self.envoy.returncode is None and drain_timeout_s > 0:
            # Envoy may die meanwhile: there is nothing to drain then.
            with contextlib.suppress(aiohttp.ClientError):
                await self.envoy.drain(drain_timeout_s)
        while len(self.service.open) and loop.time() < drained_by:  # noqa: ASYNC110
            await asyncio.sleep(_DRAIN_POLL_S)
        if self.envoy:
            await self.envoy.stop()
        await self._grpc.stop(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._scraper:
            await self._scraper.close()
        await self._kv.close()
        await self._admin.stop()
        self.service.close()
        self._folder.cleanup()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _until_discovered(self) -> None:
        waiting = asyncio.create_task(self._discovered.wait())
        await asyncio.wait([waiting, self._tasks[0]], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._tasks[0].done():
            self._tasks[0].result()

    async def _discover(self) -> None:
        async for events in watch_file(self._settings.endpoints_path, self.service.clock):
            for event in events:
                self.service.observe(event)
                self._kv.observe(event)
                if self._scraper and isinstance(event, Joined):
                    self._scraper.add(event.endpoint)
                elif self._scraper:
                    self._scraper.remove(event.endpoint)
            if self.envoy:
                self._tell_envoy()
            self._discovered.set()

    def _tell_envoy(self) -> None:
        try:
            write_endpoints(self._eds_path, client_facing(self.service.fleet.endpoints))
        except OSError as error:
            _log.error("Envoy keeps its old endpoints: %s cannot be written: %s", self._eds_path, error)

    @property
    def _eds_path(self) -> Path:
        return Path(self._folder.name, "endpoints.json")

    async def _start_envoy(self, grpc_port: int) -> dict[str, int]:
        settings = self._settings
        write_endpoints(self._eds_path, client_facing(self.service.fleet.endpoints))
        envoy_settings = EnvoySettings(
            listen_address=settings.bind,
            listen_port=settings.listen_port,
            baseline_listen_port=settings.baseline_port,
            ext_proc_address=f"{settings.bind}:{grpc_port}",
            eds_path=self._eds_path,
            num_retries=settings.config.routing.fallbacks,
            max_body_bytes=settings.config.routing.max_body_bytes,
            body_mode=settings.body_mode,
            shows_response_headers=shows_responses(settings.config.router, self.service.fleet.endpoints),
            reports_stages=reports_stages(settings.config.router, self.service.fleet.endpoints),
        )
        self.envoy = await EnvoyProcess.start(envoy_config(envoy_settings), concurrency=envoy_settings.concurrency)
        names = {LISTENER: "envoy", BASELINE_LISTENER: "baseline"}
        return {names[name]: port for name, port in self.envoy.ports.items() if name in names}

    async def _envoy_ended(self, envoy: EnvoyProcess) -> None:
        status = await envoy.wait()
        raise EnvoyEnded(f"Envoy ended with status {status}; it said:\n{envoy.stderr_tail}")


def reports_stages(router: Router, endpoints: Iterable[Endpoint]) -> bool:
    """Whether answers may say how their stages ended: the configuration has stages, or the fleet endpoints for them."""
    has_stages = any(router.scheduler.handler.work_of(name) for name in router.scheduler.profiles)
    return has_stages or any(each.labels.get(ROLE_LABEL) in APART_ROLES for each in endpoints)


def shows_responses(router: Router, endpoints: Iterable[Endpoint]) -> bool:
    """Whether Envoy must send us responses' headers."""
    return bool(router.answering) or reports_stages(router, endpoints)


def client_facing(endpoints: Iterable[Endpoint]) -> list[tuple[str, int]]:
    """Address and port of the endpoints that may get a client's request.

    Envoy's own round robin must not send a chat to an encode-only server when
    Tessera is down.
    """
    return [(endpoint.address, endpoint.port) for endpoint in endpoints if can_decode(endpoint)]
