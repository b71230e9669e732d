"""How does a request go through the stages of a fleet, and when does its client see what?

Encode, prefill and decode follow each other as the sidecar before a decode server has
them: every item is encoded at once, then the prompt is computed, then it is answered.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from tessera.core.types import Ending, Usage
from tessera.engine.events import Failed, Finished, FirstToken, KVPulled, RequestEvent
from tessera.engine.requests import ALONE, EngineRequest, Handover, MediaSegment
from tessera.sim.client import Sent
from tessera.sim.content import Ask
from tessera.sim.kernel import Action, Kernel
from tessera.sim.pools import Placed, Pools, encode_leg, prefill_leg
from tessera.sim.prompts import Prompts, Seen
from tessera.sim.servers import Server

KV_LEASE_S = 300.0
"""How long a prefill keeps KV for the decode. Source: llm-d's guide, ``kv_lease_duration``."""


@dataclass(frozen=True, slots=True)
class Hops:
    """What lies between the servers of one request. All assumed."""

    network_s: float = 0.5e-3
    """One way between two servers, for a body and its answer."""
    sidecar_s: float = 1e-3
    """Of the sidecar, for each leg that it begins. Without stages elsewhere there is none."""


@dataclass(slots=True)
class _Journey:
    """One request on its way."""

    sent: Sent
    seen: Seen
    placed: Placed
    num_encoding: int = 0
    """Items whose encoders have not answered."""
    encoded: dict[str, Server] = field(default_factory=dict)
    """Who has encoded which item, by identifier."""
    is_prefilled: bool = False
    is_kv_kept: bool = False
    """Whether the prefill keeps blocks for the decode."""


class StagedClient:
    """Sends, waits for ever, and notes what it saw.

    An item whose encoder fails is encoded where the prompt is computed, a prompt whose
    prefill fails is computed where it is answered.
    """

    def __init__(self, kernel: Kernel, pools: Pools, prompts: Prompts, hops: Hops) -> None:
        self._kernel = kernel
        self._pools = pools
        self._prompts = prompts
        self._hops = hops
        self._ids = (f"r{number}" for number in count())
        self._journey_of: dict[str, _Journey] = {}
        """By the id of each leg that a server has."""
        self.on_end: Callable[[Sent], None] = lambda sent: None
        """Told of each request that is over."""

    @property
    def num_in_flight(self) -> int:
        """Legs that are with a server."""
        return len(self._journey_of)

    def send(self, ask: Ask, stage: int) -> Sent:
        """Send a request now."""
        now = self._kernel.now
        sent = Sent(next(self._ids), stage, now, ask.num_output_tokens)
        seen = self._prompts.see(ask)
        placed = self._pools.place(seen.routed(sent.id, now, ""))
        if placed is None:
            self._kernel.at(now, lambda: self._end(sent, Ending.REJECTED))
            return sent
        sent.endpoint_id = placed.decode.endpoint.id
        journey = _Journey(sent, seen, placed)
        if placed.encoders:
            self._encode(journey)
        else:
            self._compute(journey)
        return sent

    def hear(self, event: RequestEvent) -> None:
        """An engine tells something, now."""
        journey = self._journey_of.get(event.request_id)
        if journey is None:
            return
        is_decode = event.request_id == journey.sent.id
        match event:
            case FirstToken():
                self._pools.first_token(event.request_id, event.at)
                if is_decode:
                    journey.sent.first_at = event.at
                    self._give_back(journey)
            case KVPulled():
                self._give_back(journey)
            case Finished() | Failed():
                del self._journey_of[event.request_id]
                is_done = isinstance(event, Finished)
                usage = _usage(event) if isinstance(event, Finished) else None
                self._pools.ended(event.request_id, Ending.FINISHED if is_done else Ending.FAILED, event.at, usage)
                self._follow(journey, event.request_id, is_done=is_done)

    def _follow(self, journey: _Journey, leg: str, *, is_done: bool) -> None:
        """What comes behind a leg that is over."""
        if leg == journey.sent.id:
            self._give_back(journey)
            self._end(journey.sent, Ending.FINISHED if is_done else Ending.FAILED)
        elif leg == prefill_leg(journey.sent.id):
            journey.is_prefilled = journey.is_kv_kept = is_done
            self._later(self._hops.network_s, lambda: self._decode(journey))
        else:
            index = int(leg.rpartition("/")[2])
            if is_done:
                journey.encoded[self._item(journey, index).identifier] = journey.placed.encoders[index]
            self._later(self._hops.network_s, lambda: self._encoded(journey))

    def _encode(self, journey: _Journey) -> None:
        """Every item at once."""
        journey.num_encoding = len(journey.placed.encoders)
        for index, encoder in journey.placed.encoders.items():
            leg = encode_leg(journey.sent.id, index)
            request = EngineRequest(leg, (self._item(journey, index),), num_output_tokens=1)
            self._begin(journey, encoder, request, is_away=True)

    def _encoded(self, journey: _Journey) -> None:
        journey.num_encoding -= 1
        if not journey.num_encoding:
            self._compute(journey)

    def _compute(self, journey: _Journey) -> None:
        """The prompt: where it is answered, or before."""
        prefill = journey.placed.prefill
        if prefill is None:
            self._decode(journey)
            return
        handover = Handover(fetched=self._kept(journey), kv_lease_s=KV_LEASE_S)
        leg = prefill_leg(journey.sent.id)
        request = EngineRequest(leg, journey.seen.segments, num_output_tokens=1, handover=handover)
        self._begin(journey, prefill, request, is_away=True)

    def _decode(self, journey: _Journey) -> None:
        handover = ALONE
        if journey.is_prefilled:
            num_tokens = sum(segment.num_tokens for segment in journey.seen.segments)
            handover = Handover(num_remote_tokens=num_tokens)
        elif journey.placed.prefill is None and journey.encoded:
            handover = Handover(fetched=self._kept(journey))
        request = journey.seen.engaged(journey.sent.id, handover)
        self._begin(journey, journey.placed.decode, request, is_away=False)

    def _begin(self, journey: _Journey, server: Server, request: EngineRequest, *, is_away: bool) -> None:
        """Begin a leg, behind the sidecar if there is one."""
        has_sidecar = journey.placed.encoders or journey.placed.prefill is not None
        delay_s = (self._hops.sidecar_s if has_sidecar else 0.0) + (self._hops.network_s if is_away else 0.0)
        self._journey_of[request.request_id] = journey
        self._later(delay_s, lambda: server.submit(request))

    def _kept(self, journey: _Journey) -> frozenset[str]:
        """Items whose embeddings their encoders still have."""
        return frozenset(item for item, encoder in journey.encoded.items() if encoder.keeps_embeddings(item))

    def _give_back(self, journey: _Journey) -> None:
        """The prefill's blocks are not needed any more."""
        prefill = journey.placed.prefill
        if journey.is_kv_kept and prefill is not None:
            journey.is_kv_kept = False
            leg = prefill_leg(journey.sent.id)
            self._later(self._hops.network_s, lambda: prefill.release_kv(leg))

    def _end(self, sent: Sent, ending: Ending) -> None:
        sent.ending, sent.ended_at = ending, self._kernel.now
        self.on_end(sent)

    def _item(self, journey: _Journey, index: int) -> MediaSegment:
        """The distinct item of that index."""
        items = (segment for segment in journey.seen.segments if isinstance(segment, MediaSegment))
        return list({item.identifier: item for item in items}.values())[index]

    def _later(self, delay_s: float, action: Action) -> None:
        """After so long; at once where that is no time."""
        if delay_s:
            self._kernel.at(self._kernel.now + delay_s, action)
        else:
            action()


def _usage(event: Finished) -> Usage:
    return Usage(
        prompt_tokens=event.num_prompt_tokens,
        completion_tokens=event.num_completion_tokens,
        cached_tokens=event.num_cached_tokens,
    )
