"""What can an operator ask a running router? Health, metrics, and why it chose as it did."""

import msgspec
from aiohttp import web

from tessera.live.service import RouterService
from tessera.telemetry.records import decision_record

MAX_ROWS = 1000


class AdminServer:
    """``/healthz``, ``/readyz``, ``/metrics``, and under ``/debug`` the pricing table and the last decisions."""

    def __init__(self, service: RouterService) -> None:
        self._service = service
        self.is_draining = False
        app = web.Application()
        app.add_routes(
            [
                web.get("/healthz", self._healthz),
                web.get("/readyz", self._readyz),
                web.get("/metrics", self._metrics),
                web.get("/debug/pricing", self._pricing),
                web.get("/debug/decisions", self._decisions),
                web.get("/debug/decisions/{request_id}", self._decision),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None)

    async def start(self, address: str, port: int) -> int:
        """Listen; the port that was given or that the system chose."""
        await self._runner.setup()
        site = web.TCPSite(self._runner, address, port)
        await site.start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        if self.is_draining:
            return web.Response(status=503, text="draining\n")
        if not self._service.fleet.endpoints:
            return web.Response(status=503, text="the pool has no endpoint\n")
        return web.Response(text="ok\n")

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._service.metrics.page(), content_type="text/plain", charset="utf-8")

    async def _pricing(self, _: web.Request) -> web.Response:
        return _json({"rows": self._service.pricing_table()})

    async def _decisions(self, request: web.Request) -> web.Response:
        text = request.query.get("limit", "100")
        limit = int(text) if text.isascii() and text.isdigit() and 0 < int(text) <= MAX_ROWS else None
        if limit is None:
            return _json({"error": f"limit is {text!r}, expected a number from 1 to {MAX_ROWS}"}, status=400)
        return _json({"decisions": list(self._service.decisions.newest(limit))})

    async def _decision(self, request: web.Request) -> web.Response:
        request_id = request.match_info["request_id"]
        decision = self._service.decisions.find(request_id)
        if decision is None:
            message = (
                f"no decision with request id {request_id[:128]!r} among the last ones; /debug/decisions lists them"
            )
            return _json({"error": message}, status=404)
        return _json(decision_record(decision))


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
