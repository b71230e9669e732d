"""Which endpoint is believed to hold which keys? One bounded LRU for each endpoint, one table over all of them."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from tessera.core.matching.holders import Holders

Cell = tuple[int, float]
"""Tokens of an entry, and when it was last entered or refreshed."""

MAX_ENTRIES: Final = 1 << 18
"""Entries of one endpoint, whatever its capacity: four million tokens of text, about 50 MB."""


@dataclass(slots=True)
class _Shelf:
    """What one endpoint holds."""

    bit: int
    """By which the table knows the endpoint."""
    entries: OrderedDict[int, Cell] = field(default_factory=OrderedDict)
    """By key, least recently used first; anonymous entries have negative keys."""
    num_tokens: int = 0
    num_anonymous: int = 0


class PrefixIndex:
    """Keys by endpoint, of chains in which each key stands for everything before it.

    A match is contiguous from a chain's start. Eviction is least recently used first,
    and of one chain its tail first, as the engine frees its blocks. Memory: an
    endpoint's entries stay within the capacity it is given, each counted as one token
    at least, and within ``MAX_ENTRIES``; about 170 bytes an entry. ``remove`` leaves
    nothing of an endpoint.
    """

    def __init__(self) -> None:
        self._shelves: dict[str, _Shelf] = {}
        self._holders = Holders()

    def __contains__(self, endpoint_id: object) -> bool:
        return endpoint_id in self._shelves

    def __len__(self) -> int:
        """Endpoints that have a shelf."""
        return len(self._shelves)

    @property
    def num_keys(self) -> int:
        """Distinct keys that somebody holds."""
        return len(self._holders)

    def num_entries(self, endpoint_id: str) -> int:
        """Entries of an endpoint, anonymous ones included."""
        shelf = self._shelves.get(endpoint_id)
        return len(shelf.entries) if shelf else 0

    def num_tokens(self, endpoint_id: str) -> int:
        """Tokens that an endpoint is believed to hold, each entry counted as one at least."""
        shelf = self._shelves.get(endpoint_id)
        return shelf.num_tokens if shelf else 0

    def add(self, endpoint_id: str) -> None:
        """Make room for an endpoint; nothing changes where it is known."""
        if endpoint_id not in self._shelves:
            self._shelves[endpoint_id] = _Shelf(self._holders.join())

    def remove(self, endpoint_id: str) -> None:
        """Forget an endpoint and everything it held. Takes time in proportion to its entries."""
        self.clear(endpoint_id)
        if shelf := self._shelves.pop(endpoint_id, None):
            self._holders.leave(shelf.bit)

    def clear(self, endpoint_id: str) -> None:
        """Forget everything an endpoint held, as when it was started anew."""
        if shelf := self._shelves.get(endpoint_id):
            self._holders.let_go(shelf.entries, shelf.bit)
            shelf.entries.clear()
            shelf.num_tokens = 0

    def insert(
        self, endpoint_id: str, keys: Sequence[int], weights: Sequence[int], capacity: int, at: float = 0.0
    ) -> None:
        """Enter or refresh a chain, its head as the most recent; then evict down to ``capacity`` tokens.

        A key that is there gets the new weight and instant.
        """
        self.add(endpoint_id)
        shelf = self._shelves[endpoint_id]
        entries = shelf.entries
        # Most atoms of a prompt weigh the same: they share a cell.
        cells = {weight: (weight or 1, at) for weight in set(weights)}
        entered = []
        for key, weight in zip(reversed(keys), reversed(weights), strict=True):
            cell = cells[weight]
            old = entries.pop(key, None)
            if old is None:
                entered.append(key)
            else:
                shelf.num_tokens -= old[0]
            entries[key] = cell
            shelf.num_tokens += cell[0]
        self._holders.hold(entered, shelf.bit)
        self._evict(shelf, capacity)

    def charge(self, endpoint_id: str, num_tokens: int, capacity: int) -> None:
        """Enter tokens that no request can match; nothing where the endpoint is unknown or tokens are none."""
        shelf = self._shelves.get(endpoint_id)
        if shelf is None or num_tokens <= 0:
            return
        shelf.num_anonymous += 1
        shelf.entries[-shelf.num_anonymous] = (num_tokens, 0.0)
        shelf.num_tokens += num_tokens
        self._evict(shelf, capacity)

    def drop(self, endpoint_id: str, keys: Iterable[int], at: float) -> None:
        """Forget these keys of one endpoint, except those that were entered or refreshed after ``at``."""
        shelf = self._shelves.get(endpoint_id)
        if shelf is None:
            return
        entries = shelf.entries
        dropped = [key for key in keys if key in entries and entries[key][1] <= at]
        for key in dropped:
            shelf.num_tokens -= entries.pop(key, (0, 0.0))[0]
        self._holders.let_go(dropped, shelf.bit)

    def depths(self, keys: Sequence[int], endpoint_ids: Sequence[str]) -> list[int]:
        """For each endpoint, how many of ``keys`` it holds without a gap from the first; changes nothing.

        One look-up a key, however many endpoints there are.
        """
        shelves = [self._shelves.get(each) for each in endpoint_ids]
        return self._holders.depths(keys, [shelf.bit if shelf else 0 for shelf in shelves])

    def _evict(self, shelf: _Shelf, capacity: int) -> None:
        entries = shelf.entries
        evicted = []
        while entries and (shelf.num_tokens > capacity or len(entries) > MAX_ENTRIES):
            key, cell = entries.popitem(last=False)
            shelf.num_tokens -= cell[0]
            evicted.append(key)
        self._holders.let_go(evicted, shelf.bit)
