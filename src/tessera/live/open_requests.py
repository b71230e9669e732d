"""When is a request over, and what came of it?

A request ends when both the end of its ext_proc stream and its access-log entry
have come, or some time after the first of the two. It is told every event with
its time and keeps no clock; ``settle`` is called exactly once for each request.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tessera.core.entrance import reached_at
from tessera.core.types import Decision, Ending, FirstTokenSource, Outcome, Usage
from tessera.core.work import StageEnded
from tessera.telemetry.records import without_token_ids

EARLY_GAP_S = 0.5
"""An entry that comes later than this after a suspicious end shows that the stream did not end with the response."""
LOG_WAIT_S = 2.0
"""How long the second of the two signs is waited for."""
MAX_EARLY_WAIT_S = 600.0
"""How long a request is held whose stream ended before its response, at most."""
FIRST_DURATION_S = 60.0
"""Expected duration of a request before any has ended."""
DURATION_GAIN = 0.05
"""Weight of the newest duration in the learned one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """What the proxy's access log says of one request."""

    request_id: str
    status: int | None = None
    endpoint: str | None = None
    """``ip:port`` that really served."""
    usage: Usage | None = None
    first_body_s: float | None = None
    """Seconds from the request's first byte to the response's first body byte."""
    num_attempts: int | None = None
    client_left: bool = False
    upstream_failed: bool = False
    stages: str | None = None
    """What the answer said of how its stages ended."""


@dataclass(slots=True)
class _Open:
    decision: Decision
    opened_at: float
    """When the request's first message came."""
    status: int | None = None
    served: str | None = None
    """``ip:port`` that served, by the stream."""
    first_token_at: float | None = None
    first_token_source: FirstTokenSource | None = None
    ended_at: float | None = None
    is_early: bool = False
    entry: LogEntry | None = None
    logged_at: float | None = None
    stages: tuple[StageEnded, ...] = ()


_RANK = {source: rank for rank, source in enumerate(FirstTokenSource)}
"""Place among the sources, best first."""


class OpenRequests:
    """Every request between its decision and its outcome.

    Memory: one record for each request in flight, its prompt's token ids left out; a
    record whose stream has ended stays at most ``MAX_EARLY_WAIT_S``.
    """

    def __init__(
        self,
        settle: Callable[[Outcome], None],
        *,
        ended_early: Callable[[], None] = lambda: None,
        expects_log: bool = False,
    ) -> None:
        """Hold nothing yet.

        Args:
            settle: told every outcome.
            ended_early: told of each stream that ended before its response.
            expects_log: the proxy's access log will tell of every request, the first included.
        """
        self._settle = settle
        self._ended_early = ended_early
        self._open: dict[str, _Open] = {}
        self._due: dict[str, float] = {}
        self._ever_logged = expects_log
        self.duration_s = FIRST_DURATION_S
        """Learned mean duration of a request."""

    def __len__(self) -> int:
        return len(self._open)

    def decided(self, decision: Decision, opened_at: float) -> None:
        """A request was sent to its endpoint."""
        self._open[decision.request.request_id] = _Open(without_token_ids(decision), opened_at)

    def not_decided(
        self, request_id: str, ending: Ending, at: float, status: int | None = None, refusal: str | None = None
    ) -> None:
        """A request ended without an endpoint: cancelled by the client, or rejected by us with that error code."""
        self._settle(Outcome(request_id=request_id, ending=ending, status=status, refusal=refusal, finished_at=at))

    def responded(self, request_id: str, status: int | None, served: str | None = None) -> None:
        """The response's status was seen on the stream, and perhaps which endpoint served."""
        if request := self._open.get(request_id):
            request.status, request.served = status, served

    def stages_told(self, request_id: str, stages: tuple[StageEnded, ...]) -> bool:
        """The answer says how its stages ended; whether that is news of a request that is open."""
        request = self._open.get(request_id)
        if request is None or request.stages or not stages:
            return False
        request.stages = stages
        return True

    def knows_stages(self, request_id: str) -> bool:
        """Whether it is known how a request's stages ended."""
        return request_id in self._open and bool(self._open[request_id].stages)

    def first_token(self, request_id: str, source: FirstTokenSource, at: float) -> None:
        """The first token was seen or inferred; the best source stays, and of one source the first time.

        Of an answer that is not streamed, the first body byte comes with the last
        token, so it says nothing here.
        """
        request = self._open.get(request_id)
        if request is None or (source is FirstTokenSource.BODY and not request.decision.request.stream):
            return
        if request.first_token_source is None or _RANK[source] < _RANK[request.first_token_source]:
            request.first_token_at, request.first_token_source = at, source

    def stream_ended(self, request_id: str, at: float, *, is_early: bool, predicted_first_at: float) -> None:
        """The ext_proc stream is over.

        Args:
            request_id: ours.
            at: now.
            is_early: the stream ended so soon that the response may not have; what comes next will show.
            predicted_first_at: when the first token was expected.
        """
        request = self._open.get(request_id)
        if request is None:
            return
        request.ended_at = at
        if is_early and request.entry is None:
            request.is_early = True
            wait_until = max(at, predicted_first_at) + self.duration_s
            self._due[request_id] = min(wait_until, at + MAX_EARLY_WAIT_S)
            return
        if request.entry is not None or not self._ever_logged:
            self._finish(request_id, at)
        else:
            self._due[request_id] = at + LOG_WAIT_S

    def logged(self, entry: LogEntry, at: float) -> None:
        """The access log told of a request."""
        self._ever_logged = True
        request = self._open.get(entry.request_id)
        if request is None or request.entry is not None:
            return
        request.entry, request.logged_at = entry, at
        if request.ended_at is not None:
            self._finish(entry.request_id, at)
        else:
            self._due[entry.request_id] = at + LOG_WAIT_S

    def settle_due(self, at: float) -> None:
        """Settle every request whose wait is over."""
        for request_id in [request_id for request_id, due_at in self._due.items() if due_at <= at]:
            self._finish(request_id, at)

    def settle_all(self, at: float) -> None:
        """Settle everything: the process stops."""
        for request_id in list(self._open):
            self._finish(request_id, at)

    def _finish(self, request_id: str, at: float) -> None:
        request = self._open.pop(request_id)
        self._due.pop(request_id, None)
        if request.is_early and request.ended_at is not None and at - request.ended_at > EARLY_GAP_S:
            request.ended_at = None
            self._ended_early()
        seen_at = request.ended_at if request.ended_at is not None else request.logged_at
        outcome = _outcome(request, at if seen_at is None else seen_at)
        # An end that was only waited for teaches nothing: it came of the learned duration itself.
        if outcome.ending is Ending.FINISHED and seen_at is not None:
            self.duration_s += DURATION_GAIN * (seen_at - request.opened_at - self.duration_s)
        self._settle(outcome)


def _outcome(request: _Open, finished_at: float) -> Outcome:
    entry = request.entry
    decision = request.decision
    winner = decision.primary_stage.winner
    served = (entry.endpoint if entry else None) or request.served
    first_at, source = request.first_token_at, request.first_token_source
    # As in ``first_token``: only a streamed answer's first body byte is a first token.
    if entry and entry.first_body_s is not None and decision.request.stream and source is not FirstTokenSource.BODY:
        first_at, source = request.opened_at + entry.first_body_s, FirstTokenSource.BODY
    status = entry.status if entry and entry.status else request.status
    if status is not None and status >= 400 and source is FirstTokenSource.BODY:
        # The first bytes of an error are no token.
        first_at = source = None
    return Outcome(
        request_id=decision.request.request_id,
        ending=_ending(entry, status),
        decision=decision,
        status=status,
        endpoint=reached_at(decision, served) if served else (winner.id if winner else None),
        usage=entry.usage if entry else None,
        first_token_at=first_at,
        first_token_source=source,
        finished_at=finished_at,
        num_attempts=entry.num_attempts if entry else None,
        stages=request.stages,
    )


def _ending(entry: LogEntry | None, status: int | None) -> Ending:
    if entry and entry.client_left:
        return Ending.ABORTED
    if (entry and entry.upstream_failed) or (status is not None and status >= 500):
        return Ending.FAILED
    return Ending.FINISHED
