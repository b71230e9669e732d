"""How does a request go through the stages of a fleet, and when does its client see what?"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count

from tessera.core.types import Ending, Usage
from tessera.engine.events import Failed, Finished, FirstToken, KVPulled, RequestEvent
from tessera.engine.requests import ALONE, EngineRequest, Handover, MediaSegment
from tessera.sim.client import Sent
from tessera.sim.content import Ask
from tessera.sim.kernel import Action, Kernel
from tessera.sim.pools import Placed, Pools, encode_leg, prefill_leg
from tessera.sim.prompts import Prompts, Seen
from tessera.sim.road import EncodeLeg, Leg, PromptLeg, Road
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
    items: Sequence[MediaSegment]
    """The distinct ones."""
    road: Road
    is_kv_kept: bool = False
    """Whether the prefill keeps blocks for the decode."""


class StagedClient:
    """Sends, waits for ever, and notes what it saw.

    An item whose encoder fails, or does not keep its embeddings, is encoded where the
    prompt is computed; a prompt whose prefill fails is computed where it is answered.
    """

    def __init__(
        self, kernel: Kernel, pools: Pools, prompts: Prompts, hops: Hops, *, decodes_bare: bool = False
    ) -> None:
        """Sends to ``pools``; ``decodes_bare``: pictures of a prompt that another has computed are only named."""
        self._kernel = kernel
        self._pools = pools
        self._prompts = prompts
        self._hops = hops
        self._decodes_bare = decodes_bare
        self._ids = (f"r{number}" for number in count())
        self._legs: dict[str, tuple[_Journey, Leg]] = {}
        """By the id under which a server has them."""
        self.on_end: Callable[[Sent], None] = lambda sent: None
        """Told of each request that is over."""

    @property
    def num_in_flight(self) -> int:
        """Legs that have begun and are not over."""
        return len(self._legs)

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
        items = {each.identifier: each for each in seen.segments if isinstance(each, MediaSegment)}
        journey = _Journey(sent, seen, placed, list(items.values()), Road(placed))
        self._begin(journey, journey.road.start())
        return sent

    def hear(self, event: RequestEvent) -> None:
        """An engine tells something, now."""
        found = self._legs.get(event.request_id)
        if found is None:
            return
        journey, leg = found
        match event:
            case FirstToken():
                self._pools.first_token(event.request_id, event.at)
                if leg is PromptLeg.DECODE:
                    journey.sent.first_at = event.at
                    self._give_back(journey)
            case KVPulled():
                self._give_back(journey)
            case Finished() | Failed():
                del self._legs[event.request_id]
                self._over(journey, leg, event)

    def _over(self, journey: _Journey, leg: Leg, event: Finished | Failed) -> None:
        """A leg is over: the router knows, and what comes behind it begins when its answer is there."""
        is_done = isinstance(event, Finished)
        ending = Ending.FINISHED if is_done else Ending.FAILED
        usage = _usage(event) if isinstance(event, Finished) else None
        self._pools.ended(event.request_id, ending, event.at, usage)
        if leg is PromptLeg.DECODE:
            self._give_back(journey)
            self._end(journey.sent, ending)
            return
        journey.is_kv_kept |= leg is PromptLeg.PREFILL and is_done
        self._later(self._hops.network_s, lambda: self._begin(journey, journey.road.ended(leg, is_done=is_done)))

    def _begin(self, journey: _Journey, legs: Sequence[Leg]) -> None:
        """Begin legs, behind the sidecar if there is one."""
        placed = journey.placed
        sidecar_s = self._hops.sidecar_s if placed.encoders or placed.prefill is not None else 0.0
        for leg in legs:
            server, request = self._asked(journey, leg)
            self._legs[request.request_id] = journey, leg
            hop_s = 0.0 if leg is PromptLeg.DECODE else self._hops.network_s
            self._later(sidecar_s + hop_s, _submission(server, request))

    def _asked(self, journey: _Journey, leg: Leg) -> tuple[Server, EngineRequest]:
        """Who is asked what in a leg."""
        sent, seen, placed = journey.sent, journey.seen, journey.placed
        if isinstance(leg, EncodeLeg):
            request = EngineRequest(encode_leg(sent.id, leg.index), (journey.items[leg.index],), num_output_tokens=1)
            return placed.encoders[leg.index], request
        fetched = self._kept(journey)
        if leg is PromptLeg.PREFILL:
            assert placed.prefill is not None, "a road has the legs that were placed"
            handover = Handover(fetched=fetched, kv_lease_s=KV_LEASE_S)
            return placed.prefill, EngineRequest(prefill_leg(sent.id), seen.segments, 1, handover=handover)
        if journey.road.is_prefilled:
            bare = frozenset(item.identifier for item in journey.items) if self._decodes_bare else frozenset[str]()
            handover = Handover(num_remote_tokens=sum(segment.num_tokens for segment in seen.segments), bare=bare)
        else:
            # A server that takes KV takes no embeddings.
            handover = Handover(fetched=fetched) if placed.prefill is None else ALONE
        return placed.decode, seen.engaged(sent.id, handover)

    def _kept(self, journey: _Journey) -> frozenset[str]:
        """Items whose embeddings their encoders still have."""
        done = [(journey.items[index].identifier, journey.placed.encoders[index]) for index in journey.road.encoded]
        return frozenset(identifier for identifier, encoder in done if encoder.keeps_embeddings(identifier))

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

    def _later(self, delay_s: float, action: Action) -> None:
        """After so long; at once where that is no time."""
        if delay_s:
            self._kernel.at(self._kernel.now + delay_s, action)
        else:
            action()


def _submission(server: Server, request: EngineRequest) -> Action:
    return lambda: server.submit(request)


def _usage(event: Finished) -> Usage:
    return Usage(
        prompt_tokens=event.num_prompt_tokens,
        completion_tokens=event.num_completion_tokens,
        cached_tokens=event.num_cached_tokens,
    )
