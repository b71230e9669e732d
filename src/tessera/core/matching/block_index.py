"""Which KV blocks does each endpoint hold, and how long a prefix of this prompt is that?

A holder is one engine: an endpoint's data-parallel rank. For each of its tiers the
index keeps the number of copies by block key, because an engine may hold a block
twice and says so once for each copy. Beside what engines have said stands what was
only expected of a decision: speculative entries, which end at an instant.

Memory: at most ``max_blocks`` entries of about ``BYTES_PER_BLOCK`` bytes, one for each
block, holder and tier, and ``MAX_SPECULATIVE`` for each endpoint. A holder that would
exceed the bound pays with its own oldest entries.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

BYTES_PER_BLOCK: Final = 160
"""A slot of a dictionary that has just grown, and a 64-bit key."""
MAX_SPECULATIVE: Final = 65_536
"""Speculative entries of one endpoint."""
MAX_RANKS: Final = 64
"""Holders of one endpoint; events of further ranks are not kept."""
DEFAULT_TIERS: Final[Mapping[str, float]] = {"gpu": 1.0, "cpu": 0.8}
"""Weight of a block by the tier it lies in. Source: llm-d's ``kvCacheBackendConfigs``."""

_SLICE = 64
_EVICTED_FRACTION = 16
"""One sixteenth of a holder's tier goes at a time: taking the oldest one by one would pass over the gaps each time."""


@dataclass(frozen=True, slots=True)
class BlockMatch:
    """The longest contiguous prefix of a prompt's blocks that one endpoint holds."""

    num_blocks: int = 0
    weight: float = 0.0
    """Each block at the weight of its best tier; ``num_blocks`` where all lie in the best."""


NO_MATCH = BlockMatch()
_Copies = dict[int, int]
"""Copies by block key, oldest first."""


@dataclass(slots=True)
class _Endpoint:
    ranks: dict[int, dict[str, _Copies]] = field(default_factory=dict)
    speculative: dict[int, float] = field(default_factory=dict)
    """The instant at which each key ends, in the order of insertion."""


class BlockIndex:
    """Block keys by endpoint; bounded."""

    def __init__(self, *, tiers: Mapping[str, float] = DEFAULT_TIERS, max_blocks: int = 1 << 23) -> None:
        """``tiers``: weights in 0..1; blocks of other tiers are not kept. ``max_blocks``: at least 1."""
        self._weights = dict(sorted(tiers.items(), key=lambda each: -each[1]))
        self.max_blocks = max_blocks
        """Entries at most."""
        self._endpoints: dict[str, _Endpoint] = {}
        self._num_blocks = 0
        self.num_evicted = 0
        """Entries given up for the bound."""

    @property
    def num_blocks(self) -> int:
        """Entries: one for each block, holder and tier."""
        return self._num_blocks

    @property
    def num_endpoints(self) -> int:
        """Endpoints of which anything is known."""
        return len(self._endpoints)

    def store(self, endpoint_id: str, rank: int, keys: Iterable[int], tier: str = "gpu") -> None:
        """One more copy of each block."""
        if tier not in self._weights:
            return
        known = self._endpoints.setdefault(endpoint_id, _Endpoint())
        if rank not in known.ranks and len(known.ranks) >= MAX_RANKS:
            return
        copies = known.ranks.setdefault(rank, {}).setdefault(tier, {})
        for key in keys:
            if (num_copies := copies.get(key)) is not None:
                copies[key] = num_copies + 1
                continue
            if self._num_blocks >= self.max_blocks:
                self._evict(copies)
                if not copies and self._num_blocks >= self.max_blocks:
                    break
            copies[key] = 1
            self._num_blocks += 1
        self._tidy(endpoint_id, rank, tier)

    def remove(self, endpoint_id: str, rank: int, keys: Iterable[int], tier: str = "gpu") -> None:
        """One copy less of each block; blocks that are not there stay so."""
        known = self._endpoints.get(endpoint_id)
        copies = known.ranks.get(rank, {}).get(tier) if known else None
        if copies is None:
            return
        for key in keys:
            num_copies = copies.get(key, 0)
            if num_copies > 1:
                copies[key] = num_copies - 1
            elif num_copies:
                del copies[key]
                self._num_blocks -= 1
        self._tidy(endpoint_id, rank, tier)

    def drop(self, endpoint_id: str, rank: int, keys: Sequence[int]) -> None:
        """Every copy of each block, in every tier."""
        known = self._endpoints.get(endpoint_id)
        for tier, copies in list(known.ranks.get(rank, {}).items()) if known else ():
            self._num_blocks -= sum(copies.pop(key, None) is not None for key in keys)
            self._tidy(endpoint_id, rank, tier)

    def clear(self, endpoint_id: str, rank: int | None = None) -> None:
        """Forget a rank, or the endpoint with all its ranks and with what was expected of it."""
        known = self._endpoints.get(endpoint_id)
        if known is None:
            return
        for each in [rank] if rank is not None else list(known.ranks):
            self._num_blocks -= sum(map(len, known.ranks.pop(each, {}).values()))
        if rank is None or not known.ranks:
            known.speculative.clear()
            del self._endpoints[endpoint_id]

    def holds(self, endpoint_id: str, rank: int, key: int) -> bool:
        """Whether a rank has said that it holds a block, in whichever tier."""
        known = self._endpoints.get(endpoint_id)
        return known is not None and any(key in copies for copies in known.ranks.get(rank, {}).values())

    def speculate(self, endpoint_id: str, keys: Iterable[int], *, at: float, until: float) -> None:
        """Expect an endpoint to hold blocks until an instant, because a request was sent there ``at``.

        ``until`` never lies before that of an earlier call.
        """
        known = self._endpoints.setdefault(endpoint_id, _Endpoint())
        expected = known.speculative
        for key in keys:
            expected.pop(key, None)
            expected[key] = until
        over = len(expected) - MAX_SPECULATIVE
        ended = 0
        for ends_at in expected.values():
            if ends_at > at and ended >= over:
                break
            ended += 1
        for key in list(islice(expected, ended)):
            del expected[key]
        if not expected and not known.ranks:
            del self._endpoints[endpoint_id]

    def match(self, endpoint_id: str, keys: Sequence[int], at: float) -> BlockMatch:
        """The longest contiguous prefix of ``keys`` that the endpoint holds ``at`` that instant: its best rank's."""
        known = self._endpoints.get(endpoint_id)
        if known is None or not keys:
            return NO_MATCH
        ranks = list(known.ranks.values())
        expected = known.speculative
        # The last to come in is the last to end.
        if expected and expected[next(reversed(expected))] > at:
            return max((self._match(tiers, expected, keys, at) for tiers in ranks or [{}]), key=_by_weight)
        if not ranks:
            return NO_MATCH
        if len(ranks) == 1 and len(ranks[0]) == 1:
            ((tier, copies),) = ranks[0].items()
            num_blocks = _prefix(copies, keys)
            return BlockMatch(num_blocks, num_blocks * self._weights[tier]) if num_blocks else NO_MATCH
        return max((self._match(tiers, {}, keys, at) for tiers in ranks), key=_by_weight)

    def _match(
        self, tiers: Mapping[str, _Copies], speculative: Mapping[int, float], keys: Sequence[int], at: float
    ) -> BlockMatch:
        held = [(weight, tiers[tier]) for tier, weight in self._weights.items() if tier in tiers]
        best = next(iter(self._weights.values()), 0.0)
        counts = [0] * (len(held) + 1)
        for key in keys:
            for place, (_, copies) in enumerate(held):
                if key in copies:
                    counts[place] += 1
                    break
            else:
                if speculative.get(key, at) <= at:
                    break
                counts[-1] += 1
        weights = [weight for weight, _ in held] + [best]
        return BlockMatch(sum(counts), sum(n * weight for n, weight in zip(counts, weights, strict=True)))

    def _evict(self, copies: _Copies) -> None:
        oldest = list(islice(copies, len(copies) // _EVICTED_FRACTION + 1))
        for key in oldest:
            del copies[key]
        self._num_blocks -= len(oldest)
        self.num_evicted += len(oldest)

    def _tidy(self, endpoint_id: str, rank: int, tier: str) -> None:
        """Leave nothing empty behind."""
        known = self._endpoints.get(endpoint_id)
        if known is None:
            return
        tiers = known.ranks.get(rank)
        if tiers is not None and not tiers.get(tier, True):
            del tiers[tier]
        if tiers is not None and not tiers:
            del known.ranks[rank]
        if not known.ranks and not known.speculative:
            del self._endpoints[endpoint_id]


def _prefix(copies: _Copies, keys: Sequence[int]) -> int:
    # A slice at a time, inside the interpreter: twice as fast as a loop over the keys.
    for start in range(0, len(keys), _SLICE):
        held = list(map(copies.__contains__, keys[start : start + _SLICE]))
        if False in held:
            return start + held.index(False)
    return len(keys)


def _by_weight(match: BlockMatch) -> float:
    return match.weight
