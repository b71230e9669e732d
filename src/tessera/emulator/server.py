"""Where does the emulated server listen, and which routes does it have?"""

import asyncio
import json
import signal
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Self

from aiohttp import web

from tessera.emulator.driver import Driver
from tessera.emulator.faults import NO_FAULT, Fault, FaultMode, FaultSwitch, read_fault
from tessera.emulator.generation import Generation
from tessera.emulator.handovers import Handovers
from tessera.emulator.kv_feed import KVFeed
from tessera.emulator.metrics import CONTENT_TYPE, Metrics
from tessera.emulator.reading import Reader
from tessera.emulator.refusals import Refusal
from tessera.emulator.request_log import RequestLog, RequestRecord
from tessera.emulator.settings import EmulatorSettings
from tessera.emulator.transfer_params import Peer
from tessera.engine.engine import Engine
from tessera.engine.events import CacheCounters, EngineFacts

VERSION = "0.32.0"
"""The vLLM whose answers are emulated."""
MAX_BODY_BYTES = 256 << 20
SHUTDOWN_S = 0.5
"""What running answers get when the server stops."""
MAX_ANSWER_S = 600.0
"""How long an answer may go on whose server refuses new connections."""
BACKLOG = 1024
DYING_S = 0.05
"""What the answer that tells of the end gets to leave."""
ANY_ADDRESS = ("0.0.0.0", "::")
LOOPBACK = "127.0.0.1"

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Emulator:
    """One emulated server in this process.

    ``async with Emulator(settings) as emulator`` starts it and stops it; ``emulator.url``
    is where it listens. Tests may read ``log`` and :meth:`facts` directly and turn faults on
    with :meth:`inject`, which works while the port refuses.
    """

    def __init__(self, settings: EmulatorSettings) -> None:
        self.settings = settings
        self.log = RequestLog()
        self.metrics = Metrics(settings)
        self._reader = Reader(settings)
        self.faults = FaultSwitch()
        self._socket: socket.socket | None = None
        self._driver: Driver | None = None
        self._kv_feed: KVFeed | None = None
        self._runner: web.AppRunner | None = None
        self._site: web.SockSite | None = None
        self._lifting: asyncio.Task[None] | None = None
        self._closing: asyncio.Future[list[None]] | None = None
        self._handovers: Handovers | None = None
        self._dying: asyncio.Task[None] | None = None
        self.died = asyncio.Event()
        """Set when a request has ended the process, which a server that shares one with others cannot do."""

    @property
    def port(self) -> int:
        """The port that it listens on, once started."""
        assert self._socket is not None, "the emulator is not started"
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """``http://host:port``."""
        return f"http://{self.settings.host}:{self.port}"

    @property
    def ports(self) -> dict[str, int]:
        """``http``, and ``kv_events`` and ``kv_replay`` where KV events are published."""
        feed = self._kv_feed
        return {"http": self.port} | ({"kv_events": feed.port, "kv_replay": feed.replay_port} if feed else {})

    @property
    def records(self) -> list[RequestRecord]:
        """The generation requests that came, oldest first."""
        return list(self.log.records)

    async def start(self) -> int:
        """Listen; returns the port."""
        self._socket = _bind(self.settings.host, self.settings.port)
        settings = self.settings
        if settings.kv_events:
            topic = f"kv@{settings.host}:{self.port}@{settings.model}"
            self._kv_feed = KVFeed(settings, settings.kv_events, topic=topic)
        profile = settings.profile
        if settings.embeddings_folder is not None:
            profile = replace(profile, embedding_store_bytes=0)
        engine = Engine(profile, tells_kv_events=settings.kv_events is not None)
        self._driver = Driver(engine, self.metrics, speed=settings.speed, kv_feed=self._kv_feed)
        self.metrics.process_started(time.time())
        own = Peer(LOOPBACK if settings.host in ANY_ADDRESS else settings.host, self.port)
        self._handovers = Handovers(settings, self._driver, own)
        generation = Generation(
            settings, self._reader, self._driver, self._handovers, self.faults, self.log, on_death=self._die
        )
        self._runner = web.AppRunner(
            self._application(generation),
            access_log=None,
            handler_cancellation=True,
            shutdown_timeout=SHUTDOWN_S,
        )
        await self._runner.setup()
        await self._listen()
        return self.port

    async def stop(self) -> None:
        """Stop listening, end what runs, free the port."""
        if self._lifting:
            self._lifting.cancel()
        if self._closing:
            self._closing.cancel()
        if self._dying and self._dying is not asyncio.current_task():
            self._dying.cancel()
        if self._handovers:
            await self._handovers.close()
        if self._runner:
            await self._runner.cleanup()
        if self._driver:
            self._driver.close()
        if self._kv_feed:
            await self._kv_feed.close()
        if self._socket:
            self._socket.close()

    def _die(self) -> None:
        """End as a process does whose engine is gone: soon, and with it all that it answers."""
        if self._dying is None:
            self._dying = asyncio.create_task(self._end())

    async def _end(self) -> None:
        await asyncio.sleep(DYING_S)
        await self.stop()
        self.died.set()

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def facts(self) -> EngineFacts:
        """The engine's state now."""
        return self._running.facts()

    @property
    def _running(self) -> Driver:
        assert self._driver is not None, "the emulator is not started"
        return self._driver

    async def inject(self, fault: Fault) -> None:
        """Turn a fault on in place of the one before; ``NO_FAULT`` mends everything."""
        if self._lifting and self._lifting is not asyncio.current_task():
            self._lifting.cancel()
        self._lifting = None
        self.faults.turn(fault)
        if fault.mode is FaultMode.REFUSE:
            await self._refuse()
        else:
            await self._listen()
        if fault.seconds is not None:
            self._lifting = asyncio.create_task(self._lift_after(fault.seconds))

    async def _lift_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.inject(NO_FAULT)

    async def _listen(self) -> None:
        if self._site is None:
            assert self._runner is not None
            assert self._socket is not None
            self._site = web.SockSite(self._runner, self._socket.dup(), backlog=BACKLOG)
            await self._site.start()

    async def _refuse(self) -> None:
        """Refuse connections but keep the port, so that nobody else can get it in the meantime."""
        if self._site is None:
            return
        assert self._runner is not None
        assert self._runner.server is not None
        assert self._socket is not None
        await self._site.stop()
        self._site = None
        # The site closed its duplicate; on Linux a shutdown ends the listening of what is left and keeps it bound.
        self._socket.shutdown(socket.SHUT_RD)
        # An idle connection is closed at once, a busy one with its answer; whoever pools them must not be left waiting.
        self._runner.server.pre_shutdown()
        connections = self._runner.server.connections
        self._closing = asyncio.gather(*(each.shutdown(MAX_ANSWER_S) for each in connections))

    def _application(self, generation: Generation) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_as_vllm_refuses])
        app.add_routes(
            [
                web.post("/v1/chat/completions", generation.chat),
                web.post("/v1/completions", generation.completions),
                web.get("/v1/models", self._models),
                web.get("/health", self._health),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics_page),
                web.post("/reset_prefix_cache", self._reset_prefix_cache),
                web.post("/reset_encoder_cache", self._reset_encoder_cache),
                web.post("/reset_mm_cache", self._reset_mm_cache),
                web.get("/emulator/requests", self._requests),
                web.delete("/emulator/requests", self._forget_requests),
                web.get("/emulator/facts", self._facts),
                web.get("/emulator/faults", self._show_fault),
                web.post("/emulator/faults", self._turn_fault),
                web.get("/emulator/ec/{identifier}", self._embeddings),
                web.get("/emulator/kv/{request_id}", self._kv),
                web.delete("/emulator/kv/{request_id}", self._release_kv),
                web.delete("/emulator/faults", self._mend),
            ]
        )
        return app

    async def _models(self, _: web.Request) -> web.Response:
        settings = self.settings
        now = int(time.time())
        denied = ("allow_create_engine", "allow_search_indices", "allow_fine_tuning", "is_blocking")
        allowed = ("allow_sampling", "allow_logprobs", "allow_view")
        permission = {
            "id": f"modelperm-{uuid.uuid4().hex[:16]}",
            "object": "model_permission",
            "created": now,
            **dict.fromkeys(denied, False),
            **dict.fromkeys(allowed, True),
            "organization": "*",
            "group": None,
        }
        model = {
            "id": settings.model,
            "object": "model",
            "created": now,
            "owned_by": "vllm",
            "root": settings.engine_model,
            "parent": None,
            "max_model_len": settings.max_model_len,
            "permission": [permission],
        }
        return web.json_response({"object": "list", "data": [model]})

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return web.json_response({"version": VERSION})

    async def _metrics_page(self, _: web.Request) -> web.Response:
        return web.Response(body=self.metrics.page(self.facts()), headers={"Content-Type": CONTENT_TYPE})

    async def _reset_prefix_cache(self, _: web.Request) -> web.Response:
        return web.json_response({"success": self._running.reset_prefix_cache()})

    async def _reset_encoder_cache(self, _: web.Request) -> web.Response:
        self._running.reset_encoder_cache()
        return web.Response()

    async def _reset_mm_cache(self, _: web.Request) -> web.Response:
        self._running.reset_processor_cache()
        self._reader.seen.clear()
        return web.Response()

    async def _requests(self, _: web.Request) -> web.Response:
        return web.json_response(self.log.as_json())

    async def _forget_requests(self, _: web.Request) -> web.Response:
        self.log.records.clear()
        return web.json_response(self.log.as_json())

    async def _facts(self, _: web.Request) -> web.Response:
        """The engine's state, with what no metrics page of vLLM tells: its encoder cache."""
        rows = self.facts()._asdict().items()
        return web.json_response(
            {name: each._asdict() if isinstance(each, CacheCounters) else each for name, each in rows}
        )

    async def _embeddings(self, request: web.Request) -> web.Response:
        """What a peer is told of an item's embeddings."""
        assert self._handovers is not None
        identifier = request.match_info["identifier"]
        num_embeds = self._handovers.num_stored_embeds(identifier)
        if num_embeds is None:
            raise Refusal(f"no embeddings of {identifier[:64]!r} are kept here", status=404)
        return web.json_response(self._handovers.description(identifier, num_embeds))

    async def _kv(self, request: web.Request) -> web.Response:
        """What a peer is told of a prompt's KV; it is kept on for the peer to pull."""
        request_id = request.match_info["request_id"]
        num_tokens = self._running.renew_lease(request_id, self.settings.kv_lease_s)
        if not num_tokens:
            raise Refusal(f"no KV of request {request_id[:64]!r} is kept here", status=404)
        return web.json_response({"request_id": request_id, "num_tokens": num_tokens})

    async def _release_kv(self, request: web.Request) -> web.Response:
        return web.json_response({"released": self._running.release_kv(request.match_info["request_id"])})

    async def _show_fault(self, _: web.Request) -> web.Response:
        return web.json_response(self.faults.as_json())

    async def _turn_fault(self, request: web.Request) -> web.Response:
        try:
            asked: Any = json.loads(await request.read())
        except (ValueError, RecursionError) as error:
            raise Refusal(f"not JSON: {error}") from None
        await self.inject(read_fault(asked))
        response = web.json_response(self.faults.as_json())
        if self._site is None:
            response.force_close()
        return response

    async def _mend(self, _: web.Request) -> web.Response:
        await self.inject(NO_FAULT)
        return web.json_response(self.faults.as_json())


@web.middleware
async def _as_vllm_refuses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals as OpenAI's error body, the web server's own as FastAPI's."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return web.Response(status=refusal.status, body=refusal.body(), content_type="application/json")
    except web.HTTPRequestEntityTooLarge as error:
        too_large = Refusal(f"The body is larger than {MAX_BODY_BYTES} bytes.", status=error.status)
        return web.Response(status=error.status, body=too_large.body(), content_type="application/json")
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return web.json_response({"detail": error.reason}, status=error.status)


def _bind(host: str, port: int) -> socket.socket:
    """A bound socket that does not listen yet; 0 lets the system choose the port."""
    if port == 0:
        # Linux keeps a port over the end of listening only if it was asked for by number.
        with _bound(host, 0) as chosen:
            return _bound(host, chosen.getsockname()[1])
    return _bound(host, port)


def _bound(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    return bound


async def run(settings: EmulatorSettings, *, say: Callable[[str], None]) -> bool:
    """Serve until SIGTERM or SIGINT, or until a request ends the process, which is false.

    ``say`` gets one JSON line, ``{"ready": true, "ports": {"http": PORT, ...}}``.
    """
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    async with Emulator(settings) as emulator:
        say(json.dumps({"ready": True, "ports": emulator.ports}))
        ends = [asyncio.create_task(event.wait()) for event in (stopping, emulator.died)]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        for end in ends:
            end.cancel()
        return not emulator.died.is_set()
