"""How are a flow's commands carried out, and its events fed? Nothing is chosen here."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping

from aiohttp import web
from multidict import CIMultiDict

from tessera.core.flow.commands import (
    Break,
    Cancel,
    Command,
    Decode,
    Encode,
    End,
    Prefill,
    Refuse,
    Relay,
    WakeAt,
)
from tessera.core.flow.events import (
    Cause,
    ClientGone,
    DecodeEnded,
    DecodeFailed,
    DecodeHeaders,
    EncodeAnswered,
    EncodeFailed,
    Event,
    PrefillAnswered,
    PrefillFailed,
    Started,
    Woken,
)
from tessera.core.flow.flow import Flow
from tessera.core.flow.shapes import CHAT_PATH, Shape
from tessera.core.headers import STAGES
from tessera.core.work import Work
from tessera.live.sidecar.headers import to_encoder, to_prefiller
from tessera.live.sidecar.refusing import refusal
from tessera.live.sidecar.relaying import Answer, ClientLost
from tessera.live.sidecar.upstream import FAILURES, LegFailed, Upstream, cause_of

_log = logging.getLogger("tessera.sidecar")

Leg = tuple[Work, int | None, int]
"""Stage, item, attempt."""


class FlowDriver:
    """Drives one flow on the event loop."""

    def __init__(
        self,
        flow: Flow,
        request: web.BaseRequest,
        *,
        shape: Shape,
        headers: CIMultiDict[str],
        upstream: Upstream,
        engine: str,
        let_go: Callable[[], None],
    ) -> None:
        """``headers``: the client's, as they go to ``engine``; ``let_go`` is called when the body is needed no more."""
        self._flow = flow
        self._request = request
        self._shape = shape
        self._headers = headers
        self._upstream = upstream
        self._engine = engine
        self._let_go = let_go
        self._loop = asyncio.get_running_loop()
        self._legs: dict[Leg, asyncio.Task[None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._answer: Answer | None = None
        self._relayed: str | None = None
        self._ending: End | Break | Refuse | None = None

    @property
    def has_begun(self) -> bool:
        """Whether the client has got a part of its answer."""
        return self._answer is not None

    @property
    def is_cut(self) -> bool:
        """Whether the answer began and was not completed."""
        return isinstance(self._ending, Break)

    async def run(self) -> web.StreamResponse:
        """The client's answer, sent to its end; cancelled when the client goes.

        Raises:
            ClientLost: the client went, and nobody has cancelled yet.
        """
        try:
            self._happens(Started(self._loop.time()))
            await self._over
            return await self._finish()
        except asyncio.CancelledError:
            self._happens(ClientGone(self._loop.time()))
            raise
        finally:
            if self._timer:
                self._timer.cancel()
            for task in self._legs.values():
                task.cancel()

    def _happens(self, event: Event) -> None:
        try:
            for command in self._flow.receive(event):
                self._carry_out(command)
        except Exception as error:
            if not self._over.done():
                self._over.set_exception(error)
            return
        if self._flow.is_over and not self._over.done():
            self._over.set_result(None)

    def _carry_out(self, command: Command) -> None:
        match command:
            case Encode():
                self._begin((Work.ENCODE, command.item, command.attempt), self._encode(command))
            case Prefill():
                self._begin((Work.PREFILL, None, command.attempt), self._prefill(command))
            case Decode():
                self._begin((Work.DECODE, None, command.attempt), self._decode(command))
            case Cancel():
                self._legs[command.stage, command.item, command.attempt].cancel()
            case WakeAt():
                if self._timer:
                    self._timer.cancel()
                self._timer = self._loop.call_at(command.at, self._wake)
            case Relay():
                self._relayed = command.stages
                self._let_go()
            case End() | Break() | Refuse():
                self._ending = command

    def _begin(self, leg: Leg, work: Coroutine[None, None, None]) -> None:
        task = self._legs[leg] = self._loop.create_task(work)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error and not self._over.done():
            self._over.set_exception(error)

    def _wake(self) -> None:
        self._happens(Woken(self._loop.time()))

    async def _encode(self, command: Encode) -> None:
        headers = to_encoder(self._headers, command.item)
        await self._short(
            Work.ENCODE,
            command,
            CHAT_PATH,
            headers,
            lambda at, status, body: EncodeAnswered(at, command.item, command.attempt, status, body),
            lambda at, cause: EncodeFailed(at, command.item, command.attempt, cause),
        )

    async def _prefill(self, command: Prefill) -> None:
        await self._short(
            Work.PREFILL,
            command,
            self._request.path_qs,
            to_prefiller(self._headers),
            lambda at, status, body: PrefillAnswered(at, command.attempt, status, body),
            lambda at, cause: PrefillFailed(at, command.attempt, cause),
        )

    async def _short(
        self,
        stage: Work,
        command: Encode | Prefill,
        path: str,
        headers: Mapping[str, str],
        answered: Callable[[float, int, bytes], Event],
        failed: Callable[[float, Cause], Event],
    ) -> None:
        try:
            status, body = await self._upstream.ask(stage, command.endpoint, path, headers, command.body)
        except LegFailed as failure:
            _log.debug("%s by %s failed: %s", stage, command.endpoint, failure.cause)
            self._happens(failed(self._loop.time(), failure.cause))
        else:
            self._happens(answered(self._loop.time(), status, body))

    async def _decode(self, command: Decode) -> None:
        attempt, num_cached_tokens, path = command.attempt, command.num_cached_tokens, self._request.path_qs
        asking = self._upstream.open(Work.DECODE, self._engine, path, self._headers, command.body)
        # A long answer must not keep the body in memory.
        del command
        try:
            async with asking as answer:
                self._happens(DecodeHeaders(self._loop.time(), attempt, answer.status))
                if self._relayed is None:
                    answer.close()
                    return
                self._answer = Answer(self._request, answer, self._shape, num_cached_tokens)
                await self._answer.relay({STAGES: self._relayed})
        except ClientLost:
            self._happens(ClientGone(self._loop.time()))
        except FAILURES as error:
            self._happens(DecodeFailed(self._loop.time(), attempt, cause_of(error)))
        else:
            self._happens(DecodeEnded(self._loop.time(), attempt))

    async def _finish(self) -> web.StreamResponse:
        match self._ending:
            case Refuse(status, message):
                stages = self._flow.report.header()
                return refusal(self._shape, status, message, headers={STAGES: stages} if stages else {})
            case Break(message) if self._answer:
                return await self._answer.stop(message)
            case End() if self._answer:
                return await self._answer.end()
        raise ClientLost
