"""Which KV blocks does each endpoint hold, and how long a prefix of this prompt is that?

A holder is one engine: an endpoint's data-parallel rank. For each of its tiers the
index keeps the number of copies by block key, because an engine may hold a block
twice and says so once for each copy; one table over all holders answers who has a
block. Beside what engines have said stands what was only expected of a decision:
speculative entries, which end at an instant.

Memory: at most ``max_blocks`` entries of ``BYTES_PER_BLOCK`` bytes, one for each block,
holder and tier, and ``MAX_SPECULATIVE`` for each endpoint. A holder that would exceed
the bound pays with its own oldest entries.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from tessera.core.matching.holders import Holders

BYTES_PER_BLOCK: Final = 176
"""A 64-bit key and its slots in two dictionaries that have just grown: its holder's, and that of who holds it.

In a fleet of up to 500 engines; of more, blocks that several hold take a bit more for each engine.
"""
MAX_SPECULATIVE: Final = 65_536
"""Speculative entries of one endpoint."""
MAX_RANKS: Final = 64
"""Holders of one endpoint; events of further ranks are not kept."""
DEFAULT_TIERS: Final[Mapping[str, float]] = {"gpu": 1.0, "cpu": 0.8}
"""Weight of a block by the tier it lies in. Source: llm-d's ``kvCacheBackendConfigs``."""

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
class _Rank:
    """One holder."""

    bit: int
    """By which the table of holders knows it: it has a key that lies in any of its tiers."""
    tiers: dict[str, _Copies] = field(default_factory=dict)


@dataclass(slots=True)
class _Endpoint:
    ranks: dict[int, _Rank] = field(default_factory=dict)
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
        self._holders = Holders()
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
        ranks = self._endpoints.setdefault(endpoint_id, _Endpoint()).ranks
        if (holder := ranks.get(rank)) is None:
            if len(ranks) >= MAX_RANKS:
                return
            holder = ranks[rank] = _Rank(self._holders.join())
        copies = holder.tiers.setdefault(tier, {})
        stored: list[int] = []
        for key in keys:
            if (num_copies := copies.get(key)) is not None:
                copies[key] = num_copies + 1
                continue
            if self._num_blocks >= self.max_blocks:
                self._holders.hold(stored, holder.bit)
                stored.clear()
                self._evict(holder, copies)
                if not copies and self._num_blocks >= self.max_blocks:
                    break
            copies[key] = 1
            self._num_blocks += 1
            stored.append(key)
        self._holders.hold(stored, holder.bit)
        if not copies:
            self._tidy(endpoint_id)

    def remove(self, endpoint_id: str, rank: int, keys: Iterable[int], tier: str = "gpu") -> None:
        """One copy less of each block; blocks that are not there stay so."""
        holder = self._holder(endpoint_id, rank)
        copies = holder.tiers.get(tier) if holder else None
        if holder is None or copies is None:
            return
        lost: list[int] = []
        for key in keys:
            num_copies = copies.get(key, 0)
            if num_copies > 1:
                copies[key] = num_copies - 1
            elif num_copies:
                del copies[key]
                lost.append(key)
        self._lost(holder, lost)
        if not copies:
            self._tidy(endpoint_id)

    def drop(self, endpoint_id: str, rank: int, keys: Sequence[int]) -> None:
        """Every copy of each block, in every tier."""
        if (holder := self._holder(endpoint_id, rank)) is not None:
            for copies in holder.tiers.values():
                self._lost(holder, [key for key in keys if copies.pop(key, None) is not None])
            self._tidy(endpoint_id)

    def clear(self, endpoint_id: str, rank: int | None = None) -> None:
        """Forget a rank, or the endpoint with all its ranks and with what was expected of it."""
        known = self._endpoints.get(endpoint_id)
        if known is None:
            return
        for holder in [known.ranks.get(rank)] if rank is not None else known.ranks.values():
            for tier in list(holder.tiers) if holder else ():
                assert holder is not None
                self._lost(holder, holder.tiers.pop(tier))
        if rank is None or not any(holder.tiers for holder in known.ranks.values()):
            known.speculative.clear()
        self._tidy(endpoint_id)

    def holds(self, endpoint_id: str, rank: int, key: int) -> bool:
        """Whether a rank has said that it holds a block, in whichever tier."""
        holder = self._holder(endpoint_id, rank)
        return holder is not None and any(key in copies for copies in holder.tiers.values())

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

    def match(self, endpoint_ids: Sequence[str], keys: Sequence[int], at: float) -> list[BlockMatch]:
        """For each endpoint the longest contiguous prefix of ``keys`` that its best rank holds ``at`` that instant.

        One look-up a key, however many endpoints there are; more only for those that
        have several tiers, or of which something is expected.
        """
        known = [self._endpoints.get(each) for each in endpoint_ids]
        bits = [holder.bit for each in known if each for holder in each.ranks.values()]
        depths = dict(zip(bits, self._holders.depths(keys, bits), strict=True))
        return [self._match(each, depths, keys, at) if each else NO_MATCH for each in known]

    def _match(self, known: _Endpoint, depths: Mapping[int, int], keys: Sequence[int], at: float) -> BlockMatch:
        """The best rank's match, where ``depths`` says how far what it has stored reaches."""
        expected = known.speculative
        # The last to come in is the last to end.
        if expected and expected[next(reversed(expected))] <= at:
            expected = {}
        holders = list(known.ranks.values())
        if expected or len(holders) != 1 or len(holders[0].tiers) != 1:
            reaches = [(holder.tiers, depths[holder.bit]) for holder in holders] or [({}, 0)]
            return max((self._weigh(*each, expected, keys, at) for each in reaches), key=_by_weight)
        num_blocks = depths[holders[0].bit]
        (tier,) = holders[0].tiers
        return BlockMatch(num_blocks, num_blocks * self._weights[tier]) if num_blocks else NO_MATCH

    def _weigh(
        self,
        tiers: Mapping[str, _Copies],
        depth: int,
        expected: Mapping[int, float],
        keys: Sequence[int],
        at: float,
    ) -> BlockMatch:
        """One rank's match: what it has stored up to ``depth``, then what continues it, each block at its best tier."""
        held = [(weight, tiers[tier]) for tier, weight in self._weights.items() if tier in tiers]
        while depth < len(keys) and (
            expected.get(keys[depth], at) > at or any(keys[depth] in copies for _, copies in held)
        ):
            depth += 1
        left, weight = keys[:depth], 0.0
        for worth, copies in held:
            above = len(left)
            left = [key for key in left if key not in copies]
            weight += (above - len(left)) * worth
        return BlockMatch(depth, weight + len(left) * next(iter(self._weights.values()), 0.0))

    def _holder(self, endpoint_id: str, rank: int) -> _Rank | None:
        known = self._endpoints.get(endpoint_id)
        return known.ranks.get(rank) if known else None

    def _evict(self, holder: _Rank, copies: _Copies) -> None:
        oldest = list(islice(copies, len(copies) // _EVICTED_FRACTION + 1))
        for key in oldest:
            del copies[key]
        self._lost(holder, oldest)
        self.num_evicted += len(oldest)

    def _lost(self, holder: _Rank, keys: Collection[int]) -> None:
        """One of a holder's tiers has these keys no more."""
        self._num_blocks -= len(keys)
        tiers = holder.tiers.values()
        if len(tiers) > 1:
            keys = [key for key in keys if not any(key in copies for copies in tiers)]
        self._holders.let_go(keys, holder.bit)

    def _tidy(self, endpoint_id: str) -> None:
        """Leave nothing empty behind."""
        known = self._endpoints.get(endpoint_id)
        if known is None:
            return
        for rank, holder in list(known.ranks.items()):
            holder.tiers = {tier: copies for tier, copies in holder.tiers.items() if copies}
            if not holder.tiers:
                self._holders.leave(holder.bit)
                del known.ranks[rank]
        if not known.ranks and not known.speculative:
            del self._endpoints[endpoint_id]


def _by_weight(match: BlockMatch) -> float:
    return match.weight
