"""Carries out what the ext_proc handler says, for one stream: reads, decides, and guards the others from its faults."""

import logging

from tessera.core.entrance import addresses_of
from tessera.core.errors import DropReason, Rejected, RequestError, TesseraError
from tessera.core.types import Decision, Ending, Rejection
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.handler import Ask, Command, ResponseBegan, ResponseHeaders, Send, StreamHandler
from tessera.live.service import RouterService

RETRY_AFTER_S = 1
"""What a client that is told to wait is told."""

_log = logging.getLogger("tessera.extproc")


class Stream:
    """One ext_proc stream: messages in, messages out."""

    def __init__(self, service: RouterService) -> None:
        self._service = service
        self._handler = StreamHandler(service.budget, service.profile)
        self._id = service.new_id()
        self._opened_at = service.clock()
        self._decision: Decision | None = None
        self._refused_with: tuple[int, str] | None = None
        """Status and error code."""

    async def receive(self, message: pb.ProcessingRequest) -> list[pb.ProcessingResponse]:
        """The answers to one message, in order. Never raises: a fault answers this request alone with 500.

        The caller lets go of the message too: while a body waits to be read, it is held once.
        """
        try:
            commands = self._handler.receive(message, self._service.clock())
            del message
            return await self._carry_out(commands)
        except TesseraError as error:
            return self._refuse(error)
        except Exception as error:
            _log.exception("request %s failed in the router", self._id)
            self._service.metrics.failed("stream")
            return self._refuse(error)

    def closed(self) -> None:
        """The stream is over, however it ended."""
        self._handler.drop()
        service = self._service
        now = service.clock()
        if self._decision is not None and self._decision.rejection is None:
            service.stream_ended(
                self._id, is_early=self._handler.ended_early(now), was_held=self._handler.was_held(now)
            )
        elif self._refused_with is not None:
            service.open.not_decided(self._id, Ending.REJECTED, now, *self._refused_with)
        else:
            service.open.not_decided(self._id, Ending.CANCELLED, now)

    async def _carry_out(self, commands: list[Command]) -> list[pb.ProcessingResponse]:
        answers: list[pb.ProcessingResponse] = []
        for command in commands:
            match command:
                case Send(message):
                    answers.append(message)
                case Ask():
                    answers += await self._carry_out(await self._answer(command))
                case ResponseHeaders(status, served, stages):
                    decision = self._decision
                    if stages is not None and decision is not None:
                        self._service.stages_told(self._id, stages)
                    headers = self._service.responded(decision, status, served) if decision else {}
                    answers += await self._carry_out(self._handler.responded(headers))
                case ResponseBegan():
                    self._service.response_began(self._id)
        return answers

    async def _answer(self, ask: Ask) -> list[Command]:
        request, prompt = await self._service.read(ask, self._id)
        decision = self._decision = self._service.decide(
            request, self._opened_at, prompt=prompt, shows_body=self._handler.shows_response_body
        )
        if rejection := decision.rejection:
            raise _error_of(rejection)
        extra = self._service.router.request_headers(decision)
        return self._handler.decided(addresses_of(decision), self._id, extra, self._service.clock())

    def _refuse(self, error: Exception) -> list[pb.ProcessingResponse]:
        match error:
            case RequestError(status=status, code=code):
                self._refused_with = status, code
            case Rejected(status=status, reason=reason):
                self._refused_with = status, str(reason)
            case _:
                self._refused_with = 500, "router_error"
        if isinstance(error, RequestError):
            self._service.metrics.refused(error.code)
        return [command.message for command in self._handler.refused(error) if isinstance(command, Send)]


def _error_of(rejection: Rejection) -> RequestError | Rejected:
    """What the client is told where nobody was chosen."""
    reason = rejection.reason
    if reason is DropReason.MEDIA_NOT_CACHED:
        return RequestError(rejection.message, status=reason.status, code=reason.value)
    retry_after_s = RETRY_AFTER_S if reason is DropReason.SATURATED else None
    return Rejected(reason, rejection.message, retry_after_s=retry_after_s)
