"""What does the engine call the KV blocks of this prompt? vLLM's block hashes, from token ids.

``H(i) = f((H(i-1), token ids of block i, extra keys or None))``, where ``H(-1) =
f(seed)`` and ``f`` is a digest of a serialisation. Only full blocks have a hash. A
prompt that shares a prefix with another shares the hashes of the prefix's blocks.

Source: vLLM 0.32, ``vllm/v1/core/kv_cache_utils.py`` and ``vllm/utils/hashing.py``.
"""

import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from hashlib import sha256
from struct import iter_unpack, pack
from typing import Final, Literal

from tessera.core.media.digests import digest_128

PICKLE_PROTOCOL: Final = 5
MAX_MEDIA_BLOCKS: Final = 1 << 20
"""Pairs of a media item and a block it lies in, of one prompt; what is beyond has no keys."""
_TABLE_MIDDLE: Final = 1 << 16
_TABLE_IDS: Final = 1 << 18
_KEY_BYTES = 8

MediaKey = tuple[Literal["mm"], str, int]
"""An item's identifier, and its offset from the block's start (negative where it began in an earlier block)."""
LoraKey = tuple[Literal["lora"], str, str]
"""An adapter's name and path."""
SaltKey = tuple[Literal["cache_salt"], str]
EmbedsKey = tuple[Literal["prompt_embeds"], bytes]
ExtraKeys = tuple[MediaKey | LoraKey | SaltKey | EmbedsKey, ...]
"""What distinguishes a block beside its token ids: LoRA, media, salt, embeddings, in this order."""
NO_EXTRA_KEYS: Mapping[int, ExtraKeys] = {}


class HashAlgorithm(StrEnum):
    """vLLM's ``--prefix-caching-hash-algo``."""

    SHA256 = "sha256"
    """SHA-256 of pickle; vLLM's default."""
    SHA256_CBOR = "sha256_cbor"
    XXHASH = "xxhash"
    """xxh3, 128 bits, of pickle."""
    XXHASH_CBOR = "xxhash_cbor"


DEFAULT_SEED: Final = "vllm-none-hash"
"""What the chain begins with where the engine runs without PYTHONHASHSEED. For ``xxhash`` and
``xxhash_cbor`` the engine draws a random seed then, and nobody can know it."""


@dataclass(frozen=True, slots=True)
class MediaSpan:
    """Where a media item's placeholder tokens lie in a prompt."""

    identifier: str
    """What the engine calls the item."""
    offset: int
    """Index of the first token of its placeholder."""
    num_tokens: int


class BlockHasher:
    """Computes an engine's block hashes; immutable, thread-safe."""

    __slots__ = ("_digest", "_is_cbor", "algorithm", "none_hash")

    def __init__(self, algorithm: HashAlgorithm = HashAlgorithm.SHA256, seed: str = "") -> None:
        """``seed`` is the engine's PYTHONHASHSEED; empty where it has none."""
        self.algorithm = algorithm
        self._is_cbor = algorithm in {HashAlgorithm.SHA256_CBOR, HashAlgorithm.XXHASH_CBOR}
        is_sha = algorithm in {HashAlgorithm.SHA256, HashAlgorithm.SHA256_CBOR}
        self._digest: Callable[[bytes], bytes] = _sha256 if is_sha else digest_128
        text = seed or DEFAULT_SEED
        self.none_hash = self._digest(_text(text) if self._is_cbor else pickle.dumps(text, protocol=PICKLE_PROTOCOL))

    def hashes(
        self,
        token_ids: Sequence[int],
        block_size: int,
        extra_keys: Mapping[int, ExtraKeys] = NO_EXTRA_KEYS,
        parent: bytes | None = None,
    ) -> list[bytes]:
        """One hash for each full block: 32 bytes, or 16 of xxh3.

        Args:
            token_ids: the prompt's, or what follows ``parent``.
            block_size: tokens a block holds, at least 1.
            extra_keys: by block index, for the blocks that have any.
            parent: the hash of the block before the first; nothing at a prompt's start.

        Raises:
            OverflowError: an id that is no 64-bit integer.
        """
        ids = tuple(token_ids)
        last = parent or self.none_hash
        if self._is_cbor:
            return self._cbor_hashes(ids, block_size, extra_keys, last)
        digest, dumps, hashes = self._digest, pickle.dumps, list[bytes]()
        for index, end in enumerate(range(block_size, len(ids) + 1, block_size)):
            extra = extra_keys.get(index) if extra_keys else None
            # A tuple's slice is a new object and so is each digest: pickle remembers objects, not values.
            last = digest(dumps((last, ids[end - block_size : end], extra), PICKLE_PROTOCOL))
            hashes.append(last)
        return hashes

    def _cbor_hashes(
        self, ids: tuple[int, ...], block_size: int, extra_keys: Mapping[int, ExtraKeys], last: bytes
    ) -> list[bytes]:
        digest, join, hashes = self._digest, b"".join, list[bytes]()
        triple, ids_head, hash_head = _head(4, 3), _head(4, block_size), _head(2, len(last))
        encoded = _integers(ids)
        for index, end in enumerate(range(block_size, len(ids) + 1, block_size)):
            extra = extra_keys.get(index) if extra_keys else None
            body = join(encoded[end - block_size : end])
            tail = _NULL if extra is None else _extra_keys(extra)
            last = digest(join((triple, hash_head, last, ids_head, body, tail)))
            hashes.append(last)
        return hashes


def block_key(block_hash: bytes | int) -> int:
    """The 64 bits by which an index knows a block: what the engine publishes unless told otherwise.

    >>> block_key(bytes(31) + b"\\x07")
    7
    """
    if isinstance(block_hash, int):
        return block_hash
    return int.from_bytes(block_hash[-_KEY_BYTES:], "big")


def extra_keys_of(
    spans: Sequence[MediaSpan],
    num_blocks: int,
    block_size: int,
    *,
    lora: tuple[str, str] | None = None,
    cache_salt: str | None = None,
) -> dict[int, ExtraKeys]:
    """The extra keys of a prompt's blocks, by index of the block; blocks without any are left out.

    Args:
        spans: media in prompt order.
        num_blocks: full blocks of the prompt.
        block_size: tokens a block holds.
        lora: name and path of the adapter.
        cache_salt: goes into the first block, and so into every hash.
    """
    media: dict[int, list[MediaKey]] = {}
    left = MAX_MEDIA_BLOCKS
    for span in spans:
        first = span.offset // block_size
        last = min(num_blocks - 1, (span.offset + span.num_tokens - 1) // block_size, first + left - 1)
        for index in range(first, last + 1):
            keys = media.setdefault(index, [])
            identifier = _own_object(span.identifier) if keys else span.identifier
            keys.append(("mm", identifier, span.offset - index * block_size))
        left -= max(0, last + 1 - first)
    keys_of: dict[int, ExtraKeys] = {index: tuple(keys) for index, keys in media.items()}
    if lora is not None:
        for index in range(num_blocks):
            keys_of[index] = (("lora", *lora), *keys_of.get(index, ()))
    if cache_salt and num_blocks:
        keys_of[0] = (*keys_of.get(0, ()), ("cache_salt", cache_salt))
    return keys_of


def _own_object(identifier: str) -> str:
    # An engine gets its items over a wire, each with a string of its own, and pickle writes
    # one object that comes twice otherwise than two that are equal.
    return identifier.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


def _sha256(data: bytes) -> bytes:
    return sha256(data).digest()


_NULL = b"\xf6"


def _integers(ids: tuple[int, ...]) -> list[bytes]:
    """Each id in CBOR."""
    if not ids or min(ids) < 0 or max(ids) >= _TABLE_IDS:
        return [_value(number) for number in ids]
    return list(map(_table().__getitem__, ids))


@cache
def _table() -> list[bytes]:
    """CBOR of every id that a vocabulary has, about 12 MB; made when CBOR is first asked for."""
    small = [_head(0, number) for number in range(256)]
    middle = pack(f">{_TABLE_MIDDLE}H", *range(_TABLE_MIDDLE))
    large = pack(f">{_TABLE_IDS - _TABLE_MIDDLE}I", *range(_TABLE_MIDDLE, _TABLE_IDS))
    table = small + [b"\x19" + half for (half,) in iter_unpack("2s", middle[512:])]
    return table + [b"\x1a" + word for (word,) in iter_unpack("4s", large)]


def _head(major: int, number: int) -> bytes:
    """CBOR's major type and its number in the shortest form (RFC 8949, section 4.2.1)."""
    if number < 24:
        return bytes((major << 5 | number,))
    for code, num_bytes in ((24, 1), (25, 2), (26, 4)):
        if number < 1 << 8 * num_bytes:
            return bytes((major << 5 | code,)) + number.to_bytes(num_bytes, "big")
    return bytes((major << 5 | 27,)) + number.to_bytes(8, "big")


def _text(text: str) -> bytes:
    data = text.encode("utf-8", "surrogatepass")
    return _head(3, len(data)) + data


def _value(value: str | bytes | int) -> bytes:
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    return _head(0, value) if value >= 0 else _head(1, -1 - value)


def _extra_keys(extra: ExtraKeys) -> bytes:
    pieces = [_head(4, len(extra))]
    for key in extra:
        pieces.append(_head(4, len(key)))
        pieces += [_value(each) for each in key]
    return b"".join(pieces)
