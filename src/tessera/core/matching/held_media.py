"""Which media does each endpoint hold, as far as the requests that it served tell?"""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tessera.core.facts import FleetEvent, Joined, Left, Scraped
from tessera.core.types import Ending, Outcome


@dataclass(slots=True)
class _Cache:
    """What one endpoint holds, least recently used first."""

    held: OrderedDict[str, tuple[int, str]] = field(default_factory=OrderedDict)
    """Name -> weight, and the id of the request that used it last."""
    weight: int = 0
    room_fraction: float = 1.0
    """Of the capacity, what it is believed to have."""
    process_start_at: float | None = None
    num_first_tokens: int | None = None

    def take(self, name: str) -> None:
        """Let go of a name, held or not."""
        if (entry := self.held.pop(name, None)) is not None:
            self.weight -= entry[0]

    def clear(self) -> list[str]:
        """Let go of every name; which they were."""
        names = list(self.held)
        self.held.clear()
        self.weight = 0
        self.room_fraction = 1.0
        return names

    def has_restarted(self, event: Scraped) -> bool:
        """Whether the process is another one than at the last scrape, which this one replaces."""
        starts = (self.process_start_at, event.process_start_at)
        counts = (self.num_first_tokens, event.num_first_tokens)
        restarted = None not in starts and starts[0] != starts[1]
        if counts[0] is not None and counts[1] is not None:
            restarted |= counts[1] < counts[0]
        self.process_start_at = starts[0] if starts[1] is None else starts[1]
        self.num_first_tokens = counts[0] if counts[1] is None else counts[1]
        return restarted


_EMPTY = _Cache()


class HeldMedia:
    """One LRU of names for each endpoint, as the engine's own cache is one.

    An endpoint's LRU is empty again when it leaves or its process is another one.
    Memory: for each endpoint of the fleet at most ``capacity`` names, since a name
    weighs at least 1.
    """

    def __init__(self, capacity: int) -> None:
        """Hold nothing yet; ``capacity`` bounds the sum of weights of each endpoint, at least 1."""
        self._capacity = capacity
        self._caches: dict[str, _Cache] = {}

    def knows(self, endpoint_id: str) -> bool:
        """Whether the endpoint is one of the fleet, or was given something."""
        return endpoint_id in self._caches

    def names(self, endpoint_id: str) -> Collection[str]:
        """What the endpoint holds; asking is no use of it."""
        return self._caches.get(endpoint_id, _EMPTY).held.keys()

    def held_of(self, names: Sequence[str], endpoint_ids: Sequence[str]) -> list[tuple[bool, ...]]:
        """One row for each endpoint: whether it holds each of the names."""
        if not names:
            return [()] * len(endpoint_ids)
        held = [self._caches.get(endpoint_id, _EMPTY).held for endpoint_id in endpoint_ids]
        return list(zip(*[[name in each for each in held] for name in names], strict=True))

    def is_held(self, name: str) -> bool:
        """Whether any endpoint holds it."""
        return any(name in cache.held for cache in self._caches.values())

    def weight(self, endpoint_id: str) -> int:
        """Sum of the weights of what the endpoint holds, at most ``capacity``."""
        return self._caches.get(endpoint_id, _EMPTY).weight

    def enter(self, endpoint_id: str, weights: Mapping[str, int], request_id: str) -> None:
        """The endpoint used these names for a request, in this order.

        A name that weighs more than the whole cache takes all of it: engines make
        room for the largest item that they accept.
        """
        cache = self._caches.setdefault(endpoint_id, _Cache())
        room = self._room(cache)
        for name, weight in weights.items():
            cache.take(name)
            taken = min(max(1, weight), room)
            self._make_room(cache, room - taken)
            cache.held[name] = (taken, request_id)
            cache.weight += taken

    def room(self, endpoint_id: str) -> int:
        """What the weights of an endpoint's names may sum up to."""
        return self._room(self._caches.get(endpoint_id, _EMPTY))

    def resize(self, endpoint_id: str, factor: float, least_fraction: float) -> None:
        """The endpoint holds less or more than was believed, by ``factor``; between ``least_fraction`` and all of it.

        What no longer fits is forgotten, the least recently used first. A new process
        begins with the whole capacity again.
        """
        cache = self._caches.get(endpoint_id)
        if cache is not None:
            cache.room_fraction = min(1.0, max(least_fraction, cache.room_fraction * factor))
            self._make_room(cache, self._room(cache))

    def _room(self, cache: _Cache) -> int:
        return max(1, int(self._capacity * cache.room_fraction))

    @staticmethod
    def _make_room(cache: _Cache, limit: int) -> None:
        while cache.weight > limit:
            cache.take(next(iter(cache.held)))

    def withdraw(self, endpoint_id: str, names: Iterable[str], request_id: str) -> None:
        """The endpoint did not use these names for that request after all; what another one used since stays."""
        cache = self._caches.get(endpoint_id)
        if cache is None:
            return
        for name in names:
            if (entry := cache.held.get(name)) is not None and entry[1] == request_id:
                cache.take(name)

    def observe(self, event: FleetEvent) -> list[str]:
        """Learn that the fleet changed; the names that an endpoint lost by leaving or by starting anew."""
        match event:
            case Joined():
                self._caches.setdefault(event.endpoint.id, _Cache())
            case Left():
                cache = self._caches.pop(event.endpoint.id, None)
                return cache.clear() if cache is not None else []
            case Scraped():
                cache = self._caches.get(event.endpoint_id)
                if cache is not None and cache.has_restarted(event):
                    return cache.clear()
        return []


def has_failed(outcome: Outcome) -> bool:
    """Whether the engine refused the request or failed: nobody knows then how far it came."""
    return outcome.ending is Ending.FAILED or (outcome.status is not None and outcome.status >= 400)
