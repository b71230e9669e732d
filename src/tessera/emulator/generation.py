"""How is a chat or text completion served, from its body to its last event?"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping

from aiohttp import web

from tessera.emulator import refusals
from tessera.emulator.answers import (
    DONE,
    Answer,
    ChatAnswer,
    CompletionAnswer,
    EncodeChatAnswer,
    EncodeCompletionAnswer,
    Words,
)
from tessera.emulator.driver import Driver
from tessera.emulator.faults import NO_FAULT, Fault, FaultMode, FaultSwitch
from tessera.emulator.handovers import Handovers, Taken
from tessera.emulator.reading import Asked, Reader
from tessera.emulator.refusals import Refusal
from tessera.emulator.request_log import RequestLog, RequestRecord
from tessera.emulator.settings import EmulatorSettings
from tessera.emulator.tickets import NewToken, Ticket, Work, WorkFailed
from tessera.engine.events import FailureReason
from tessera.engine.requests import EngineRequest
from tessera.engine.roles import Role

CLIENT_WENT_AWAY = 499
_ANSWERS: dict[tuple[bool, bool], type[Answer]] = {
    (True, False): ChatAnswer,
    (False, False): CompletionAnswer,
    (True, True): EncodeChatAnswer,
    (False, True): EncodeCompletionAnswer,
}
"""By whether it is a chat, and whether the server only encodes."""
MAX_REQUEST_ID_CHARS = 128


class Generation:
    """The two generation routes of one server."""

    def __init__(
        self,
        settings: EmulatorSettings,
        reader: Reader,
        driver: Driver,
        handovers: Handovers,
        faults: FaultSwitch,
        log: RequestLog,
        *,
        on_death: Callable[[], None],
    ) -> None:
        """``on_death`` is called when a request ends the process, as some do in vLLM."""
        self._settings = settings
        self._reader = reader
        self._driver = driver
        self._handovers = handovers
        self._on_death = on_death
        self._is_dead = False
        self._faults = faults
        self._log = log

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions``."""
        return await self._serve(request, is_chat=True)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/completions``."""
        return await self._serve(request, is_chat=False)

    async def _serve(self, request: web.Request, *, is_chat: bool) -> web.StreamResponse:
        """Answer, and see to it that the record says how it ended."""
        record = self._log.open(request.path, request.headers)
        try:
            return await self._answer(request, record, is_chat)
        except _Cut:
            record.ended("cut", record.status)
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        except Refusal as refusal:
            record.ended("refused", refusal.status)
            raise
        except web.HTTPException as error:
            record.ended("refused", error.status)
            raise
        except (asyncio.CancelledError, ConnectionResetError):
            record.ended("aborted", CLIENT_WENT_AWAY)
            raise
        except Exception:
            record.ended("failed", 500)
            raise

    async def _answer(self, request: web.Request, record: RequestRecord, is_chat: bool) -> web.StreamResponse:
        body = await request.read()
        record.read(body)
        if self._is_dead:
            raise refusals.dead_engine()
        fault = self._faults.take()
        if fault.mode is FaultMode.UNAVAILABLE:
            raise Refusal("The server was told to be unavailable.", status=503)
        if request.content_type != "application/json":
            raise refusals.wrong_media_type()
        asked = self._reader.read(body, is_chat=is_chat, wall_at=time.time())
        record.understood(asked)
        if _num_tokens_before(fault) == 0:
            await self._strike(fault)
            fault = NO_FAULT
        answer = self._new_answer(asked, record, request.headers, is_chat)
        taken = await self._handovers.take(asked)
        works = _works(asked, record.id, answer.block_size, taken)
        remote_kv = taken.remote_kv
        if remote_kv is not None:
            works[0].on_pulled = lambda: self._handovers.pulled(remote_kv)
        ticket = self._driver.submit(works)
        try:
            if asked.stream:
                return await self._stream(request, record, answer, ticket, fault, taken)
            return await self._whole(record, answer, ticket, fault)
        except WorkFailed as failed:
            raise self._lost(record, failed, taken) from None
        finally:
            self._driver.abort(ticket)
            if remote_kv is not None:
                self._handovers.pulled(remote_kv)

    def _lost(self, record: RequestRecord, failed: WorkFailed, taken: Taken) -> Refusal:
        """A picture came without content and nobody has its embeddings: 500, and often the end of the process."""
        assert failed.reason is FailureReason.ITEM_LOST, f"the engine refuses what was read as servable: {failed}"
        record.ended("failed", 500)
        if taken.is_aborted_if_lost:
            return Refusal("Internal server error", status=500)
        self._is_dead = True
        self._on_death()
        return refusals.dead_engine()

    def _new_answer(self, asked: Asked, record: RequestRecord, headers: Mapping[str, str], is_chat: bool) -> Answer:
        client_id = headers.get("x-request-id", "")[:MAX_REQUEST_ID_CHARS] or uuid.uuid4().hex[:16]
        is_encode_only = self._settings.profile.role is Role.ENCODE
        return _ANSWERS[is_chat, is_encode_only](
            asked=asked,
            id=f"{'chatcmpl' if is_chat else 'cmpl'}-{client_id}",
            model=self._settings.model,
            created=int(time.time()),
            words=tuple(
                Words(f"{prompt.digest}:{choice}") for prompt in asked.prompts for choice in range(asked.num_choices)
            ),
            block_size=self._settings.profile.block_size,
        )

    async def _stream(
        self,
        request: web.Request,
        record: RequestRecord,
        answer: Answer,
        ticket: Ticket,
        fault: Fault,
        taken: Taken,
    ) -> web.StreamResponse:
        """Headers at once, as vLLM does; then an event for each token as it comes."""
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        record.status = response.status
        num_left = answer.num_tokens
        pending = answer.head()
        try:
            async for tokens in self._tokens(ticket, fault):
                record.sent(len(tokens) if answer.num_completion_tokens else 0)
                num_left -= len(tokens)
                events = [answer.token(token, is_last=num_left == 0 and token is tokens[-1]) for token in tokens]
                await response.write(pending + b"".join(events))
                pending = b""
        except WorkFailed as failed:
            await response.write(b"data: " + self._lost(record, failed, taken).body() + b"\n\n" + DONE)
            await response.write_eof()
            return response
        num_cached_tokens = record.num_cached_tokens = _num_cached_tokens(answer.asked, ticket)
        self._handovers.announce(answer.asked.prompts)
        await response.write(answer.tail(num_cached_tokens))
        await response.write_eof()
        record.ended("finished", response.status)
        return response

    async def _whole(self, record: RequestRecord, answer: Answer, ticket: Ticket, fault: Fault) -> web.StreamResponse:
        """One JSON body when every choice is complete."""
        async for tokens in self._tokens(ticket, fault):
            record.sent(len(tokens) if answer.num_completion_tokens else 0)
        num_cached_tokens = record.num_cached_tokens = _num_cached_tokens(answer.asked, ticket)
        answer.ec_transfer_params = self._handovers.announce(answer.asked.prompts)
        answer.kv_transfer_params = self._handovers.kept(
            answer.asked, ticket.works[0].request.request_id, num_cached_tokens
        )
        response = web.Response(body=answer.whole(num_cached_tokens), content_type="application/json")
        record.ended("finished", response.status)
        return response

    async def _tokens(self, ticket: Ticket, fault: Fault) -> AsyncIterator[list[NewToken]]:
        """The tokens as they come, until the last one or a cut; a hang holds them back."""
        num_before_fault = _num_tokens_before(fault)
        while not ticket.is_done:
            if num_before_fault == 0:
                await self._strike(fault)
                num_before_fault = None
            tokens = await ticket.next_tokens(num_before_fault)
            if num_before_fault is not None:
                num_before_fault -= len(tokens)
            yield tokens

    async def _strike(self, fault: Fault) -> None:
        """Hang until the fault is lifted, or cut."""
        if fault.mode is FaultMode.CUT:
            raise _Cut
        await self._faults.lifted()


class _Cut(Exception):
    """The connection shall end without an end to the answer."""


def _num_cached_tokens(asked: Asked, ticket: Ticket) -> int:
    """What usage tells: behind a prefill elsewhere, what that found in its own cache, as far as it can be true."""
    remote = asked.transfer.remote_kv
    if remote is None or remote.num_cached_tokens is None:
        return ticket.num_cached_tokens
    return max(0, min(remote.num_cached_tokens, asked.num_prompt_tokens))


def _works(asked: Asked, record_id: int, block_size: int, taken: Taken) -> list[Work]:
    """One work for each prompt."""
    return [
        Work(
            EngineRequest(
                request_id=f"{record_id}.{index}",
                segments=prompt.segments(block_size),
                num_output_tokens=asked.num_output_tokens,
                num_choices=asked.num_choices,
                handover=taken.handover,
            ),
            prompt,
            asked.finish_reason,
        )
        for index, prompt in enumerate(asked.prompts)
    ]


def _num_tokens_before(fault: Fault) -> int | None:
    """How many tokens leave before the fault strikes; nothing where it strikes no answer."""
    return fault.after_tokens if fault.mode in (FaultMode.HANG, FaultMode.CUT) else None
