"""What is done next for one request whose stages run apart?

====================  =======================================  =====================================
state                 event                                    commands
====================  =======================================  =====================================
new                   Started                                  Encode ..., else Prefill, else Decode
encoding              EncodeAnswered, EncodeFailed, Woken      Encode elsewhere; at the last: Prefill, else Decode
prefilling            PrefillAnswered, PrefillFailed, Woken    Prefill elsewhere; Decode
decoding              DecodeHeaders                            Relay; Decode without references where they failed
decoding              DecodeFailed                             Decode once more after a cut; Refuse 503 or 502
relaying              DecodeEnded, DecodeFailed                End; Break
any                   Woken at the request's end               Cancel ..., Refuse 504 or Break
any                   ClientGone                               Cancel ...
over                  anything                                 nothing
====================  =======================================  =====================================

Every list of commands may end with a WakeAt. A flow ends exactly once, with End, Break,
Refuse or ClientGone. The media stay in every body, so that the engine can encode
what nobody else did, and nothing refers to embeddings that no encoder confirmed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from tessera.core.flow.attempts import NEVER
from tessera.core.flow.commands import Break, Cancel, Command, Decode, End, Refuse, Relay, WakeAt
from tessera.core.flow.connectors.protocols import KV_PARAMS, ECConnector, KVConnector
from tessera.core.flow.document import Document
from tessera.core.flow.encoding import Encoding
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
from tessera.core.flow.legs import encode_leg, prefill_leg, why_not_prefill_apart
from tessera.core.flow.media_items import MediaItem, checked_media, media_items
from tessera.core.flow.plan import Plan
from tessera.core.flow.prefilling import Prefilling
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.shapes import Shape
from tessera.core.flow.stages import FlowReport
from tessera.core.flow.usage import cached_tokens
from tessera.core.work import Work


class State(Enum):
    """What a flow waits for."""

    NEW = auto()
    ENCODING = auto()
    PREFILLING = auto()
    DECODING = auto()
    RELAYING = auto()
    OVER = auto()


_STAGES = {
    State.ENCODING: Work.ENCODE,
    State.PREFILLING: Work.PREFILL,
    State.DECODING: Work.DECODE,
    State.RELAYING: Work.DECODE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One request, and what may be done about it."""

    document: Document
    shape: Shape
    plan: Plan
    decoder: str
    """What the router calls the engine behind us, ``ip:port``."""
    ec: ECConnector | None = None
    """Without it nothing is encoded elsewhere."""
    kv: KVConnector | None = None
    """Without it nothing is prefilled elsewhere."""


class Flow:
    """One request from ``Started`` to its end; ``receive`` every event, carry out every command."""

    def __init__(self, job: Job, settings: FlowSettings) -> None:
        """Finds the media.

        Raises:
            RequestError: more media parts than are read, or one that stands for embeddings that nobody confirmed.
        """
        self._job = job
        self._settings = settings
        self.report = FlowReport()
        self._state = State.NEW
        self._items: list[MediaItem] = []
        if job.ec and job.plan.encoders:
            self._items = media_items(job.shape.name, job.document)
        elif job.ec:
            checked_media(job.shape.name, job.document)
        self._encoding: Encoding | None = None
        self._prefilling: Prefilling | None = None
        self._ends_at = NEVER
        self._wake_at = NEVER
        self._decode_attempt = 0
        self._decode_started_at = 0.0
        self._is_decode_open = False
        self._has_references = False
        self._stage_began_at = 0.0

    @property
    def is_over(self) -> bool:
        """Whether nothing will be commanded any more."""
        return self._state is State.OVER

    def receive(self, event: Event) -> list[Command]:
        """The commands that answer an event."""
        if self.is_over:
            return []
        if isinstance(event, Woken):
            # A timer may ring a little early; it is wound again then.
            self._wake_at = NEVER
        commands = list(self._answers(event))
        deadline_at = self._deadline_at()
        if deadline_at < self._wake_at:
            self._wake_at = deadline_at
            commands.append(WakeAt(deadline_at))
        return commands

    def _answers(self, event: Event) -> Iterator[Command]:
        match event:
            case Started() if self._state is State.NEW:
                yield from self._start(event.at)
            case ClientGone():
                yield from self._cancel(event.at)
            case Woken() if event.at >= self._ends_at:
                yield from self._run_out(event.at)
            case EncodeAnswered() | EncodeFailed() | Woken() if self._state is State.ENCODING:
                yield from self._encoding_goes_on(event)
            case PrefillAnswered() | PrefillFailed() | Woken() if self._state is State.PREFILLING:
                yield from self._prefilling_goes_on(event)
            case DecodeHeaders() | DecodeEnded() | DecodeFailed() if event.attempt == self._decode_attempt:
                yield from self._decoding_goes_on(event)
            case _:
                pass

    def _deadline_at(self) -> float:
        match self._state:
            case State.NEW | State.OVER:
                return NEVER
            case State.ENCODING if self._encoding:
                return min(self._ends_at, self._encoding.deadline_at)
            case State.PREFILLING if self._prefilling:
                return min(self._ends_at, self._prefilling.deadline_at)
            case _:
                return self._ends_at

    def _start(self, at: float) -> Iterator[Command]:
        self._ends_at = at + self._settings.request_budget_s
        job = self._job
        planned = {index: job.plan.encoder_of(index) for index, item in enumerate(self._items) if item.part is not None}
        remote = {index: encoder for index, encoder in planned.items() if encoder is not None}
        if job.ec and not job.document.is_readable and job.plan.encoders:
            self.report.fell_back[Work.ENCODE, Cause.UNREAD] += 1
        if not remote or job.ec is None:
            yield from self._prefill(at)
            return
        self._enter(State.ENCODING, at)
        self._encoding = Encoding(remote, job.plan, job.ec, self._encode_body, self._settings, self.report)
        yield from self._encoding.start(at, self._ends_at)

    def _encode_body(self, item: int) -> bytes:
        return encode_leg(self._job.document, self._job.shape, self._items[item])

    def _encoding_goes_on(self, event: EncodeAnswered | EncodeFailed | Woken) -> Iterator[Command]:
        assert self._encoding is not None
        match event:
            case EncodeAnswered():
                yield from self._encoding.answered(event)
            case EncodeFailed():
                yield from self._encoding.failed(event)
            case Woken():
                yield from self._encoding.woken(event.at)
        if self._encoding.is_done:
            yield from self._prefill(event.at)

    def _prefill(self, at: float) -> Iterator[Command]:
        job = self._job
        if job.kv is None or not job.plan.prefillers:
            yield self._decode(at, self._embeddings())
            return
        why_not = why_not_prefill_apart(job.document, job.shape)
        if why_not:
            self.report.fell_back[Work.PREFILL, why_not] += 1
            yield self._decode(at, self._embeddings())
            return
        body = prefill_leg(job.document, job.shape, {**self._embeddings(), **job.kv.keeping()})
        self._enter(State.PREFILLING, at)
        self._prefilling = Prefilling(job.plan.prefillers, job.kv, body, self._settings, self.report)
        yield from self._prefilling.start(at, self._ends_at)

    def _prefilling_goes_on(self, event: PrefillAnswered | PrefillFailed | Woken) -> Iterator[Command]:
        assert self._prefilling is not None
        match event:
            case PrefillAnswered():
                yield from self._prefilling.answered(event)
            case PrefillFailed():
                yield from self._prefilling.failed(event)
            case Woken():
                yield from self._prefilling.woken(event.at)
        if self._prefilling.is_done:
            self.report.is_handed_over = bool(self._prefilling.changes)
            # Blocks that are fetched hold the embeddings' work already.
            changes = {**self._embeddings(is_used=not self._prefilling.changes), **self._prefilling.changes}
            yield self._decode(event.at, changes, cached_tokens(self._job.shape, self._prefilling.answer))

    def _embeddings(self, *, is_used: bool = True) -> Mapping[str, bytes | None]:
        """The changes that refer to confirmed embeddings, and to nothing that the client named."""
        alone = self._alone()
        if self._job.ec is None or self._encoding is None or not is_used:
            return alone
        self.report.num_transferred = self._encoding.num_confirmed
        return {**alone, **self._job.ec.referring(self._encoding.references)}

    def _alone(self) -> Mapping[str, bytes | None]:
        """The changes for an engine that does all of it: references of the client go wherever there is a connector."""
        job = self._job
        embeddings = job.ec.referring({}) if job.ec else {}
        blocks = job.kv.alone(bytes(job.document.fields.get(KV_PARAMS, b""))) if job.kv else {}
        return {**embeddings, **blocks}

    def _decode(self, at: float, changes: Mapping[str, bytes | None], num_cached: int | None = None) -> Decode:
        if self._state is not State.DECODING:
            self._enter(State.DECODING, at)
        self._has_references = changes != self._alone()
        self._decode_started_at = at
        self._is_decode_open = True
        return Decode(self._decode_attempt, self._job.document.with_changes(changes), num_cached)

    def _decoding_goes_on(self, event: DecodeHeaders | DecodeEnded | DecodeFailed) -> Iterator[Command]:
        match event:
            case DecodeHeaders() if self._state is State.DECODING:
                self._decode_ended(event.at, event.status)
                if event.status >= 500 and self._has_references and self._decode_attempt == 0:
                    yield Cancel(Work.DECODE, self._decode_attempt)
                    yield self._decode_plainly(event.at, Cause.TRANSFER)
                else:
                    self._enter(State.RELAYING, event.at)
                    self._forget_body()
                    yield Relay(self.report.header())
            case DecodeFailed() if self._state is State.DECODING:
                self._decode_ended(event.at, 0)
                if event.cause is Cause.CUT and self._decode_attempt == 0:
                    yield self._decode_plainly(event.at, event.cause)
                else:
                    is_untouched = event.cause is Cause.UNREACHABLE and self._decode_attempt == 0
                    self._over(event.at)
                    # Nobody has seen the request: a gateway may try another server, which it does after 503.
                    status = 503 if is_untouched else 502
                    yield Refuse(status, f"the model server gave no answer ({event.cause}); send the request again")
            case DecodeFailed() if self._state is State.RELAYING:
                self._over(event.at)
                yield Break(f"the model server stopped in the middle of its answer ({event.cause})")
            case DecodeEnded() if self._state is State.RELAYING:
                self._over(event.at)
                yield End()
            case _:
                pass

    def _forget_body(self) -> None:
        """Nothing is asked any more; a long answer must not keep the media in memory."""
        self._job = replace(self._job, document=Document(b""))
        self._items, self._encoding, self._prefilling = [], None, None

    def _decode_ended(self, at: float, status: int) -> None:
        self._is_decode_open = status != 0
        self.report.ended(Work.DECODE, self._job.decoder, status, self._decode_started_at, at)

    def _decode_plainly(self, at: float, cause: Cause) -> Decode:
        """Once more, as if nothing had been done elsewhere; the engine has all it needs in the client's body."""
        self._decode_attempt += 1
        self.report.retried[Work.DECODE, cause] += 1
        if self.report.num_transferred:
            self.report.fell_back[Work.ENCODE, cause] += self.report.num_transferred
            self.report.num_transferred = 0
        if self.report.is_handed_over:
            self.report.fell_back[Work.PREFILL, cause] += 1
            self.report.is_handed_over = False
        return self._decode(at, self._alone())

    def _run_out(self, at: float) -> Iterator[Command]:
        has_begun = self._state is State.RELAYING
        yield from self._cancel(at)
        message = f"the request took longer than {self._settings.request_budget_s:g} s"
        yield Break(message) if has_begun else Refuse(504, message)

    def _cancel(self, at: float) -> Iterator[Command]:
        if self._encoding:
            yield from self._encoding.cancel(at)
        if self._prefilling:
            yield from self._prefilling.cancel(at)
        if self._is_decode_open:
            yield Cancel(Work.DECODE, self._decode_attempt)
        self._over(at)

    def _enter(self, state: State, at: float) -> None:
        """Change the state, and note how long the stage took that is left."""
        stage = _STAGES.get(self._state)
        if stage:
            self.report.seconds[stage] = at - self._stage_began_at
        self._state = state
        if state is not State.RELAYING:
            self._stage_began_at = at

    def _over(self, at: float) -> None:
        self._enter(State.OVER, at)
        self._is_decode_open = False
