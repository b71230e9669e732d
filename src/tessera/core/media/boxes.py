"""Which boxes lie between these offsets? The walk that AVIF, JPEG 2000 and every other ISO file share.

Source: ISO/IEC 14496-12 section 4.2 (ISO base media file format); ISO/IEC 15444-1 annex I.4.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window


class Box(NamedTuple):
    """One box: its kind and where its payload lies."""

    kind: bytes
    start: int
    """Offset of the payload."""
    end: int
    """Offset behind it; beyond the content's end where that was cut off."""


def boxes(window: Window, start: int, end: int) -> Iterator[Box]:
    """The boxes from ``start`` to ``end``, in order; one step each, nothing of their payload is read.

    A length of zero means "up to ``end``".

    Raises:
        Unsized: the content ends before ``end`` or inside the last box, a box is
            shorter than its own head or longer than what holds it, a limit of the
            window is reached.
    """
    at = start
    while at < end:
        if at > window.num_bytes:
            raise Unsized(Reason.TRUNCATED_HEADER)
        head = window.need(at, 8)
        kind, length, head_bytes = head[4:], int.from_bytes(head[:4], "big"), 8
        if length == 1:
            head_bytes = 16
            length = int.from_bytes(window.need(at + 8, 8), "big")
        elif length == 0:
            length = end - at
        is_inside = at + length <= end
        if length < head_bytes or (not is_inside and end < window.num_bytes):
            raise Unsized(Reason.BAD_HEADER)
        yield Box(kind, at + head_bytes, at + length)
        at += length
    if at > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
