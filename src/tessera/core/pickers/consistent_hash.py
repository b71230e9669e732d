"""Where does this content belong, whoever asks about it?"""

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Annotated, Final

from tessera.core.facts import InFlightLoad
from tessera.core.media.digests import text_hash
from tessera.core.parts import MediaItem
from tessera.core.plugin import NamedFacts, Picker, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, InferenceRequest, PricedRequest

NUM_POINTS: Final = 100
"""Points of each endpoint on the ring."""


@plugin("consistent-hash-picker", optional_reads=(InFlightLoad,))
class ConsistentHashPicker(Picker):
    """Send the same content to the same endpoint: a hash ring with 100 points for each endpoint.

    The content is the request's first media item; of a request without media, all of its
    text. With ``loadFactor`` c an endpoint takes a request only while it has fewer than
    ``ceil(c * (n + 1) / endpoints)`` of the n requests in flight; the next one on the ring
    takes it otherwise. An endpoint that comes or goes moves about its own share of the
    content. Memory: the ring of the last set of candidates.

    Source: V. Mirrokni, M. Thorup, M. Zadimoghaddam, "Consistent Hashing with Bounded
    Loads", 2016.
    """

    load_factor: Annotated[float, Range(ge=1)] | None = None
    """How much more than the average an endpoint may have in flight; absent: any number."""

    def __post_init__(self) -> None:
        self._ring: tuple[tuple[str, ...], list[str], list[int]] = ((), [], [])
        """Endpoint ids, the points in order, and for each point the index of its endpoint."""

    def reads_of(self) -> NamedFacts:
        """In-flight load, where the load is bounded."""
        return () if self.load_factor is None else ((InFlightLoad, InFlightLoad.producer),)

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """The index of the first endpoint with room, from the content's place on the ring on."""
        points, owners = self._points(tuple(candidate.endpoint.id for candidate in candidates))
        place = bisect_left(points, text_hash(content_name(request.request))) % len(points)
        if self.load_factor is None:
            return [owners[place]]
        loads = [candidate[InFlightLoad].num_requests for candidate in candidates]
        limit = math.ceil(self.load_factor * (sum(loads) + 1) / len(loads))
        # Somebody has room: the limit is above the average.
        return [next(owner for owner in (*owners[place:], *owners[:place]) if loads[owner] < limit)]

    def _points(self, ids: tuple[str, ...]) -> tuple[list[str], list[int]]:
        if self._ring[0] != ids:
            ring = sorted(
                (text_hash(f"{each} {n}"), index) for index, each in enumerate(ids) for n in range(NUM_POINTS)
            )
            self._ring = (ids, [point for point, _ in ring], [owner for _, owner in ring])
        return self._ring[1], self._ring[2]


def content_name(request: InferenceRequest) -> str:
    """What a request is about: its first media item's identifier, else its text's digests."""
    parts = [part for prompt in request.prompts for part in prompt]
    for part in parts:
        if isinstance(part, MediaItem):
            return part.identifier
    return b"".join(part.digests for part in parts if not isinstance(part, MediaItem)).hex()
