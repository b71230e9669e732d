"""What do the router and the engine see of what a client asks?"""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from tessera.core.errors import ConfigError, Problem
from tessera.core.family import Count, Family
from tessera.core.pickers.pinned_connection import CONNECTION_HEADER
from tessera.core.router import Router
from tessera.core.types import InferenceRequest, ModelProfile
from tessera.engine.requests import ALONE, EngineRequest, Handover, MediaSegment, Segment, TextSegment
from tessera.sim.content import BYTES_PER_TOKEN, PATH, Ask, Image, Message, body_of

MAX_REMEMBERED: Final = 8192
"""Asks whose reading is kept, the last ones; about 15 KB each at 4,000 tokens."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One ask from both sides, without what differs from request to request."""

    request: InferenceRequest
    """As ``Router.read`` made it of the body."""
    segments: tuple[Segment, ...]
    num_output_tokens: int
    body: bytes | None = None
    """As it was sent, where sidecars take it apart."""

    def routed(self, request_id: str, at: float, connection: str) -> InferenceRequest:
        """The request as it reaches the router at ``at`` over a connection."""
        headers = {CONNECTION_HEADER: connection}
        return replace(self.request, request_id=request_id, at=at, wall_at=at, headers=headers)

    def engaged(self, request_id: str, handover: Handover = ALONE) -> EngineRequest:
        """The request as it reaches an engine, which does what others have not done."""
        return EngineRequest(request_id, self.segments, self.num_output_tokens, handover=handover)


class Prompts:
    """Reads each distinct ask once: its body is written, read by the router's own code, and let go.

    Memory: ``MAX_REMEMBERED`` asks; an ask is known by its identity, so that a workload
    which repeats itself should hand out the same object.
    """

    def __init__(self, profile: ModelProfile, model: str, family: Family, *, keeps_bodies: bool = False) -> None:
        """Read by ``profile``, as the policy's own configuration makes it; ``family`` is what the engine serves."""
        self._keeps_bodies = keeps_bodies
        self._profile = profile
        self._model = model
        self._family = family
        self._seen: OrderedDict[int, tuple[Ask, Seen]] = OrderedDict()
        self._counts: dict[tuple[int, int], Count] = {}

    def see(self, ask: Ask) -> Seen:
        """Both sides of an ask."""
        known = self._seen.get(id(ask))
        if known is not None and known[0] is ask:
            self._seen.move_to_end(id(ask))
            return known[1]
        body = body_of(ask, self._model)
        request, _ = Router.read(body, {":path": PATH}, self._profile, request_id="", at=0.0, wall_at=0.0)
        segments = tuple(segment for message in ask.messages for segment in self._segments(message))
        seen = Seen(request, segments, ask.num_output_tokens, body if self._keeps_bodies else None)
        self._seen[id(ask)] = ask, seen
        if len(self._seen) > MAX_REMEMBERED:
            self._seen.popitem(last=False)
        return seen

    def _segments(self, message: Message) -> Iterator[Segment]:
        """A message's segments; its role counts with its first text, or stands before a picture that comes first."""
        role = message.role
        for part in message.parts:
            if isinstance(part, Image):
                if role:
                    yield _text("", role, 0)
                yield self._media(part)
            else:
                yield _text(part.key, role, part.num_tokens)
            role = ""

    def _media(self, image: Image) -> MediaSegment:
        size = (image.width, image.height)
        if size not in self._counts:
            count = self._family.image(*size)
            if not isinstance(count, Count):
                message = f"the model refuses a picture of {image.width}x{image.height}: {count.reason}"
                raise ConfigError([Problem("workload", message)])
            self._counts[size] = count
        count = self._counts[size]
        tokens = count.num_tokens + count.num_wrapper_tokens
        return MediaSegment(image.key, tokens, count.num_embeds, image.width, image.height)


def _text(key: str, role: str, num_tokens: int) -> TextSegment:
    """A run of text with the role before it, priced as the router does: 4 bytes a token."""
    name = blake2b(f"{role}\0{num_tokens}\0{key}".encode(), digest_size=8).digest()
    num_bytes = len(role.encode()) + num_tokens * BYTES_PER_TOKEN
    return TextSegment(int.from_bytes(name, "little"), -(-num_bytes // BYTES_PER_TOKEN))
