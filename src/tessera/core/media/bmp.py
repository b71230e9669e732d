"""How large is a BMP? Its bitmap header: 12 bytes (OS/2) with 16-bit sides, 40 to 124 with 32-bit ones.

A height whose upper byte is 0xFF is negative: the rows run from the top down. The
bitmap header also stands alone in icons, so it is read by a function of its own.

Source: Microsoft's BITMAPCOREHEADER to BITMAPV5HEADER; ``BmpImagePlugin`` of Pillow 13 for what is accepted.
"""

from typing import Final

from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

NAME: Final = "bmp"

_FILE_HEADER_BYTES = 14
_CORE_BYTES = 12
_HEADER_BYTES = (_CORE_BYTES, 40, 52, 56, 64, 108, 124)
_DEPTHS = (1, 4, 8, 16, 24, 32)
_BITFIELDS = 3
_COMPRESSIONS = (0, 1, 2, _BITFIELDS)
"""None, two of run lengths, colour masks; embedded JPEG and PNG are for printers only."""
_MAX_COLOURS = 65_536


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a BMP."""
    return first_bytes.startswith(b"BM")


def size(window: Window) -> Size:
    """The size of the bitmap.

    Raises:
        Unsized: the header says none.
    """
    width, height = bitmap_sides(window, _FILE_HEADER_BYTES)
    return Size(width, height)


def bitmap_sides(window: Window, at: int) -> tuple[int, int]:
    """Width and height that the bitmap header at that offset states.

    Raises:
        Unsized: they are none that the engine accepts.
    """
    num_bytes = _little(window.need(at, 4))
    if num_bytes not in _HEADER_BYTES:
        raise Unsized(Reason.BAD_HEADER)
    header = window.need(at, num_bytes)
    if num_bytes == _CORE_BYTES:
        width, height, depth = _little(header[4:6]), _little(header[6:8]), _little(header[10:12])
        compression = num_colours = 0
    else:
        width, height, depth = _little(header[4:8]), _height(header[8:12]), _little(header[14:16])
        compression, num_colours = _little(header[16:20]), _little(header[32:36])
    check_sides(width, height)
    has_known_pixels = depth in _DEPTHS and compression in _COMPRESSIONS
    has_masks = compression == _BITFIELDS
    if not has_known_pixels or (has_masks and depth < 16) or (depth <= 8 and num_colours > _MAX_COLOURS):
        raise Unsized(Reason.BAD_HEADER)
    return width, height


def _height(data: bytes) -> int:
    height = _little(data)
    return (1 << 32) - height if data[3] == 0xFF else height


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
