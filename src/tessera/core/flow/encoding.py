"""Which item is encoded by whom, and who is next where that fails?

One job for one item, at most ``max_parallel_encodes`` at once, by the encoder that was planned
for it unless others failed this request less. A job that fails or is late goes to the one that
failed least and has least to do, until its attempts or the stage's time are used up; then the
item is left to the engine that uses it.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping

from tessera.core.flow.attempts import FINAL_CAUSES, NEVER, Attempt, failure_of
from tessera.core.flow.commands import Cancel, Command, Encode
from tessera.core.flow.connectors.protocols import ECConnector, Unconfirmed
from tessera.core.flow.events import Cause, EncodeAnswered, EncodeFailed
from tessera.core.flow.plan import Plan
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.stages import FlowReport
from tessera.core.work import Work


class Encoding:
    """The encode stage of one flow."""

    def __init__(
        self,
        items: Mapping[int, str],
        plan: Plan,
        connector: ECConnector,
        body_of: Callable[[int], bytes],
        settings: FlowSettings,
        report: FlowReport,
    ) -> None:
        """``items``: the planned encoder of each item that is to be encoded elsewhere; ``body_of``: its job's body."""
        self._planned = items
        self._plan = plan
        self._connector = connector
        self._body_of = body_of
        self._settings = settings
        self._report = report
        self._waiting = deque(items)
        self._open: dict[int, Attempt] = {}
        self._tried: dict[int, list[str]] = {item: [] for item in items}
        self._failures: Counter[str] = Counter()
        self._ends_at = NEVER
        self.references: dict[str, bytes] = {}
        """What the encoders' answers refer to."""
        self.num_confirmed = 0

    @property
    def is_done(self) -> bool:
        """Whether every item is encoded or left to the engine."""
        return not self._open and not self._waiting

    @property
    def deadline_at(self) -> float:
        """When something must be decided without an answer."""
        if self.is_done:
            return NEVER
        return min([self._ends_at, *(job.late_at for job in self._open.values())])

    def start(self, at: float, request_ends_at: float) -> Iterator[Command]:
        """Begin, within the request's time."""
        self._ends_at = min(at + self._settings.encode_budget_s, request_ends_at)
        self._report.num_encode_requested = len(self._planned)
        yield from self._fill(at)

    def answered(self, event: EncodeAnswered) -> Iterator[Command]:
        """An answer: a confirmation, or a failure by its status."""
        job = self._taken(event.item, event.attempt)
        if job is None:
            return
        self._report.ended(Work.ENCODE, job.endpoint, event.status, job.started_at, event.at, 1)
        cause = self._cause_of(event)
        if cause is None:
            self.num_confirmed += 1
            self._report.num_encoded += 1
        else:
            self._failed(event.item, job, cause)
        yield from self._fill(event.at)

    def failed(self, event: EncodeFailed) -> Iterator[Command]:
        """No answer."""
        job = self._taken(event.item, event.attempt)
        if job is None:
            return
        self._report.ended(Work.ENCODE, job.endpoint, 0, job.started_at, event.at, 1)
        self._failed(event.item, job, event.cause)
        yield from self._fill(event.at)

    def woken(self, at: float) -> Iterator[Command]:
        """Jobs that are late are given up; at the stage's end all of them, and what waits is left to the engine."""
        is_over = at >= self._ends_at
        for item, job in list(self._open.items()):
            if is_over or at >= job.late_at:
                yield self._cancelled(item, at)
                self._failed(item, job, Cause.LATE, is_final=is_over)
        if is_over and self._waiting:
            self._report.fell_back[Work.ENCODE, Cause.LATE] += len(self._waiting)
            self._waiting.clear()
        yield from self._fill(at)

    def cancel(self, at: float) -> Iterator[Command]:
        """Give everything up."""
        self._waiting.clear()
        for item in list(self._open):
            yield self._cancelled(item, at)

    def _cancelled(self, item: int, at: float) -> Cancel:
        job = self._open.pop(item)
        self._report.ended(Work.ENCODE, job.endpoint, 0, job.started_at, at, 1)
        return Cancel(Work.ENCODE, job.number, item)

    def _taken(self, item: int, attempt: int) -> Attempt | None:
        """The open job that this is the end of; nothing where it was given up before."""
        job = self._open.get(item)
        return self._open.pop(item) if job and job.number == attempt else None

    def _cause_of(self, event: EncodeAnswered) -> Cause | None:
        if not 200 <= event.status < 300:
            return failure_of(event.status)
        try:
            self.references.update(self._connector.references(event.body))
        except Unconfirmed:
            return Cause.NO_REFERENCE
        return None

    def _failed(self, item: int, job: Attempt, cause: Cause, *, is_final: bool = False) -> None:
        self._failures[job.endpoint] += cause not in FINAL_CAUSES
        may_retry = not is_final and cause not in FINAL_CAUSES and self._next_encoder(item) is not None
        if may_retry:
            self._report.retried[Work.ENCODE, cause] += 1
            self._waiting.appendleft(item)
        else:
            self._report.fell_back[Work.ENCODE, cause] += 1

    def _next_encoder(self, item: int) -> str | None:
        """Whom to give the item to: who failed least, of these the planned one, else who has least open; each once."""
        tried, planned = self._tried[item], self._planned[item]
        if len(tried) >= self._settings.max_encode_attempts:
            return None
        load = Counter(job.endpoint for job in self._open.values())
        others = [host for host in self._plan.encoders if host not in tried]
        return min(others, key=lambda host: (self._failures[host], host != planned, load[host]), default=None)

    def _fill(self, at: float) -> Iterator[Command]:
        while self._waiting and len(self._open) < self._settings.max_parallel_encodes:
            item = self._waiting.popleft()
            endpoint = self._next_encoder(item)
            assert endpoint is not None, "an item waits only while somebody is left to ask"
            attempt = len(self._tried[item])
            self._tried[item].append(endpoint)
            self._open[item] = Attempt(attempt, endpoint, at, at + self._settings.encode_timeout_s)
            yield Encode(item, attempt, endpoint, self._body_of(item))
