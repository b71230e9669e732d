"""Which requests does a sidecar answer itself, which does it take apart, and which does it only pass on?"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NoReturn

from aiohttp import web
from multidict import CIMultiDict

from tessera.core.errors import RequestError
from tessera.core.flow.connectors.ec_example import ECExample
from tessera.core.flow.connectors.ec_nixl import ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.connectors.protocols import ECConnector
from tessera.core.flow.document import Document
from tessera.core.flow.events import Cause
from tessera.core.flow.flow import Flow, Job
from tessera.core.flow.plan import Plan, joined, read_plan
from tessera.core.flow.shapes import CHAT, SHAPES, Shape
from tessera.core.flow.stages import FlowReport
from tessera.core.headers import DATA_PARALLEL
from tessera.core.work import Work
from tessera.live.extproc.budget import BodyBudget
from tessera.live.sidecar.allow_list import AllowList
from tessera.live.sidecar.driver import FlowDriver
from tessera.live.sidecar.headers import REQUEST_ID, backward, onward
from tessera.live.sidecar.refusing import refusal
from tessera.live.sidecar.relaying import ClientLost
from tessera.live.sidecar.settings import ECConnectorName, SidecarSettings
from tessera.live.sidecar.upstream import FAILURES, Upstream, cause_of
from tessera.telemetry.sidecar_metrics import SidecarMetrics

if TYPE_CHECKING:
    from tessera.telemetry.sidecar_traces import RequestSpan, SidecarTracer

HEALTH_TIMEOUT_S: Final = 2.0
MAX_PORT_CHARS: Final = 5
MAX_NAMED_RANKS: Final = 16
"""Ports that an error lists."""

_CONNECTORS: Final[Mapping[ECConnectorName, ECConnector]] = {
    ECConnectorName.EXAMPLE: ECExample(),
    ECConnectorName.NIXL: ECNixl(),
}
_log = logging.getLogger("tessera.sidecar")


class _Refused(Exception):
    def __init__(self, status: int, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.param = param


@dataclass(slots=True)
class _Asked:
    """What is known of a request when it has ended."""

    shape: Shape
    headers: CIMultiDict[str]
    """As they go to the engine."""
    at: float
    flow: Flow | None = None
    driver: FlowDriver | None = None
    status: int = 0
    """Of the answer; 0 while there is none."""

    @property
    def report(self) -> FlowReport | None:
        return self.flow.report if self.flow else None

    @property
    def is_cut(self) -> bool:
        return self.driver is not None and self.driver.is_cut

    def log_fields(self) -> Iterator[tuple[str, object]]:
        """One line for each request: no body, no prompt, no URL."""
        yield "request_id", repr(self.headers[REQUEST_ID])
        yield "dialect", self.shape.name
        yield "status", self.status
        yield "duration_s", round(asyncio.get_running_loop().time() - self.at, 3)
        if self.is_cut:
            yield "cut", True
        if report := self.report:
            yield "stages", report.header()
            for (stage, cause), count in report.fell_back.items():
                yield f"fell_back_{stage}_{cause}", count


class Rank:
    """One listening port and the engine behind it: every request of a data-parallel rank stays with that rank."""

    def __init__(
        self,
        settings: SidecarSettings,
        rank: int,
        *,
        upstream: Upstream,
        allow_list: AllowList,
        metrics: SidecarMetrics,
        budget: BodyBudget,
        ranks: "Mapping[int, Rank]" = MappingProxyType({}),
        tracer: "SidecarTracer | None" = None,
    ) -> None:
        self._ranks = ranks
        """All ranks by the ports at which they listen."""
        self._settings = settings
        host = f"[{settings.model_host}]" if ":" in settings.model_host else settings.model_host
        self._engine = f"{host}:{settings.model_port + rank}"
        self._upstream = upstream
        self._allow_list = allow_list
        self._metrics = metrics
        self._budget = budget
        self._tracer = tracer
        self._ec: ECConnector | None = _CONNECTORS[settings.ec] if settings.ec else None
        self._kv = KVNixl()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        if request.headers.get("expect", "").lower() == "100-continue":
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        shape = SHAPES.get(request.path) if request.method == "POST" else None
        if shape is not None:
            return await self._take_apart_at_its_rank(request, shape)
        if request.path == "/health" and request.method == "GET":
            return await self._health()
        return await self._pass_on(request)

    async def _health(self) -> web.StreamResponse:
        """What the engine says of itself."""
        try:
            async with (
                asyncio.timeout(HEALTH_TIMEOUT_S),
                self._upstream.open(Work.DECODE, self._engine, "/health", {}, None, "GET") as answer,
            ):
                return web.Response(status=answer.status)
        except FAILURES as error:
            return web.Response(status=503, text=f"the model server does not answer: {cause_of(error)}\n")

    async def _take_apart_at_its_rank(self, request: web.BaseRequest, shape: Shape) -> web.StreamResponse:
        """A router that reaches all ranks through one port says which it means; the port alone tells."""
        named = request.headers.get(DATA_PARALLEL, "").strip()
        if not named:
            return await self._take_apart(request, shape)
        port = named.rpartition(":")[2]
        rank = self._ranks.get(int(port)) if port.isascii() and port.isdigit() and len(port) <= MAX_PORT_CHARS else None
        if rank is None:
            known = ", ".join(map(str, list(self._ranks)[:MAX_NAMED_RANKS]))
            message = f"the header {DATA_PARALLEL} names {named[:80]!r}, expected ip:port with one of the ports {known}"
            return refusal(shape, 400, message, DATA_PARALLEL)
        return await rank._take_apart(request, shape)

    async def _take_apart(self, request: web.BaseRequest, shape: Shape) -> web.StreamResponse:
        self._metrics.in_flight.inc()
        asked = _Asked(shape, onward(request.headers), asyncio.get_running_loop().time())
        span = self._span(asked)
        try:
            response = await self._answer(request, asked)
            asked.status = response.status
            return response
        except ClientLost:
            return web.Response()
        finally:
            self._metrics.in_flight.dec()
            self._metrics.ended(shape.name, asked.status, asked.report, is_cut=asked.is_cut)
            if span:
                span.end(asked.status, asked.report)
            if _log.isEnabledFor(logging.INFO):
                _log.info(" ".join(f"{name}={value}" for name, value in asked.log_fields()))

    async def _answer(self, request: web.BaseRequest, asked: "_Asked") -> web.StreamResponse:
        charge = _Charge(self._budget)
        shape = asked.shape
        try:
            plan = self._plan(request)
            body = await self._body(request)
            charge.take(len(body))
            asked.flow = Flow(self._job(request, shape, plan, body), self._settings.flow)
            del body
            asked.driver = FlowDriver(
                asked.flow,
                request,
                shape=shape,
                headers=asked.headers,
                upstream=self._upstream,
                engine=self._engine,
                let_go=charge.give,
            )
            return await asked.driver.run()
        except _Refused as refused:
            return refusal(shape, refused.status, refused.message, refused.param)
        except RequestError as error:
            return refusal(shape, error.status, error.message, error.param)
        except web.RequestPayloadError as error:
            return refusal(shape, 400, f"the body did not come as announced: {error}; send it again")
        except ClientLost:
            raise
        except Exception:
            _log.exception("a request failed within the sidecar")
            if asked.driver and asked.driver.has_begun and request.transport:
                request.transport.abort()
            return refusal(shape, 500, "the sidecar failed at this request; its log says why")
        finally:
            charge.give()

    def _span(self, asked: "_Asked") -> "RequestSpan | None":
        if self._tracer is None:
            return None
        return self._tracer.begin(asked.shape.name, asked.headers, at=asked.at, wall_at=time.time())

    def _job(self, request: web.BaseRequest, shape: Shape, plan: Plan, body: bytes) -> Job:
        return Job(
            document=Document(body),
            shape=shape,
            plan=plan,
            decoder=request.headers.get(DATA_PARALLEL, "").strip() or _known_as(request) or self._engine,
            ec=self._ec,
            kv=self._kv,
        )

    def _plan(self, request: web.BaseRequest) -> Plan:
        """Whom the headers name; a stage whose every server may not be asked is refused, as an attack would be."""
        plan = read_plan(joined(request.headers.items()))
        if self._settings.samples_prefillers and len(plan.prefillers) > 1:
            plan = replace(plan, prefillers=tuple(random.sample(plan.prefillers, len(plan.prefillers))))
        if not self._allow_list.is_on:
            return plan
        allowed = plan.allowed(self._allow_list.allows)
        for stage, named, left in (
            (Work.ENCODE, plan.encoders, allowed.encoders),
            (Work.PREFILL, plan.prefillers, allowed.prefillers),
        ):
            self._metrics.denied(stage, len(named) - len(left))
            if named and not left:
                raise _Refused(403, f"{named[0]} may not be asked to {stage}: it is not among this pool's servers")
        return allowed

    async def _body(self, request: web.BaseRequest) -> bytes:
        pieces = [piece async for piece in _Bounded(request, self._settings).pieces()]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _pass_on(self, request: web.BaseRequest) -> web.StreamResponse:
        """A plain reverse proxy to the engine; bodies pass in pieces."""
        bounded = _Bounded(request, self._settings)
        response: web.StreamResponse | None = None
        try:
            bounded.check(request.content_length or 0)
            async with self._upstream.open(
                Work.DECODE,
                self._engine,
                request.path_qs,
                onward(request.headers, keeps_length=True),
                bounded.pieces() if request.body_exists else None,
                request.method,
            ) as answer:
                response = web.StreamResponse(
                    status=answer.status,
                    reason=answer.reason,
                    headers=backward(answer.headers, keeps_length=True),
                )
                await response.prepare(request)
                async for piece in answer.content.iter_any():
                    await response.write(piece)
                await response.write_eof()
                return response
        except (_Refused, *FAILURES) as error:
            if response is not None and response.prepared:
                if request.transport:
                    request.transport.abort()
                return response
            if bounded.refused:
                return refusal(CHAT, bounded.refused.status, bounded.refused.message)
            cause = cause_of(error)
            status = 503 if cause is Cause.UNREACHABLE else 502
            return refusal(CHAT, status, f"the model server gave no answer ({cause})")


class _Charge:
    """What one body takes of the room for all of them."""

    def __init__(self, budget: BodyBudget) -> None:
        self._budget = budget
        self._num_bytes = 0

    def take(self, num_bytes: int) -> None:
        """Charge so many bytes where there is room for them."""
        if not self._budget.take(num_bytes):
            message = f"{self._budget.held_bytes} bytes of other requests are held; send the request again later"
            raise _Refused(503, message)
        self._num_bytes = num_bytes

    def give(self) -> None:
        """Give them back, if that was not done before."""
        self._budget.give(self._num_bytes)
        self._num_bytes = 0


class _Bounded:
    """A request's body in pieces, within limits; ``refused`` says that one was passed, whoever saw the error."""

    def __init__(self, request: web.BaseRequest, settings: SidecarSettings) -> None:
        self._request = request
        self._limit = settings.max_body_bytes
        self._idle_s = settings.client_idle_timeout_s
        self.refused: _Refused | None = None

    def check(self, num_bytes: int) -> None:
        """Refuse so many bytes where they are too many."""
        if num_bytes > self._limit:
            advice = f"at most {self._limit} are accepted; send smaller media"
            self._refuse(413, f"the body has {num_bytes} bytes or more, {advice}")

    async def pieces(self) -> AsyncIterator[bytes]:
        """The pieces as they come."""
        self.check(self._request.content_length or 0)
        size = 0
        while piece := await self._next():
            size += len(piece)
            self.check(size)
            yield piece

    async def _next(self) -> bytes:
        try:
            async with asyncio.timeout(self._idle_s):
                return await self._request.content.readany()
        except TimeoutError:
            self._refuse(408, f"nothing of the body came for {self._idle_s:g} s; send the request again")

    def _refuse(self, status: int, message: str) -> NoReturn:
        self.refused = _Refused(status, message)
        raise self.refused


def _known_as(request: web.BaseRequest) -> str | None:
    """The address and port at which the client's side found us: what a router calls this endpoint."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    if not isinstance(name, tuple) or len(name) < 2:
        return None
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{host}:{name[1]}"
