"""Which of our block keys are the blocks that an engine's events name?

Our keys are the hashes that an engine with the configured seed would publish. Where the
engine's own are the same (its first stored blocks are recomputed to see), they are taken
as they come: direct mode. Otherwise keys are chained anew from the token ids and extra
keys of the events: that works whatever the engine's seed or algorithm is, and costs a
digest for each stored block.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import islice
from typing import Final

from tessera.core.facts import KVStored
from tessera.core.matching.block_keys import BlockHasher, ExtraKeys, HashAlgorithm, block_key

MAX_CHAINED: Final = 1 << 18
"""Blocks of one engine whose keys were chained anew and are remembered, about 250 bytes each; the oldest go first."""
MAX_GROUPS: Final = 64
FULL_ATTENTION: Final = "full_attention"
LORA_PATH: Final = ""
"""Stands for an adapter's path, which events do not tell and a router does not know."""
_NUM_VERIFIED = 4
"""Blocks that are recomputed to see whether the engine hashes as we do."""
_EVICTED_FRACTION = 16


class KeyMode(StrEnum):
    """How an engine's hashes become our keys."""

    UNKNOWN = "unknown"
    """No prompt's first block was seen yet."""
    DIRECT = "direct"
    RECHAINED = "rechained"


def candidates(seed: str) -> tuple[BlockHasher, ...]:
    """One hasher for each of the engine's algorithms, likeliest first."""
    return tuple(BlockHasher(algorithm, seed) for algorithm in HashAlgorithm)


def adopted(event: KVStored, hashers: Sequence[BlockHasher]) -> BlockHasher | None:
    """The hasher by which the engine hashed these first blocks of a prompt, if it is among them."""
    return next((hasher for hasher in hashers if _agrees(event, hasher)), None)


def can_verify(event: KVStored) -> bool:
    """Whether the hashes of these blocks could be recomputed: a prompt's first, whole, without an adapter."""
    return (
        event.parent_block_hash is None
        and event.lora is None
        and bool(event.block_hashes)
        and len(event.token_ids) == len(event.block_hashes) * event.block_size
    )


class EngineKeys:
    """Our keys of one engine's blocks."""

    def __init__(self, hasher: BlockHasher, block_size: int) -> None:
        """``block_size``: tokens a block of this engine holds; events of smaller ones are of partial blocks."""
        self.mode = KeyMode.UNKNOWN
        self.block_size = block_size
        self.num_unkeyed = 0
        """Stored blocks that got no key: the block before them is unknown, or an extra key is."""
        self._hasher = hasher
        self._digests: dict[int, bytes] = {}
        """Our whole hash by the engine's, of blocks that were chained anew."""
        self._dropped: list[int] = []
        self._foreign_groups: set[int | None] = set()

    def stored(self, event: KVStored) -> Sequence[int]:
        """Our keys of the blocks that are stored, as far as they have any."""
        if event.attention not in {None, FULL_ATTENTION}:
            if len(self._foreign_groups) < MAX_GROUPS:
                self._foreign_groups.add(event.group)
            return ()
        if event.block_size != self.block_size:
            return ()
        if self.mode is KeyMode.UNKNOWN and can_verify(event):
            self.mode = KeyMode.DIRECT if _agrees(event, self._hasher) else KeyMode.RECHAINED
        if self.mode is KeyMode.DIRECT and event.lora is None:
            return event.block_hashes
        if event.token_ids:
            return self._rechained(event)
        # A further tier of blocks that are known.
        return [key for each in event.block_hashes if (key := self.key_of(each)) is not None]

    @property
    def is_direct(self) -> bool:
        """Whether every hash of the engine is a key."""
        return self.mode is KeyMode.DIRECT and not self._digests

    def is_foreign(self, group: int | None) -> bool:
        """Whether a KV cache group holds something else than every token of a prompt."""
        return group in self._foreign_groups

    def key_of(self, block_hash: int) -> int | None:
        """Our key of a stored block, if it has one."""
        if (digest := self._digests.get(block_hash)) is not None:
            return block_key(digest)
        return block_hash if self.mode is KeyMode.DIRECT else None

    def forget(self, block_hash: int) -> None:
        """No copy of a block is left."""
        self._digests.pop(block_hash, None)

    def take_dropped(self) -> list[int]:
        """Keys of blocks that were forgotten for the bound since this was last asked."""
        dropped, self._dropped = self._dropped, []
        return dropped

    def _rechained(self, event: KVStored) -> list[int]:
        parent = None
        if event.parent_block_hash is not None:
            parent = self._digests.get(event.parent_block_hash)
        is_whole = len(event.token_ids) == len(event.block_hashes) * event.block_size
        if not is_whole or (parent is None and event.parent_block_hash is not None):
            self.num_unkeyed += len(event.block_hashes)
            return []
        extra_keys, num_known = tagged(event)
        ids = event.token_ids[: num_known * event.block_size]
        hashes = self._hasher.hashes(ids, event.block_size, extra_keys, parent)
        self.num_unkeyed += len(event.block_hashes) - num_known
        self._digests.update(zip(event.block_hashes, hashes, strict=False))
        if (over := len(self._digests) - MAX_CHAINED) > 0:
            for each in list(islice(self._digests, over + MAX_CHAINED // _EVICTED_FRACTION)):
                self._dropped.append(block_key(self._digests.pop(each)))
        return list(map(block_key, hashes))


def tagged(event: KVStored) -> tuple[Mapping[int, ExtraKeys], int]:
    """The blocks' extra keys as they are hashed, and for how many blocks, from the first, they are known.

    On the wire they have no tags: a media key is a pair and embeddings are bytes, but an
    adapter's name and a salt are both text. The adapter's name is the event's; a salt
    stands only in a prompt's first block. Any other key is of a kind that we do not know.
    """
    blocks = event.extra_keys
    if blocks is None:
        blocks = (None,) * len(event.block_hashes)
    found: dict[int, ExtraKeys] = {}
    for index, block in enumerate(blocks):
        is_first = event.parent_block_hash is None and index == 0
        keys = tuple(_tagged(block or (), event.lora, is_first=is_first))
        if None in keys:
            return found, index
        if keys:
            found[index] = keys  # type: ignore[assignment]
    return found, min(len(blocks), len(event.block_hashes))


def _tagged(block: Iterable[object], lora: str | None, *, is_first: bool) -> Iterator[object]:
    keys = list(block)
    if lora is not None:
        yield ("lora", lora, LORA_PATH)
        if keys and keys[0] == lora:
            del keys[0]
    for key in keys:
        if isinstance(key, tuple):
            yield ("mm", *key)
        elif isinstance(key, bytes):
            yield ("prompt_embeds", key)
        elif isinstance(key, str) and is_first:
            yield ("cache_salt", key)
        else:
            yield None


def _agrees(event: KVStored, hasher: BlockHasher) -> bool:
    extra_keys, num_known = tagged(event)
    num_blocks = min(num_known, _NUM_VERIFIED)
    hashes = hasher.hashes(event.token_ids[: num_blocks * event.block_size], event.block_size, extra_keys)
    return num_blocks > 0 and tuple(map(block_key, hashes)) == event.block_hashes[:num_blocks]
