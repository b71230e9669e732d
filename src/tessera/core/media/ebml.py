"""Which elements lie between these offsets? The walk through a Matroska file, and the values that it is made of.

Source: RFC 8794 (Extensible Binary Meta Language).
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window

_HEAD_BYTES = 20
_MAX_ID_BYTES, _MAX_SIZE_BYTES = 4, 8


class Element(NamedTuple):
    """One element: its id, length marker included, and where its data lie."""

    id: int
    start: int
    end: int | None
    """Nothing where the size is not known."""
    first_bytes: bytes
    """Its first data: all of a number, which has 8 bytes at most."""


def element_at(window: Window, at: int) -> Element:
    """The element that begins there; one step.

    Raises:
        Unsized: none does, the content ends, or a limit is reached.
    """
    head = window.read(at, _HEAD_BYTES)
    # The number of leading zeros of a first byte is that of the bytes that follow it.
    id_bytes = 9 - head[0].bit_length() if head else 1
    size_bytes = 9 - head[id_bytes].bit_length() if id_bytes < len(head) else 1
    if id_bytes > _MAX_ID_BYTES or size_bytes > _MAX_SIZE_BYTES:
        raise Unsized(Reason.BAD_HEADER)
    start = id_bytes + size_bytes
    if len(head) < start:
        raise Unsized(Reason.TRUNCATED_HEADER)
    unknown = (1 << 7 * size_bytes) - 1
    size = int.from_bytes(head[id_bytes:start], "big") & unknown
    end = None if size == unknown else at + start + size
    return Element(int.from_bytes(head[:id_bytes], "big"), at + start, end, head[start : start + size])


def elements(window: Window, start: int, end: int | None) -> Iterator[Element]:
    """The elements from ``start`` to ``end``, in order, a step each; one of unknown size is the last.

    An element that goes beyond the content is still told of; the error comes behind it.

    Raises:
        Unsized: there is no ``end``, the content ends before it, an element ends
            behind it, or a limit is reached.
    """
    if end is None:
        raise Unsized(Reason.BAD_HEADER)
    at = start
    while at < end:
        if at > window.num_bytes:
            raise Unsized(Reason.TRUNCATED_HEADER)
        element = element_at(window, at)
        if element.end is not None and end < min(element.end, window.num_bytes):
            raise Unsized(Reason.BAD_HEADER)
        yield element
        if element.end is None:
            return
        at = element.end
    if at > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)


def values(window: Window, outer: Element) -> dict[int, bytes]:
    """The first bytes of what lies directly inside, by id; of several with one id the first.

    Raises:
        Unsized: as ``elements`` does.
    """
    found: dict[int, bytes] = {}
    for element in elements(window, outer.start, outer.end):
        found.setdefault(element.id, element.first_bytes)
    return found


def integer(data: bytes | None, default: int) -> int:
    """An unsigned number; ``default`` where it is absent."""
    return default if data is None else int.from_bytes(data[:8], "big")


def real(data: bytes | None, default: float) -> float:
    """A floating-point number of 4 or 8 bytes; ``default`` where it is absent or of another length."""
    form = {4: ">f", 8: ">d"}.get(len(data or b""))
    return float(struct.unpack(form, data)[0]) if form and data else default
