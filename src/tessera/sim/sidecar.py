"""What do the sidecars of a fleet do in virtual time? They drive ``core.flow``, as live ones do.

A request for a server that shares its work becomes a flow; its legs are requests to
the engines of other servers, each behind the network, and what engines tell becomes
its events. Nothing is chosen here. A server that does all of it has no sidecar.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import msgspec

from tessera.core.flow.commands import Break, Cancel, Command, Decode, Encode, End, Prefill, Refuse, Relay, WakeAt
from tessera.core.flow.connectors.ec_nixl import ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.connectors.protocols import EC_PARAMS, KV_PARAMS
from tessera.core.flow.document import Document, fields_of, value_of
from tessera.core.flow.events import (
    Cause,
    ClientGone,
    DecodeEnded,
    DecodeFailed,
    DecodeHeaders,
    EncodeAnswered,
    Event,
    PrefillAnswered,
    Started,
    Woken,
)
from tessera.core.flow.flow import Flow, Job
from tessera.core.flow.plan import read_plan
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.shapes import CHAT
from tessera.core.work import Work
from tessera.engine.events import Failed, Finished, FirstToken, KVPulled, RequestEvent
from tessera.engine.requests import ALONE, EngineRequest, Handover, MediaSegment
from tessera.engine.roles import Role
from tessera.sim.kernel import Action, Kernel
from tessera.sim.prompts import Seen
from tessera.sim.servers import Server

KV_LEASE_S: Final = 300.0
"""How long a prefill keeps KV for the decode. Source: llm-d's guide, ``kv_lease_duration``."""
_OK: Final = 200
_REFUSED: Final = 400
"""What an engine answers that can never do what it is asked."""

Asking = Encode | Prefill | Decode


@dataclass(frozen=True, slots=True)
class Hops:
    """What lies between the servers of one request. All assumed."""

    network_s: float = 0.5e-3
    """One way between two servers, for a body and its answer."""
    sidecar_s: float = 1e-3
    """Of the sidecar, for each leg that it begins."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A request ended without an answer, or in the middle of it."""

    request_id: str
    at: float


SidecarEvent = RequestEvent | Lost


@dataclass(slots=True)
class _Trip:
    """One request on its way."""

    id: str
    flow: Flow
    server: Server
    """Who answers."""
    seen: Seen
    items: Sequence[MediaSegment]
    """The distinct ones, in prompt order."""
    wake_at: float | None = None
    kept: tuple[Server, str] | None = None
    """Who keeps the prompt's KV, and under which leg."""
    finished: Finished | None = None


@dataclass(slots=True)
class _Leg:
    """A part of a request that another engine, or the own one, is asked for."""

    trip: _Trip
    asking: Asking
    server: Server
    is_with_engine: bool = False
    """Else it is on its way there or back."""


class Sidecars:
    """Every sidecar of a fleet.

    Memory: a record for each request in flight. A timer that was wound and is not needed
    any more stays on the heap until its time; it holds the request's id alone.
    """

    def __init__(
        self,
        kernel: Kernel,
        servers: Sequence[Server],
        *,
        hops: Hops | None = None,
        settings: FlowSettings | None = None,
        decodes_bare: bool = False,
    ) -> None:
        """No request is under way.

        Args:
            kernel: the clock.
            servers: the fleet.
            hops: times between servers.
            settings: limits of each flow; the live sidecar's where they are left out.
            decodes_bare: whether a server that pulls KV gets media by name only; a live sidecar leaves them in.
        """
        self._kernel = kernel
        self._servers = {server.endpoint.id: server for server in servers}
        self._hops = hops or Hops()
        self._settings = settings or FlowSettings()
        self._decodes_bare = decodes_bare
        self._trips: dict[str, _Trip] = {}
        self._legs: dict[str, _Leg] = {}
        """By the id under which an engine has them, or will."""
        self.on_event: Callable[[SidecarEvent], None] = lambda event: None
        """Told what clients see."""
        self.on_stages: Callable[[str, str, float], None] = lambda request_id, stages, at: None
        """Told what the header of an answer says of its stages."""

    @property
    def num_open(self) -> int:
        """Legs that have begun and are not over."""
        return len(self._legs)

    def submit(self, server: Server, seen: Seen, request_id: str, headers: Callable[[], Mapping[str, str]]) -> None:
        """A request reaches the server that answers it; ``headers`` are those that the router added."""
        role = server.engine.profile.role
        if role is Role.ALL:
            server.submit(seen.engaged(request_id))
            return
        assert seen.body is not None, "a request that is taken apart has a body"
        job = Job(
            document=Document(seen.body),
            shape=CHAT,
            plan=read_plan(headers()),
            decoder=server.endpoint.id,
            ec=ECNixl(),
            kv=KVNixl() if role.transfers_kv else None,
        )
        items = {each.identifier: each for each in seen.segments if isinstance(each, MediaSegment)}
        trip = _Trip(request_id, Flow(job, self._settings), server, seen, list(items.values()))
        self._trips[request_id] = trip
        self._happens(trip, Started(self._kernel.now))

    def abort(self, server: Server, request_id: str) -> None:
        """The client of a request has gone."""
        trip = self._trips.get(request_id)
        if trip is None:
            server.abort(request_id)
        else:
            self._happens(trip, ClientGone(self._kernel.now))

    def hear(self, event: RequestEvent) -> None:
        """An engine tells something, now."""
        leg = self._legs.get(event.request_id)
        if leg is None:
            if event.request_id not in self._trips:
                self.on_event(event)
            return
        trip = leg.trip
        match event:
            case FirstToken():
                if isinstance(leg.asking, Decode):
                    self._give_back(trip)
                    self.on_event(FirstToken(trip.id, event.at))
            case KVPulled():
                self._give_back(trip)
            case Finished() | Failed():
                leg.is_with_engine = False
                if isinstance(leg.asking, Decode):
                    del self._legs[event.request_id]
                    self._decoded(trip, leg.asking, event)
                else:
                    self._later(partial(self._answered, leg, event))

    def _answered(self, leg: _Leg, event: Finished | Failed) -> None:
        """The answer of an encoder or a prefiller is there, unless it was given up on its way."""
        if self._legs.pop(event.request_id, None) is None:
            return
        now, is_done = self._kernel.now, isinstance(event, Finished)
        status, trip = _OK if is_done else _REFUSED, leg.trip
        match leg.asking:
            case Encode(item, attempt):
                body = _announced(leg.server, trip.items[item]) if is_done else b""
                self._happens(trip, EncodeAnswered(now, item, attempt, status, body))
            case Prefill(attempt):
                body = _keeping(leg.server, event) if isinstance(event, Finished) else b""
                self._happens(trip, PrefillAnswered(now, attempt, status, body))

    def _decoded(self, trip: _Trip, asking: Decode, event: Finished | Failed) -> None:
        """The answer itself is over."""
        self._give_back(trip)
        if isinstance(event, Failed):
            self._happens(trip, DecodeFailed(event.at, asking.attempt, Cause.CUT))
            return
        told = event.num_cached_tokens if asking.num_cached_tokens is None else asking.num_cached_tokens
        trip.finished = replace(event, request_id=trip.id, num_cached_tokens=told)
        self._happens(trip, DecodeEnded(event.at, asking.attempt))

    def _happens(self, trip: _Trip, event: Event) -> None:
        for command in trip.flow.receive(event):
            self._carry_out(trip, command)
        if trip.flow.is_over:
            self._trips.pop(trip.id, None)
            self._give_back(trip)

    def _carry_out(self, trip: _Trip, command: Command) -> None:
        match command:
            case Encode() | Prefill() | Decode():
                self._begin(trip, command)
            case Cancel(stage, attempt, item):
                leg_id = _leg_id(trip.id, stage, attempt, item)
                leg = self._legs.pop(leg_id)
                if leg.is_with_engine:
                    leg.server.abort(leg_id)
            case WakeAt(at):
                trip.wake_at = at
                self._kernel.at(max(at, self._kernel.now), partial(self._wake, trip.id, at))
            case Relay(stages):
                self.on_stages(trip.id, stages, self._kernel.now)
            case End():
                assert trip.finished is not None, "an answer that is complete has an end"
                self.on_event(trip.finished)
            case Refuse() | Break():
                self.on_event(Lost(trip.id, self._kernel.now))

    def _wake(self, request_id: str, at: float) -> None:
        trip = self._trips.get(request_id)
        if trip is not None and trip.wake_at == at:
            self._happens(trip, Woken(self._kernel.now))

    def _begin(self, trip: _Trip, asking: Asking) -> None:
        """A leg leaves the sidecar, and reaches its engine behind the network."""
        match asking:
            case Encode(item, attempt, endpoint):
                leg_id, server = _leg_id(trip.id, Work.ENCODE, attempt, item), self._servers[endpoint]
            case Prefill(attempt, endpoint):
                leg_id, server = _leg_id(trip.id, Work.PREFILL, attempt), self._servers[endpoint]
            case Decode(attempt):
                leg_id, server = _leg_id(trip.id, Work.DECODE, attempt), trip.server
        self._legs[leg_id] = _Leg(trip, asking, server)
        hop_s = 0.0 if isinstance(asking, Decode) else self._hops.network_s
        self._later(lambda: self._arrive(leg_id), self._hops.sidecar_s + hop_s)

    def _arrive(self, leg_id: str) -> None:
        """A leg is with its engine, unless it was given up on its way."""
        leg = self._legs.get(leg_id)
        if leg is None:
            return
        leg.is_with_engine = True
        trip, server = leg.trip, leg.server
        segments = trip.seen.segments
        match leg.asking:
            case Encode(item):
                server.submit(EngineRequest(leg_id, (trip.items[item],), num_output_tokens=1))
            case Prefill(body=body):
                handover = Handover(fetched=self._fetched(body), kv_lease_s=KV_LEASE_S)
                server.submit(EngineRequest(leg_id, segments, 1, handover=handover))
            case Decode(attempt, body):
                server.submit(trip.seen.engaged(leg_id, self._handover(trip, body)))
                # An engine answers a stream with headers when it has taken the request, before its first token.
                self._happens(trip, DecodeHeaders(self._kernel.now, attempt, _OK))

    def _handover(self, trip: _Trip, body: bytes) -> Handover:
        """What the server that answers gets from others, by the words of its body."""
        source = fields_of(fields_of(body).get(KV_PARAMS, b""))
        peer = self._servers.get(_address(source, "remote_host", "remote_port"))
        if peer is not None:
            trip.kept = peer, str(value_of(source["remote_request_id"]))
            bare = frozenset(item.identifier for item in trip.items) if self._decodes_bare else frozenset[str]()
            return Handover(num_remote_tokens=sum(each.num_tokens for each in trip.seen.segments), bare=bare)
        # A server that takes KV takes no embeddings.
        takes = trip.server.engine.profile.role.takes_embeddings
        return Handover(fetched=self._fetched(body)) if takes else ALONE

    def _fetched(self, body: bytes) -> frozenset[str]:
        """Items that a body refers to and whose embeddings their encoders still have."""
        entries = fields_of(fields_of(body).get(EC_PARAMS, b""))
        encoders = {name: _address(fields_of(raw), "peer_host", "peer_port") for name, raw in entries.items()}
        return frozenset(name for name, address in encoders.items() if self._servers[address].keeps_embeddings(name))

    def _give_back(self, trip: _Trip) -> None:
        """The prefill's blocks are not needed any more."""
        if trip.kept is not None:
            server, leg_id = trip.kept
            trip.kept = None
            self._later(lambda: server.release_kv(leg_id))

    def _later(self, action: Action, delay_s: float | None = None) -> None:
        """After so long, else behind the network; at once where that is no time."""
        delay_s = self._hops.network_s if delay_s is None else delay_s
        if delay_s:
            self._kernel.at(self._kernel.now + delay_s, action)
        else:
            action()


def _leg_id(request_id: str, stage: Work, attempt: int, item: int | None = None) -> str:
    return f"{request_id}/{stage}/{attempt}" if item is None else f"{request_id}/{stage}/{attempt}/{item}"


def _announced(server: Server, item: MediaSegment) -> bytes:
    """An encoder's answer; without an address where the embeddings were evicted before."""
    endpoint = server.endpoint
    entry = {"peer_host": endpoint.address, "peer_port": endpoint.port}
    kept = entry if server.keeps_embeddings(item.identifier) else {}
    return msgspec.json.encode({EC_PARAMS: {item.identifier: kept}})


def _keeping(server: Server, event: Finished) -> bytes:
    """A prefiller's answer: where the blocks are, and what its cache had of them."""
    endpoint = server.endpoint
    params = {"remote_host": endpoint.address, "remote_port": endpoint.port, "remote_request_id": event.request_id}
    usage = {
        "prompt_tokens": event.num_prompt_tokens,
        "prompt_tokens_details": {"cached_tokens": event.num_cached_tokens},
    }
    return msgspec.json.encode({"usage": usage, KV_PARAMS: params})


def _address(fields: Mapping[str, msgspec.Raw], host: str, port: str) -> str:
    return f"{value_of(fields.get(host, b''))}:{value_of(fields.get(port, b''))}"
