"""Which endpoints can answer for media that the client names by uuid and does not send?

Source: vLLM 0.32 takes a media part without content where its processor cache holds
that uuid, and refuses the request where it does not.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from tessera.core.errors import DropReason
from tessera.core.facts import FleetEvent
from tessera.core.matching.divided import sent_away
from tessera.core.matching.held_media import HeldMedia, has_failed
from tessera.core.media.digests import text_hash
from tessera.core.media.size import Reason
from tessera.core.plugin import Filter, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, Decision, Finding, Note, Outcome, PricedItem, PricedRequest
from tessera.core.work import Work

MAX_GONE: Final = 65_536
"""Uuids that are remembered of endpoints that left or started anew."""
GUESS: Final = "uuid-never-seen"
"""What a Decision says that sent a uuid where its hash says."""
_SHOWN_CHARS = 64


@dataclass(frozen=True, slots=True)
class _Look:
    """What is known of the media that a request names without sending it."""

    kept: list[Candidate]
    """Those that hold all of the uuids that were seen."""
    lost: str | None = None
    """Why nobody can serve, where nobody can."""
    unseen: str | None = None
    """The first uuid that was never seen."""


@plugin("cached-media-filter")
class CachedMediaFilter(Filter):
    """Keep the endpoints that saw the media which a request names by uuid without sending it.

    Every other request keeps everybody. An endpoint saw a uuid's media if it was chosen
    for a request with that uuid and content, or served one instead of the chosen one. A
    uuid that was never seen goes where its hash says, the same way each time, and the
    decision calls it a guess. A uuid that was seen only on endpoints that have left,
    started anew or may not serve this request is refused as 422 ``media_not_cached``:
    the client has to send the content again.

    Every profile gets this filter where the file does not place it, behind those that
    select by role or label. Memory: ``maxUuidsPerEndpoint`` uuids of at most 1,024
    characters for each endpoint, the least recently used is forgotten, and 65,536 of
    endpoints that are gone.
    """

    rejection: ClassVar = DropReason.MEDIA_NOT_CACHED

    max_uuids_per_endpoint: Annotated[int, Range(ge=1)] = 8192
    """Uuids that are remembered of each endpoint."""

    def __post_init__(self) -> None:
        self._held = HeldMedia(self.max_uuids_per_endpoint)
        self._gone: OrderedDict[str, None] = OrderedDict()

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates that hold what is named and not sent, in their order."""
        uuids = _named(request)
        return self._look(uuids, candidates).kept if uuids else list(candidates)

    def explain(
        self, request: PricedRequest, candidates: Sequence[Candidate], kept: Sequence[Candidate]
    ) -> Note | None:
        """Where the media is that is named and not sent; nothing where everything is sent."""
        uuids = _named(request)
        if not uuids or not candidates:
            return None
        look = self._look(uuids, candidates)
        if look.lost is not None:
            return Note(look.lost)
        if look.unseen is not None:
            return Note(f"kept 1: {_shown(look.unseen)} was never seen, so its hash decides", GUESS)
        return Note(f"kept {len(kept)} of {len(candidates)} that saw the media of {_shown(*uuids)}")

    def observe(self, event: FleetEvent) -> None:
        """Learn that an endpoint came, or lost what it held by leaving or by starting anew."""
        for name in self._held.observe(event):
            self._gone[name] = None
            self._gone.move_to_end(name)
        while len(self._gone) > MAX_GONE:
            self._gone.popitem(last=False)

    def record(self, decision: Decision) -> None:
        """Enter what the winners are sent; what they are only told of is used, if they hold it."""
        if not (sent := _sent(decision.priced.items)) and not _named(decision.priced):
            return
        request_id = decision.request.request_id
        for encoder, items in sent_away(decision).items():
            self._enter(encoder, _sent(items), request_id)
        for stage in decision.stages:
            if stage.winner is not None and stage.work is not Work.ENCODE:
                held = self._held.names(stage.winner.id)
                used = [uuid for uuid in _named(decision.priced) if uuid in held]
                self._enter(stage.winner.id, [*sent, *used], request_id)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Take back what did not come to be held where it was expected, and enter what did elsewhere."""
        decision = outcome.decision
        if decision is None or decision.rejection is not None:
            return ()
        sent, named = _sent(decision.priced.items), _named(decision.priced)
        winner = decision.primary_stage.winner
        if winner is None or not (sent or named):
            return ()
        failed, served = has_failed(outcome), outcome.endpoint or winner.id
        everybody = {*sent_away(decision), *(stage.winner.id for stage in decision.stages if stage.winner)}
        withdrawn = everybody if failed else {winner.id} - {served}
        for endpoint_id in withdrawn:
            self._held.withdraw(endpoint_id, [*sent, *named], outcome.request_id)
        if not failed and self._held.knows(served):
            # Only an answer shows that what was named was there.
            self._enter(served, sent if outcome.status is None else [*sent, *named], outcome.request_id)
        return ()

    def _enter(self, endpoint_id: str, uuids: Sequence[str], request_id: str) -> None:
        if uuids:
            self._held.enter(endpoint_id, dict.fromkeys(uuids, 1), request_id)
            for uuid in uuids:
                self._gone.pop(uuid, None)

    def _look(self, uuids: Sequence[str], candidates: Sequence[Candidate]) -> _Look:
        kept, unseen = list(candidates), None
        for uuid in uuids:
            if any(uuid in self._held.names(c.endpoint.id) for c in candidates):
                kept = [c for c in kept if uuid in self._held.names(c.endpoint.id)]
            elif self._held.is_held(uuid):
                return _Look([], f"no endpoint that may serve this holds the media of {_shown(uuid)}; {_SEND}")
            elif uuid in self._gone:
                return _Look([], f"no endpoint holds the media of {_shown(uuid)} any more; {_SEND}")
            else:
                unseen = unseen or uuid
        if not kept:
            return _Look([], f"no endpoint holds the media of all of {_shown(*uuids)}; {_SEND}")
        if unseen is not None:
            kept = [max(kept, key=lambda c: text_hash(f"{c.endpoint.id} {unseen}"))]
        return _Look(kept, unseen=unseen)


_SEND = "send its content again"


def _named(request: PricedRequest) -> list[str]:
    """The distinct uuids of which the request has neither content nor link, prompt order."""
    return _uuids(each.item.uuid for each in request.items if each.item.reason == Reason.UUID_ONLY)


def _sent(items: Iterable[PricedItem]) -> list[str]:
    """The distinct uuids of the items that have content or a link, prompt order."""
    return _uuids(each.item.uuid for each in items if each.item.reason != Reason.UUID_ONLY)


def _uuids(uuids: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(uuid for uuid in uuids if uuid is not None))


def _shown(*uuids: str) -> str:
    more = f" and {len(uuids) - 1} more" if len(uuids) > 1 else ""
    return f"uuid {uuids[0][:_SHOWN_CHARS]!r}{more}"
