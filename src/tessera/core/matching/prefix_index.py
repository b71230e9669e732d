"""Which endpoint is believed to hold which keys? One bounded LRU for each endpoint, one table over all of them."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

Cell = tuple[int, float]
"""Tokens of an entry, and when it was last entered or refreshed."""

MAX_ENTRIES: Final = 1 << 18
"""Entries of one endpoint, whatever its capacity: four million tokens of text, about 50 MB."""


@dataclass(slots=True)
class _Shelf:
    """What one endpoint holds."""

    bit: int
    """Its place in the masks of the table."""
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
        self._holders: dict[int, int] = {}
        self._free_bits: list[int] = []

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
            bit = self._free_bits.pop() if self._free_bits else 1 << len(self._shelves)
            self._shelves[endpoint_id] = _Shelf(bit)

    def remove(self, endpoint_id: str) -> None:
        """Forget an endpoint and everything it held. Takes time in proportion to its entries."""
        self.clear(endpoint_id)
        if shelf := self._shelves.pop(endpoint_id, None):
            self._free_bits.append(shelf.bit)
        if not self._shelves:
            self._free_bits.clear()

    def clear(self, endpoint_id: str) -> None:
        """Forget everything an endpoint held, as when it was started anew."""
        if shelf := self._shelves.get(endpoint_id):
            for key in shelf.entries:
                self._unhold(key, shelf.bit)
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
        entries, holders, bit = shelf.entries, self._holders, shelf.bit
        # Most atoms of a prompt weigh the same: they share a cell.
        cells = {weight: (weight or 1, at) for weight in set(weights)}
        for key, weight in zip(reversed(keys), reversed(weights), strict=True):
            cell = cells[weight]
            old = entries.pop(key, None)
            if old is None:
                holders[key] = holders.get(key, 0) | bit
            else:
                shelf.num_tokens -= old[0]
            entries[key] = cell
            shelf.num_tokens += cell[0]
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
        for key in keys if shelf else ():
            assert shelf is not None
            cell = shelf.entries.get(key)
            if cell is not None and cell[1] <= at:
                del shelf.entries[key]
                shelf.num_tokens -= cell[0]
                self._unhold(key, shelf.bit)

    def depths(self, keys: Sequence[int], endpoint_ids: Sequence[str]) -> list[int]:
        """For each endpoint, how many of ``keys`` it holds without a gap from the first; changes nothing.

        One look-up a key, however many endpoints there are.
        """
        shelves = [self._shelves.get(each) for each in endpoint_ids]
        bits = [shelf.bit if shelf else 0 for shelf in shelves]
        holding, holders = reduce(or_, bits, 0), self._holders.get
        depths = {0: 0}
        depth = 0
        for key in keys:
            held = holding & holders(key, 0)
            if held != holding:
                depths |= dict.fromkeys(_bits(holding ^ held), depth)
                holding = held
                if not holding:
                    break
            depth += 1
        return [depths.get(bit, depth) for bit in bits]

    def _evict(self, shelf: _Shelf, capacity: int) -> None:
        entries = shelf.entries
        while entries and (shelf.num_tokens > capacity or len(entries) > MAX_ENTRIES):
            key, cell = entries.popitem(last=False)
            shelf.num_tokens -= cell[0]
            self._unhold(key, shelf.bit)

    def _unhold(self, key: int, bit: int) -> None:
        held = self._holders.get(key, 0) & ~bit
        if held:
            self._holders[key] = held
        else:
            self._holders.pop(key, None)


def _bits(mask: int) -> list[int]:
    """The single bits of a mask."""
    bits = []
    while mask:
        bits.append(mask & -mask)
        mask ^= bits[-1]
    return bits
