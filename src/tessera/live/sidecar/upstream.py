"""How are encoders, prefillers and the engine asked, and why did one give no answer?"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from tessera.core.flow.connectors.protocols import MAX_ANSWER_BYTES
from tessera.core.flow.events import Cause
from tessera.core.work import Work
from tessera.live.sidecar.settings import SidecarSettings

KEEP_ALIVE_S: Final = 3.0
"""How long an idle connection is kept; vLLM closes its own after 5 s, and a request must not meet that."""
MAX_HEADER_BYTES: Final = 64 << 10
_PIECE_BYTES: Final = 256 << 10

FAILURES: Final = (aiohttp.ClientError, OSError, TimeoutError)
"""What asking may raise."""


class LegFailed(Exception):
    """A leg without an answer."""

    def __init__(self, cause: Cause) -> None:
        super().__init__(cause)
        self.cause: Final = cause


class Upstream:
    """One pool of connections for every stage of every request."""

    def __init__(self, settings: SidecarSettings) -> None:
        self._schemes = {stage: "https" if stage in settings.tls_stages else "http" for stage in Work}
        self._verifies = {stage: stage not in settings.unverified_stages for stage in Work}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE_S),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=settings.connect_timeout_s, sock_read=settings.idle_timeout_s
            ),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )

    def open(
        self,
        stage: Work,
        endpoint: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | AsyncIterator[bytes] | None,
        method: str = "POST",
    ) -> AbstractAsyncContextManager[aiohttp.ClientResponse]:
        """The answer of ``ip:port``, as soon as its headers are there; raises one of ``FAILURES``."""
        url = URL(f"{self._schemes[stage]}://{endpoint}{path}", encoded=True)
        sent = CIMultiDict(headers)
        data: bytes | AsyncIterator[bytes] | None = body
        if isinstance(body, bytes):
            sent["content-length"] = str(len(body))
            data = body if len(body) <= _PIECE_BYTES else _pieces(body)
        check = self._verifies[stage]
        return self._session.request(method, url, headers=sent, data=data, allow_redirects=False, ssl=check)

    async def ask(
        self, stage: Work, endpoint: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes]:
        """Status and body of a short answer.

        Raises:
            LegFailed: there was none, or one of more than 4 MiB.
        """
        try:
            async with self.open(stage, endpoint, path, headers, body) as answer:
                text = bytearray()
                async for piece in answer.content.iter_any():
                    text += piece
                    if len(text) > MAX_ANSWER_BYTES:
                        raise LegFailed(Cause.BAD_ANSWER)
                return answer.status, bytes(text)
        except FAILURES as error:
            raise LegFailed(cause_of(error)) from error

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    """A large body bit by bit, so that others get their turn."""
    view = memoryview(body)
    for start in range(0, len(view), _PIECE_BYTES):
        yield bytes(view[start : start + _PIECE_BYTES])
        await asyncio.sleep(0)


def cause_of(error: BaseException) -> Cause:
    """Why there is no answer."""
    match error:
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError() | ssl.SSLError():
            return Cause.UNREACHABLE
        case TimeoutError():
            return Cause.LATE
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | OSError():
            return Cause.CUT
        case _:
            return Cause.BAD_ANSWER
