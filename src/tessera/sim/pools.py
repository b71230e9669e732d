"""Who does which stage of a request? One pool of servers for each stage, and the router's own code over each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tessera.config.load import load_file
from tessera.core.parts import MediaItem
from tessera.core.types import Ending, FirstTokenSource, InferenceRequest, ModelProfile, Usage
from tessera.sim.gateway import Gateway
from tessera.sim.servers import Server

FOLDER: Final = Path(__file__).parent / "topologies"
"""How each pool is chosen from."""


@dataclass(frozen=True, slots=True)
class Placed:
    """Who does what of one request."""

    decode: Server
    """Who answers."""
    prefill: Server | None
    """Who computes the prompt, where another does."""
    encoders: Mapping[int, Server]
    """Who encodes each distinct item, by its index among them; empty: who computes the prompt."""


class Pools:
    """The servers of a topology, and what a router knows of each pool.

    Each stage is a leg with an id of its own, decided when the request arrives: load is
    reserved there from then on, and given back when the leg ends.
    """

    def __init__(
        self,
        *,
        decode: Sequence[Server],
        prefill: Sequence[Server],
        encode: Sequence[Server],
        spreads: bool,
        seed: int,
    ) -> None:
        """Pools whose routers know their endpoints and nothing else.

        Args:
            decode: who answers; it computes prompts too where ``prefill`` is empty.
            prefill: who computes prompts for others.
            encode: who encodes for those that compute prompts; empty: these do it themselves.
            spreads: whether each item of a request has an encoder chosen for it; else one is chosen for all.
            seed: ties break by it.
        """
        self._decode = _gateway("decode" if prefill else "compute", decode, seed)
        self._prefill = _gateway("compute", prefill, seed) if prefill else None
        self._encode = _gateway("encode", encode, seed) if encode else None
        self._spreads = spreads
        self.profile: ModelProfile = load_file(FOLDER / "compute.yaml").profile
        """By which requests are read."""
        self._gateway_of: dict[str, Gateway] = {}

    @property
    def num_open(self) -> int:
        """Legs that are reserved and not over."""
        return len(self._gateway_of)

    def place(self, request: InferenceRequest) -> Placed | None:
        """Decide on every stage of a request, at its own instant; nothing where one is rejected."""
        decode = self._reserve(self._decode, request)
        if decode is None:
            return None
        prefill = None
        if self._prefill is not None:
            prefill = self._reserve(self._prefill, replace(request, request_id=prefill_leg(request.request_id)))
        return Placed(decode, prefill, self._encoders(request))

    def _encoders(self, request: InferenceRequest) -> dict[int, Server]:
        """Who encodes each distinct item, in the order in which they are decided on."""
        chosen: dict[int, Server] = {}
        if self._encode is None:
            return chosen
        for index, item in enumerate(distinct(request)):
            leg = replace(request, request_id=encode_leg(request.request_id, index), prompts=((item,),))
            only = None if self._spreads or not chosen else (chosen[0].endpoint.id,)
            encoder = self._reserve(self._encode, replace(leg, subset=only))
            if encoder is not None:
                chosen[index] = encoder
        return chosen

    def first_token(self, leg: str, at: float) -> None:
        """A leg's answer begins."""
        self._gateway_of[leg].first_token(leg, at)

    def ended(self, leg: str, ending: Ending, at: float, usage: Usage | None = None) -> None:
        """A leg is over. One that was never reserved, or is over already, is ignored."""
        gateway = self._gateway_of.pop(leg, None)
        if gateway is not None:
            gateway.ended(leg, ending, at, usage=usage)

    def _reserve(self, gateway: Gateway, request: InferenceRequest) -> Server | None:
        server = gateway.decide(request)
        if server is not None:
            self._gateway_of[request.request_id] = gateway
        return server


def distinct(request: InferenceRequest) -> list[MediaItem]:
    """The media items of a request, each once, in prompt order."""
    items = (part for prompt in request.prompts for part in prompt if isinstance(part, MediaItem))
    return list({item.identifier: item for item in items}.values())


def prefill_leg(request_id: str) -> str:
    """What the leg that computes a request's prompt is called."""
    return f"{request_id}/prefill"


def encode_leg(request_id: str, index: int) -> str:
    """What the leg that encodes a request's item is called."""
    return f"{request_id}/encode/{index}"


def _gateway(policy: str, servers: Sequence[Server], seed: int) -> Gateway:
    router = load_file(FOLDER / f"{policy}.yaml").router
    return Gateway(router, servers, seed=seed, source=FirstTokenSource.BODY, tells_cached=False)
