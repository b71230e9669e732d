"""Which prefiller is asked, and who is next where that fails?

The first one named, the same one again after 502, 503 or 504 where retries are set, then
the others in order, and at last the engine that decodes.
"""

from collections.abc import Iterator, Mapping

from tessera.core.flow.attempts import FINAL_CAUSES, NEVER, Attempt, failure_of
from tessera.core.flow.commands import Cancel, Command, Prefill
from tessera.core.flow.connectors.protocols import KVConnector, Unconfirmed
from tessera.core.flow.events import Cause, PrefillAnswered, PrefillFailed
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.stages import FlowReport
from tessera.core.work import Work

_RETRYABLE = frozenset({502, 503, 504})


class Prefilling:
    """The prefill stage of one flow."""

    def __init__(
        self,
        prefillers: tuple[str, ...],
        connector: KVConnector,
        body: bytes,
        settings: FlowSettings,
        report: FlowReport,
    ) -> None:
        assert prefillers, "nobody is named to prefill"
        self._prefillers = prefillers
        self._connector = connector
        self._body = body
        self._settings = settings
        self._report = report
        self._job: Attempt | None = None
        self._num_attempts = 0
        self._index = 0
        self._num_retries = 0
        self._again_at = NEVER
        self._ends_at = NEVER
        self.is_done = False
        self.changes: Mapping[str, bytes | None] = {}
        """The changes of the decode's body; none where the prompt is prefilled there."""
        self.answer = b""
        """The prefiller's answer where it is used."""

    @property
    def deadline_at(self) -> float:
        """When something must be decided without an answer."""
        if self.is_done:
            return NEVER
        return min(self._ends_at, self._job.late_at if self._job else self._again_at)

    def start(self, at: float, request_ends_at: float) -> Iterator[Command]:
        """Begin, within the request's time."""
        self._ends_at = min(at + self._settings.prefill_budget_s, request_ends_at)
        yield self._ask(at)

    def answered(self, event: PrefillAnswered) -> Iterator[Command]:
        """An answer: where the blocks are, or a failure by its status."""
        job = self._taken(event.attempt)
        if job is None:
            return
        self._report.ended(Work.PREFILL, job.endpoint, event.status, job.started_at, event.at)
        cause = self._cause_of(event)
        if cause is None:
            self.is_done = True
        elif event.status in _RETRYABLE and self._num_retries < self._settings.prefill_max_retries:
            yield from self._again(event.at, cause)
        else:
            yield from self._failed(event.at, cause)

    def failed(self, event: PrefillFailed) -> Iterator[Command]:
        """No answer."""
        job = self._taken(event.attempt)
        if job is None:
            return
        self._report.ended(Work.PREFILL, job.endpoint, 0, job.started_at, event.at)
        yield from self._failed(event.at, event.cause)

    def woken(self, at: float) -> Iterator[Command]:
        """A prefill that is late is given up; a pause before a retry is over; the stage's time is over."""
        if self.is_done:
            return
        is_over = at >= self._ends_at
        if self._job and (is_over or at >= self._job.late_at):
            yield from self.cancel(at)
            yield from self._failed(at, Cause.LATE, is_final=is_over)
        elif is_over:
            yield from self._failed(at, Cause.LATE, is_final=True)
        elif at >= self._again_at:
            yield self._ask(at)

    def cancel(self, at: float) -> Iterator[Command]:
        """Give it up."""
        if self._job:
            job, self._job = self._job, None
            self._report.ended(Work.PREFILL, job.endpoint, 0, job.started_at, at)
            yield Cancel(Work.PREFILL, job.number)

    def _taken(self, attempt: int) -> Attempt | None:
        """The open job that this is the end of; nothing where it was given up before."""
        if self._job is None or self._job.number != attempt:
            return None
        job, self._job = self._job, None
        return job

    def _cause_of(self, event: PrefillAnswered) -> Cause | None:
        if not 200 <= event.status < 300:
            return failure_of(event.status)
        try:
            self.changes = self._connector.fetching(event.body)
        except Unconfirmed:
            return Cause.NO_REFERENCE
        self.answer = event.body
        return None

    def _again(self, at: float, cause: Cause) -> Iterator[Command]:
        self._num_retries += 1
        self._report.retried[Work.PREFILL, cause] += 1
        self._again_at = at + self._settings.prefill_retry_backoff_s
        if self._again_at <= at:
            yield self._ask(at)

    def _failed(self, at: float, cause: Cause, *, is_final: bool = False) -> Iterator[Command]:
        self._index += 1
        self._num_retries = 0
        has_others = self._index < len(self._prefillers) and self._num_attempts < self._settings.max_prefill_attempts
        if has_others and not is_final and cause not in FINAL_CAUSES:
            self._report.retried[Work.PREFILL, cause] += 1
            yield self._ask(at)
        else:
            self._report.fell_back[Work.PREFILL, cause] += 1
            self.is_done = True

    def _ask(self, at: float) -> Prefill:
        self._again_at = NEVER
        endpoint = self._prefillers[self._index]
        self._job = Attempt(self._num_attempts, endpoint, at, at + self._settings.prefill_timeout_s)
        self._num_attempts += 1
        return Prefill(self._job.number, endpoint, self._body)
