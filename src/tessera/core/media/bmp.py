"""How large is a BMP? Its bitmap header: 12 bytes (OS/2) with 16-bit sides, 40 to 124 with 32-bit ones.

A height whose upper byte is 0xFF is negative: the rows run from the top down. The
bitmap header also stands alone in icons, so it is read by a function of its own.

Source: Microsoft's BITMAPCOREHEADER to BITMAPV5HEADER; ``BmpImagePlugin`` of Pillow 13 for what is accepted.
"""

from typing import Final

from tessera.core.media.colour import ColourMode
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
_MASKS_AT = 40
"""Offset of the colour masks in a bitmap header; behind it where it is no longer than that."""
_OPAQUE_MASKS = {(0xFF0000, 0xFF00, 0xFF, 0), (0xFF000000, 0xFF0000, 0xFF00, 0), (0xFF000000, 0xFF00, 0xFF, 0)}
_ALPHA_MASKS = {
    (0xFF000000, 0xFF0000, 0xFF00, 0xFF),
    (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
    (0xFF0000, 0xFF00, 0xFF, 0xFF000000),
    (0xFF000000, 0xFF00, 0xFF, 0xFF0000),
    (0, 0, 0, 0),
}
"""Red, green, blue and alpha of 32 bits, as the engine's image library understands them."""


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


def mode(window: Window) -> ColourMode | None:
    """The colours: with alpha only where masks of 32 bits say so.

    Raises:
        Unsized: the header says none.
    """
    num_bytes = _little(window.need(_FILE_HEADER_BYTES, 4))
    header = window.need(_FILE_HEADER_BYTES, num_bytes)
    depth = _little(header[10:12] if num_bytes == _CORE_BYTES else header[14:16])
    if depth <= 8:
        return ColourMode.OTHER
    if depth != 32 or num_bytes == _CORE_BYTES or _little(header[16:20]) != _BITFIELDS:
        return ColourMode.RGB
    has_alpha_mask = num_bytes >= _MASKS_AT + 16
    masks = window.need(_FILE_HEADER_BYTES + _MASKS_AT, 16 if has_alpha_mask else 12)
    values = [_little(masks[at : at + 4]) for at in range(0, len(masks), 4)]
    red, green, blue, alpha = values if has_alpha_mask else [*values, 0]
    layout = red, green, blue, alpha
    if layout in _ALPHA_MASKS:
        return ColourMode.RGBA
    return ColourMode.RGB if layout in _OPAQUE_MASKS else None


def _height(data: bytes) -> int:
    height = _little(data)
    return (1 << 32) - height if data[3] == 0xFF else height


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")
