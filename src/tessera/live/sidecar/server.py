"""Which requests does a sidecar answer itself, which does it take apart, and which does it only pass on?"""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Final, NoReturn

from aiohttp import web
from multidict import CIMultiDict

from tessera.core.errors import RequestError
from tessera.core.flow.commands import Stage
from tessera.core.flow.connectors.ec_example import ECExample
from tessera.core.flow.connectors.ec_nixl import ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.connectors.protocols import ECConnector
from tessera.core.flow.document import Document
from tessera.core.flow.flow import Flow, Job
from tessera.core.flow.plan import Plan, joined, read_plan
from tessera.core.flow.refusals import error_body
from tessera.core.flow.shapes import CHAT, SHAPES, Shape
from tessera.live.extproc.budget import BodyBudget
from tessera.live.sidecar.allow_list import AllowList
from tessera.live.sidecar.driver import FlowDriver
from tessera.live.sidecar.headers import backward, onward
from tessera.live.sidecar.settings import ECConnectorName, SidecarSettings
from tessera.live.sidecar.upstream import FAILURES, Upstream, cause_of
from tessera.telemetry.sidecar_metrics import SidecarMetrics

if TYPE_CHECKING:
    from tessera.telemetry.sidecar_traces import RequestSpan, SidecarTracer

HEALTH_TIMEOUT_S: Final = 2.0

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
        tracer: "SidecarTracer | None" = None,
    ) -> None:
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
            return await self._take_apart(request, shape)
        if request.path == "/health" and request.method == "GET":
            return await self._health()
        return await self._pass_on(request)

    async def _health(self) -> web.StreamResponse:
        """What the engine says of itself."""
        try:
            async with (
                asyncio.timeout(HEALTH_TIMEOUT_S),
                self._upstream.open(Stage.DECODE, self._engine, "/health", {}, None, "GET") as answer,
            ):
                return web.Response(status=answer.status)
        except FAILURES as error:
            return web.Response(status=503, text=f"the model server {self._engine}: {cause_of(error)}\n")

    async def _take_apart(self, request: web.BaseRequest, shape: Shape) -> web.StreamResponse:
        self._metrics.in_flight.inc()
        status, flow, driver, charge = 0, None, None, _Charge(self._budget)
        headers = onward(request.headers)
        span = self._span(shape, headers)
        try:
            plan = self._plan(request)
            body = await self._body(request)
            charge.take(len(body))
            flow = Flow(self._job(request, shape, plan, body), self._settings.flow)
            driver = FlowDriver(
                flow,
                request,
                shape=shape,
                headers=headers,
                upstream=self._upstream,
                engine=self._engine,
                let_go=charge.give,
            )
            del body
            response = await driver.run()
            status = response.status
            return response
        except _Refused as refused:
            status = refused.status
            return refusal(shape, status, refused.message, refused.param)
        except RequestError as error:
            status = error.status
            return refusal(shape, status, error.message, error.param)
        except web.RequestPayloadError as error:
            status = 400
            return refusal(shape, status, f"the body did not come as announced: {error}; send it again")
        except Exception:
            _log.exception("a request failed within the sidecar")
            status = 500
            if driver and driver.has_begun and request.transport:
                request.transport.abort()
            return refusal(shape, status, "the sidecar failed at this request; its log says why")
        finally:
            charge.give()
            self._metrics.in_flight.dec()
            report = flow.report if flow else None
            self._metrics.ended(shape.name, status, report)
            if span:
                span.end(status, report)

    def _span(self, shape: Shape, headers: CIMultiDict[str]) -> "RequestSpan | None":
        if self._tracer is None:
            return None
        return self._tracer.begin(shape.name, headers, at=asyncio.get_running_loop().time(), wall_at=time.time())

    def _job(self, request: web.BaseRequest, shape: Shape, plan: Plan, body: bytes) -> Job:
        return Job(
            document=Document(body),
            shape=shape,
            plan=plan,
            decoder=_known_as(request) or self._engine,
            ec=self._ec,
            kv=self._kv,
        )

    def _plan(self, request: web.BaseRequest) -> Plan:
        """Whom the headers name; a stage whose every server may not be asked is refused, as an attack would be."""
        plan = read_plan(joined(request.headers.items()))
        if self._settings.samples_prefillers and len(plan.prefillers) > 1:
            plan = Plan(
                placed=plan.placed,
                hosts=plan.hosts,
                spares=plan.spares,
                prefillers=tuple(random.sample(plan.prefillers, len(plan.prefillers))),
            )
        if not self._allow_list.is_on:
            return plan
        allowed = plan.allowed(self._allow_list.allows)
        for stage, named, left in (
            (Stage.ENCODE, plan.encoders, allowed.encoders),
            (Stage.PREFILL, plan.prefillers, allowed.prefillers),
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
                Stage.DECODE,
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
            return refusal(CHAT, 502, f"the model server {self._engine} gave no answer ({cause_of(error)})")


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


def refusal(shape: Shape, status: int, message: str, param: str | None = None) -> web.Response:
    """An error of ours in the words of that API."""
    body = error_body(shape.errors, status, message, param)
    return web.Response(status=status, body=body, content_type="application/json")


def _known_as(request: web.BaseRequest) -> str | None:
    """The address and port at which the client's side found us: what a router calls this endpoint."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    if not isinstance(name, tuple) or len(name) < 2:
        return None
    host = f"[{name[0]}]" if ":" in name[0] else name[0]
    return f"{host}:{name[1]}"
