"""How does the engine's answer get to the client, piece by piece, and how does it end?"""

from collections.abc import AsyncIterator, Mapping

import aiohttp
from aiohttp import web

from tessera.core.flow.event_stream import EventStream
from tessera.core.flow.refusals import error_event
from tessera.core.flow.shapes import Shape
from tessera.core.flow.usage import MAX_ANSWER_BYTES, StreamUsage, with_cached_tokens
from tessera.live.sidecar.headers import backward


class ClientLost(Exception):
    """The client's connection is gone."""


class Answer:
    """One answer on its way: ``relay``, then ``end`` or ``stop``.

    Events of a stream are passed on whole, as they come; anything else in the pieces it
    comes in, but for a JSON answer whose usage is set, which is held to its end.
    """

    def __init__(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, shape: Shape, num_cached_tokens: int | None
    ) -> None:
        self._request = request
        self._answer = answer
        self._shape = shape
        kind = answer.headers.get("content-type", "")
        is_plain = answer.headers.get("content-encoding", "identity") == "identity"
        self._is_stream = kind.startswith("text/event-stream") and is_plain
        self._is_json = kind.startswith("application/json") and is_plain
        self._num_cached = num_cached_tokens if answer.status < 300 else None
        self._events = EventStream()
        rewrites = self._num_cached is not None and (self._is_json or self._is_stream)
        self._response = web.StreamResponse(
            status=answer.status,
            reason=answer.reason,
            headers=backward(answer.headers, keeps_length=not rewrites),
        )

    async def relay(self, headers: Mapping[str, str]) -> None:
        """Everything that the engine sends, behind its headers and these.

        Raises:
            ClientLost: the client cannot be written to.
            aiohttp.ClientError: the engine stopped in the middle.
        """
        self._response.headers.update(headers)
        try:
            await self._response.prepare(self._request)
        except ConnectionError:
            raise ClientLost from None
        async for piece in self._pieces():
            if piece:
                await self._write(piece)

    async def _pieces(self) -> AsyncIterator[bytes]:
        content = self._answer.content
        if self._is_stream:
            rewrite = StreamUsage(self._shape, self._num_cached) if self._num_cached is not None else None
            async for piece in content.iter_any():
                events = self._events.feed(piece)
                yield rewrite(events) if rewrite else events
            yield self._events.rest()
        elif self._is_json and self._num_cached is not None:
            whole = bytearray()
            async for piece in content.iter_any():
                whole += piece
                if len(whole) > MAX_ANSWER_BYTES:
                    yield bytes(whole)
                    whole.clear()
            yield with_cached_tokens(self._shape, bytes(whole), self._num_cached)
        else:
            async for piece in content.iter_any():
                yield piece

    async def _write(self, piece: bytes) -> None:
        try:
            await self._response.write(piece)
        except ConnectionError:
            raise ClientLost from None

    async def end(self) -> web.StreamResponse:
        """The answer is complete."""
        await self._response.write_eof()
        return self._response

    async def stop(self, message: str) -> web.StreamResponse:
        """The answer will never be complete: a stream says so, anything else is cut off."""
        if self._is_stream and self._response.prepared:
            gap = b"" if self._events.is_at_start else b"\n\n"
            await self._response.write(gap + error_event(self._shape.errors, message))
            await self._response.write_eof()
        elif self._request.transport:
            self._request.transport.abort()
        return self._response
