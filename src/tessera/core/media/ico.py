"""How large is an icon file? As large as the picture inside its largest entry.

The directory says which entry is the largest: most pixels, of these the fewest
bits a pixel, of these the first. The picture itself, a PNG or a bitmap with a mask
below it (so twice as high as it looks), says how large it is.

Source: Microsoft's ICONDIR and ICONDIRENTRY; ``IcoImagePlugin`` of Pillow 13, which loads that entry.
"""

from typing import Final

from tessera.core.media import bmp, png
from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

NAME: Final = "ico"
MAX_ENTRIES: Final = 256
"""Icons that are compared; real files have about ten."""

_MAGIC = b"\0\0\1\0"
_HEADER_BYTES = 6
_ENTRY_BYTES = 16
_PNG_HEAD_BYTES = 24


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an icon file."""
    return first_bytes.startswith(_MAGIC)


def size(window: Window) -> Size:
    """The size of the largest icon.

    Raises:
        Unsized: the header says none.
    """
    at = _largest(window)
    if png.matches(head := window.read(at, _PNG_HEAD_BYTES)):
        head = window.need(at, _PNG_HEAD_BYTES)
        if head[12:16] != b"IHDR":
            raise Unsized(Reason.BAD_HEADER)
        width, height = int.from_bytes(head[16:20], "big"), int.from_bytes(head[20:24], "big")
    else:
        width, height = bmp.bitmap_sides(window, at)
        height //= 2
    check_sides(width, height)
    return Size(width, height)


def mode(window: Window) -> ColourMode | None:
    """The colours: those of a PNG, or a bitmap's, which its mask makes RGBA.

    Raises:
        Unsized: the header says none.
    """
    at = _largest(window)
    if png.matches(window.read(at, _PNG_HEAD_BYTES)):
        return png.mode_of_header(window.need(at + 16, 10))
    return ColourMode.RGBA


def _largest(window: Window) -> int:
    """The offset of the largest icon."""
    num_entries = int.from_bytes(window.need(4, 2), "little")
    if num_entries == 0:
        raise Unsized(Reason.BAD_HEADER)
    if num_entries > MAX_ENTRIES:
        raise Unsized(Reason.HEADER_LIMIT)
    directory = window.need(_HEADER_BYTES, num_entries * _ENTRY_BYTES)
    entries = [directory[at : at + _ENTRY_BYTES] for at in range(0, len(directory), _ENTRY_BYTES)]
    return int.from_bytes(min(entries, key=_rank)[12:], "little")


def _rank(entry: bytes) -> tuple[int, int]:
    """Smaller for the entry that is preferred; of equal ones the first is."""
    width, height, num_colours = entry[0] or 256, entry[1] or 256, entry[2]
    depth = int.from_bytes(entry[6:8], "little") or max(0, num_colours - 1).bit_length() or 256
    return -width * height, depth
