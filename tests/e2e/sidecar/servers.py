"""Small servers that answer as vLLM's encoders, prefillers and decoders do, and fail as they are told."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field

from aiohttp import web

WORDS = ("one", "two", "three", "four")


@dataclass
class Asked:
    """One request that came."""

    path: str
    headers: dict[str, list[str]]
    body: bytes
    started_at: float
    ended_at: float = 0.0
    was_cancelled: bool = False

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def media(self):
        return [part["image_url"]["url"] for part in self.json["messages"][0]["content"]]


@dataclass
class Server:
    """``mode``: ok, refuse (nobody listens), busy (503), hang, cut (no answer), stop (in the middle of one)."""

    role: str
    mode: str = "ok"
    delay_s: float = 0.0
    asked: list[Asked] = field(default_factory=list)
    num_open: int = 0
    port: int = 0
    usage: dict = field(default_factory=lambda: {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 0}})
    pause_s: float = 0.0

    @property
    def id(self):
        return f"127.0.0.1:{self.port}"

    async def start(self, ssl_context=None):
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=ssl_context)
        await self._site.start()
        self.port = self._runner.addresses[0][1]
        if self.mode == "refuse":
            await self._site.stop()
        return self

    async def stop(self):
        await self._runner.cleanup()

    async def _handle(self, request):
        headers = {}
        for name, value in request.headers.items():
            headers.setdefault(name.lower(), []).append(value)
        body = b"".join([piece async for piece in request.content.iter_any()])
        asked = Asked(request.path_qs, headers, body, time.monotonic())
        self.asked.append(asked)
        self.num_open += 1
        try:
            await asyncio.sleep(self.delay_s)
            return await self._answer(request, asked)
        except asyncio.CancelledError:
            asked.was_cancelled = True
            raise
        finally:
            self.num_open -= 1
            asked.ended_at = time.monotonic()

    async def _answer(self, request, asked):
        if request.method == "GET":
            return web.json_response({"path": request.path_qs}, headers={"x-from": self.role})
        match self.mode:
            case "busy":
                return web.json_response({"error": {"message": "busy"}}, status=503)
            case "hang":
                await asyncio.sleep(3600)
            case "cut":
                request.transport.abort()
                return web.Response()
            case "reject":
                return web.json_response({"error": {"message": "no picture"}}, status=400)
            case "mute":
                return web.json_response({"choices": []})
        return await getattr(self, f"_{self.role}")(request, asked)

    async def _encode(self, request, asked):
        name = f"hash:{asked.media[0]}"
        entry = {"item_indices": [0], "metadata": {"image_grid_thw": [1, 44, 80]}}
        entry |= {"peer_host": "127.0.0.1", "peer_port": 5601, "size_bytes": 8, "shape": [1, 8]}
        return web.json_response({"choices": [], "ec_transfer_params": {name: entry}})

    async def _prefill(self, request, asked):
        blocks = {"do_remote_prefill": True, "do_remote_decode": False, "remote_host": "127.0.0.1", "remote_port": 5600}
        usage = {"prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 5}}
        return web.json_response({"choices": [], "usage": usage, "kv_transfer_params": blocks})

    async def _decode(self, request, asked):
        if self.mode == "no-kv" and "kv_transfer_params" in asked.json:
            return web.json_response({"error": {"message": "KV load failed"}}, status=500)
        if not asked.json.get("stream"):
            return web.json_response({"choices": [{"message": {"content": " ".join(WORDS)}}], "usage": self.usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8", "x-engine": "e"})
        await response.prepare(request)
        for index, word in enumerate(WORDS):
            await asyncio.sleep(self.pause_s)
            event = json.dumps({"choices": [{"delta": {"content": word}}]})
            if self.mode == "stop" and index == 2:
                await response.write(f"data: {event}"[:20].encode())
                await asyncio.sleep(0.05)
                request.transport.abort()
                return response
            await response.write(f"data: {event}\n\n".encode())
        await response.write(f"data: {json.dumps({'choices': [], 'usage': self.usage})}\n\n".encode())
        await response.write(b"data: [DONE]\n\n")
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response
