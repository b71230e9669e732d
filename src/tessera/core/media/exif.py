"""Which way up is the picture shown? The orientation tag in EXIF, or in XMP where EXIF has none.

The rules are those by which the engine's image library turns a picture before it is
priced: the first orientation entry of the first directory counts, and a block that
is no TIFF at all ends the search.

Source: EXIF 2.3 and TIFF 6.0; ``Image.getexif`` and ``ImageOps.exif_transpose`` of Pillow 13.
"""

import re
from collections.abc import Sequence
from typing import Final

from tessera.core.media.ifd import BIGTIFF, LAYOUTS, Read, entries, integer
from tessera.core.media.window import Window

UPRIGHT: Final = 1
"""The orientation that asks for no rotation."""
ORIENTATION: Final = 0x0112
"""The tag that says which way up the picture is shown."""

_PREFIX = b"Exif\0\0"
_MAX_PREFIXES = 2
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
    layout = LAYOUTS.get(head[:4])
    if layout is None or layout is BIGTIFF or len(head) < 8:
        return UPRIGHT
    for entry in entries(read, start + int.from_bytes(head[4:], layout.order), layout):
        if entry.tag == ORIENTATION and (value := integer(read, start, entry, layout)) is not None:
            return value or UPRIGHT
    return None


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
