"""How large is a TIFF? The first directory's width and length, turned as its orientation says.

The directory may stand anywhere, of a BigTIFF too. Where it has no orientation,
the one in its XMP packet counts. A big-endian BigTIFF is refused: the engine's image
library takes it for a TIFF, whose directory would lie at 524,288.

Source: TIFF 6.0; ``TiffImagePlugin`` of Pillow 13, which turns the picture when it loads it.
"""

from typing import Final

from tessera.core.media.exif import ORIENTATION, UPRIGHT, in_xmp, spans
from tessera.core.media.ifd import BIGTIFF, LAYOUTS, Entry, Layout, entries, integer
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import Window

NAME: Final = "tiff"
MAX_STEPS: Final = 256
"""Steps in one file: at most 16 reads for entries, 4 for values, and XMP in pieces."""

_BIG_ENDIAN_BIGTIFF = b"MM\0\x2b\0\x08\0\0"
_WIDTH, _LENGTH, _XMP = 0x0100, 0x0101, 0x02BC
_WANTED = frozenset({_WIDTH, _LENGTH, ORIENTATION})
_BYTES = frozenset({1, 7})
"""Field types whose values are bytes."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a TIFF or a BigTIFF."""
    return first_bytes[:4] in LAYOUTS


def size(window: Window) -> Size:
    """The size of the first page as displayed.

    Values elsewhere in the file are passed over from where they add up to more than the file.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    head = window.need(0, 8)
    if head == _BIG_ENDIAN_BIGTIFF:
        raise Unsized(Reason.REFUSED_FORMAT)
    layout = LAYOUTS[head[:4]]
    at = 8 if layout is BIGTIFF else 4
    directory = int.from_bytes(window.need(at, layout.offset_bytes), layout.order)
    if directory == 0:
        raise Unsized(Reason.BAD_HEADER)
    values, xmp, num_bytes_elsewhere = dict[int, int](), None, 0
    for entry in entries(window.need, directory, layout):
        if entry.num_bytes > layout.offset_bytes:
            num_bytes_elsewhere += entry.num_bytes
            if num_bytes_elsewhere > window.num_bytes:
                continue
        if entry.tag in _WANTED and entry.tag not in values:
            value = integer(window.need, 0, entry, layout)
            if value is not None:
                values[entry.tag] = value
        elif entry.tag == _XMP and entry.kind in _BYTES:
            xmp = xmp or entry
    width, length = values.get(_WIDTH, 0), values.get(_LENGTH, 0)
    check_sides(width, length)
    turn = values.get(ORIENTATION)
    if turn is None and xmp:
        turn = _in_xmp(window, xmp, layout)
    return displayed(width, length, UPRIGHT if turn is None else turn)


def _in_xmp(window: Window, entry: Entry, layout: Layout) -> int | None:
    if entry.num_bytes <= layout.offset_bytes:
        return None
    start = int.from_bytes(entry.field, layout.order)
    if start + entry.num_values > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
    return in_xmp(spans(window, [(start, entry.num_values)]))
