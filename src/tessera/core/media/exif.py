"""Which way up is the picture shown? The orientation tag in EXIF, or in XMP where EXIF has none.

The rules are those by which the engine's image library turns a picture before it is
priced: the first orientation entry of the first directory counts, and a block that
is no TIFF at all ends the search.

Source: EXIF 2.3 and TIFF 6.0; ``Image.getexif`` and ``ImageOps.exif_transpose`` of Pillow 13.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from tessera.core.media.window import Window

UPRIGHT: Final = 1
"""The orientation that asks for no rotation."""

Read = Callable[[int, int], bytes]
"""Bytes of a block by offset and length, fewer at its end."""
ByteOrder = Literal["little", "big"]

_PREFIX = b"Exif\0\0"
_MAX_PREFIXES = 2
_BYTE_ORDERS: dict[bytes, ByteOrder] = {
    b"II\x2a\0": "little",
    b"II\0\x2a": "little",
    b"MM\0\x2a": "big",
    b"MM\x2a\0": "big",
}
_TAG = 0x0112
_ENTRY_BYTES = 12
_ENTRIES_AT_ONCE = 64
_INTEGER_BYTES = {3: 2, 4: 4, 6: 1, 8: 2, 9: 4, 13: 4, 16: 8}
"""Bytes of a value, by the field types whose values are integers."""
_OTHER_TYPES = frozenset({1, 2, 5, 7, 10, 11, 12})
"""Field types that are read but give no orientation; entries of unheard types are passed over."""

_IN_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_XMP_BYTES_AT_ONCE = 8192
_XMP_OVERLAP = 20


def spans(window: Window, parts: Sequence[tuple[int, int]]) -> Read:
    """A reader of one block that lies in the content in several parts, each (offset, length)."""

    def read(offset: int, length: int) -> bytes:
        found = b""
        for start, size in parts:
            if offset < size:
                found += window.read(start + offset, min(length - len(found), size - offset))
                if len(found) == length:
                    break
            window.step()
            offset = max(0, offset - size)
        return found

    return read


def in_memory(data: bytes) -> Read:
    """A reader of a block that is at hand."""
    return lambda offset, length: data[offset : offset + length]


def orientation(exif: Read | None, xmp: Read | None) -> int:
    """The orientation that the engine will see; ``UPRIGHT`` where nothing says otherwise.

    Raises:
        Unsized: a limit of the window is reached.
    """
    found = in_exif(exif) if exif else None
    if found is None and xmp:
        found = in_xmp(xmp)
    return UPRIGHT if found is None else found


def in_exif(read: Read) -> int | None:
    """The orientation entry of an EXIF block, any integer; nothing where the block has none.

    Raises:
        Unsized: a limit of the window is reached.
    """
    start = 0
    while start < _MAX_PREFIXES * len(_PREFIX) and read(start, len(_PREFIX)) == _PREFIX:
        start += len(_PREFIX)
    head = read(start, 8)
    if not head:
        return None
    order = _BYTE_ORDERS.get(head[:4])
    if order is None or len(head) < 8:
        return UPRIGHT
    for entry in _entries(read, start + int.from_bytes(head[4:], order), order):
        if int.from_bytes(entry[:2], order) == _TAG and (value := _value(read, start, entry, order)) is not None:
            return value
    return None


def _entries(read: Read, at: int, order: ByteOrder) -> Iterator[bytes]:
    """The 12-byte entries of the directory at that offset, as far as the block goes."""
    num_entries = int.from_bytes(read(at, 2), order)
    for first in range(0, num_entries, _ENTRIES_AT_ONCE):
        length = min(_ENTRIES_AT_ONCE, num_entries - first) * _ENTRY_BYTES
        block = read(at + 2 + first * _ENTRY_BYTES, length)
        for start in range(0, len(block) - _ENTRY_BYTES + 1, _ENTRY_BYTES):
            yield block[start : start + _ENTRY_BYTES]
        if len(block) < length:
            return


def _value(read: Read, start: int, entry: bytes, order: ByteOrder) -> int | None:
    """An entry's first value; nothing where the entry does not count."""
    kind, count = int.from_bytes(entry[2:4], order), int.from_bytes(entry[4:8], order)
    if count == 0:
        return None
    if kind in _OTHER_TYPES:
        return UPRIGHT
    size = _INTEGER_BYTES.get(kind)
    if size is None:
        return None
    data = entry[8 : 8 + size]
    if size * count > 4:
        at = start + int.from_bytes(entry[8:12], order)
        data = read(at, size) if read(at + size * count - 1, 1) else b""
    return int.from_bytes(data, order) if data else None


def in_xmp(read: Read) -> int | None:
    """The first orientation that an XMP packet states, one digit.

    Raises:
        Unsized: a limit of the window is reached.
    """
    at, before = 0, b""
    while piece := read(at, _XMP_BYTES_AT_ONCE):
        if match := _IN_XMP.search(before + piece):
            return int(match[1])
        at, before = at + len(piece), piece[-_XMP_OVERLAP:]
    return None
