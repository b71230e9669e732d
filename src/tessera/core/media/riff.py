"""Which chunks lie between these offsets? The walk that WAV and AVI share.

Source: Microsoft's Multimedia Programming Interface and Data Specifications 1.0, "RIFF".
"""

from collections.abc import Iterator
from typing import NamedTuple

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window

_HEAD_BYTES = 8


class Chunk(NamedTuple):
    """One chunk: its kind and where its payload lies."""

    kind: bytes
    start: int
    """Offset of the payload."""
    end: int
    """Offset behind it, as the chunk says; beyond the content's end where that was cut off."""


def chunks(window: Window, start: int, end: int) -> Iterator[Chunk]:
    """The chunks from ``start`` to ``end``, in order; one step each, nothing of their payload is read.

    Raises:
        Unsized: the content ends inside a chunk, or a limit of the window is reached.
    """
    at = start
    while at + _HEAD_BYTES <= end:
        head = window.need(at, _HEAD_BYTES)
        length = int.from_bytes(head[4:], "little")
        yield Chunk(head[:4], at + _HEAD_BYTES, at + _HEAD_BYTES + length)
        at += _HEAD_BYTES + length + (length & 1)
    if at > window.num_bytes + 1:
        raise Unsized(Reason.TRUNCATED_HEADER)


def payload(window: Window, chunk: Chunk, at: int, length: int) -> bytes:
    """Exactly ``length`` bytes of a chunk, ``at`` bytes behind its head.

    Raises:
        Unsized: the chunk or the content ends before.
    """
    if chunk.start + at + length > chunk.end:
        raise Unsized(Reason.BAD_HEADER)
    return window.need(chunk.start + at, length)
