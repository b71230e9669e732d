"""How large is a JPEG 2000? The image header of a JP2, or the SIZ marker of a bare codestream.

Of several image headers the last counts, as in the engine's image library. It
honours no orientation, and accepts one to four components.

Source: ISO/IEC 15444-1 annexes A.5.1 and I.5; ``Jpeg2KImagePlugin`` of Pillow 13.
"""

from typing import Final

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

NAME: Final = "jpeg2000"
MAX_STEPS: Final = 256
"""Boxes in one file, for the most part; real files have about ten."""

_CODESTREAM = b"\xff\x4f\xff\x51"
_SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"
_SIZ_BYTES = 42
_MIN_SIZ_LENGTH = 38
_NUM_COMPONENTS = range(1, 5)
_MODES = {3: ColourMode.RGB, 4: ColourMode.RGBA}
"""By number of components."""
_CMYK = b"\x01", b"\0\0\0\x0c"
"""Method and colour space of a colr box."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a JP2 or a JPEG 2000 codestream."""
    return first_bytes.startswith((_CODESTREAM, _SIGNATURE))


def size(window: Window) -> Size:
    """The size of the picture.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    is_bare = window.need(0, 4) == _CODESTREAM
    width, height, num_components = _marker(window) if is_bare else _header(window)
    check_sides(width, height)
    if num_components not in _NUM_COMPONENTS:
        raise Unsized(Reason.BAD_HEADER)
    return Size(width, height)


def mode(window: Window) -> ColourMode | None:
    """The colours that the number of components states; four of them are CMYK where a colr box says so.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    if window.need(0, 4) == _CODESTREAM:
        return _MODES.get(_marker(window)[2], ColourMode.OTHER)
    found, num_components, jp2h = None, 0, _jp2h(window)
    for box in boxes(window, jp2h.start, jp2h.end):
        if box.kind == b"ihdr":
            num_components = int.from_bytes(window.need(box.start + 8, 2), "big")
            found = _MODES.get(num_components, ColourMode.OTHER)
        elif box.kind == b"colr" and num_components == 4:
            colour = window.need(box.start, 7)
            if (colour[:1], colour[3:]) == _CMYK:
                found = ColourMode.OTHER
    return found


def _marker(window: Window) -> tuple[int, int, int]:
    """Width, height and components that the SIZ marker segment states."""
    siz = window.need(0, _SIZ_BYTES)
    if int.from_bytes(siz[4:6], "big") < _MIN_SIZ_LENGTH:
        raise Unsized(Reason.BAD_HEADER)
    right, bottom, left, top = (int.from_bytes(siz[at : at + 4], "big") for at in (8, 12, 16, 20))
    return right - left, bottom - top, int.from_bytes(siz[40:42], "big")


def _header(window: Window) -> tuple[int, int, int]:
    """Width, height and components that the image header box states."""
    found = None
    jp2h = _jp2h(window)
    for box in boxes(window, jp2h.start, jp2h.end):
        if box.kind == b"ihdr":
            found = window.need(box.start, 10)
    if found is None:
        raise Unsized(Reason.BAD_HEADER)
    height, width, num_components = found[:4], found[4:8], found[8:]
    return int.from_bytes(width, "big"), int.from_bytes(height, "big"), int.from_bytes(num_components, "big")


def _jp2h(window: Window) -> Box:
    """The header box of a JP2."""
    for box in boxes(window, len(_SIGNATURE), window.num_bytes):
        if box.kind == b"jp2h":
            return box
    raise Unsized(Reason.TRUNCATED_HEADER)
