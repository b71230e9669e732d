"""What are 64 or 128 bits that stand for this content? The one place that hashes with xxh3.

Digests serve our own indexes. They are no defence against somebody who looks for
collisions on purpose: whoever may send requests to the same model can make two
texts that we take for one, and gains a wrong guess of what is cached where.
"""

import struct
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain
from typing import Final

from xxhash import xxh3_64_digest, xxh3_128, xxh3_128_digest

CHUNK_BYTES: Final = 64
"""Text that one digest stands for."""
CHUNK_IDS: Final = 16
"""Token ids that one digest stands for."""
MAX_DIGESTS: Final = 16_384
"""Digests of one run: 1 MiB of text, or 262,144 token ids. What follows has no digest."""

_ID_MASK = (1 << 64) - 1
_ID_BYTES = 8
_BATCH = 64
"""Chunks that one tuple holds; the ``struct`` module would keep a format as long as the text."""
_HASH_CHARS = 1 << 20


def text_digests(data: bytes) -> bytes:
    """One xxh3 64-bit digest for each 64-byte chunk of a run of text, 8 little-endian bytes each.

    Chunks are cut from the start of the run; the rest is a last, shorter chunk.
    Nothing for nothing; at most ``MAX_DIGESTS``.

    >>> len(text_digests(b"x" * 65))
    16
    """
    return _digests(data[: MAX_DIGESTS * CHUNK_BYTES], CHUNK_BYTES)


def token_digests(ids: Sequence[int]) -> bytes:
    """One xxh3 64-bit digest for each 16 token ids, 8 little-endian bytes each.

    An id counts as 8 little-endian bytes, modulo 2^64. The last group may be
    shorter. Nothing for nothing; at most ``MAX_DIGESTS``.

    >>> token_digests([-1]) == token_digests([2**64 - 1])
    True
    """
    ids = ids[: MAX_DIGESTS * CHUNK_IDS]
    try:
        data = struct.pack(f"<{len(ids)}Q", *ids)
    except struct.error:
        data = struct.pack(f"<{len(ids)}Q", *(number & _ID_MASK for number in ids))
    return _digests(data, CHUNK_IDS * _ID_BYTES)


_UNPACKERS = {size: struct.Struct(f"{size}s" * _BATCH) for size in (CHUNK_BYTES, CHUNK_IDS * _ID_BYTES)}


def _digests(data: bytes, size: int) -> bytes:
    unpacker = _UNPACKERS[size]
    whole = len(data) - len(data) % unpacker.size
    batched = chain.from_iterable(unpacker.iter_unpack(memoryview(data)[:whole]))
    rest = (data[at : at + size] for at in range(whole, len(data), size))
    digests = array("Q", b"".join(map(xxh3_64_digest, chain(batched, rest))))
    # xxh3's canonical bytes are big-endian, whatever the machine.
    digests.byteswap()
    return digests.tobytes()


class ContentHash:
    """The xxh3 128-bit hash of content that comes in pieces."""

    __slots__ = ("_state",)

    def __init__(self) -> None:
        self._state = xxh3_128()

    def update(self, data: bytes | memoryview, /) -> None:
        """Take the next bytes."""
        self._state.update(data)

    def hexdigest(self) -> str:
        """32 lower-case hexadecimal digits."""
        return self._state.hexdigest()


def text_hash(text: str) -> str:
    """The xxh3 128-bit hash of the UTF-8 bytes of any string, as 32 hexadecimal digits."""
    state = xxh3_128()
    for at in range(0, len(text), _HASH_CHARS):
        state.update(text[at : at + _HASH_CHARS].encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def digest_128(data: bytes) -> bytes:
    """The xxh3 128-bit digest, 16 bytes, big-endian: what vLLM's ``xxhash`` block hashes are made of."""
    return xxh3_128_digest(data)


def chain_seed(*names: str) -> bytes:
    """8 bytes that stand for these names in this order: what a chain of keys starts from.

    >>> chain_seed("ab", "c") == chain_seed("a", "bc")
    False
    """
    encoded = [name.encode("utf-8", "surrogatepass") for name in names]
    return xxh3_64_digest(b"".join(struct.pack("<Q", len(each)) + each for each in encoded))


def chain_keys(seed: bytes, pieces: Iterable[bytes]) -> list[int]:
    """One 64-bit key for each piece, which stands for it and for everything before it, ``seed`` included.

    ``key(k) = xxh3_64(key(k-1), piece(k))``.

    >>> chain_keys(b"12345678", [b"a", b"b"])[0] == chain_keys(b"12345678", [b"a", b"c"])[0]
    True
    """
    keys = list(accumulate(pieces, lambda key, piece: xxh3_64_digest(key + piece), initial=seed))[1:]
    return list(struct.unpack(f">{len(keys)}Q", b"".join(keys)))
