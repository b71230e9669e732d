"""How large is a QOI? The two sides stand right behind the signature.

Source: the QOI file format specification, 2022-01-05.
"""

from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Size, check_sides
from tessera.core.media.window import Window

NAME: Final = "qoi"

_MAGIC = b"qoif"
_HEADER_BYTES = 14
_RGB_CHANNELS = 3


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a QOI."""
    return first_bytes.startswith(_MAGIC)


def size(window: Window) -> Size:
    """The size of the picture.

    Raises:
        Unsized: the header says none.
    """
    header = window.need(0, _HEADER_BYTES)
    width, height = int.from_bytes(header[4:8], "big"), int.from_bytes(header[8:12], "big")
    check_sides(width, height)
    return Size(width, height)


def mode(window: Window) -> ColourMode | None:
    """The colours that the number of channels states.

    Raises:
        Unsized: the header says none.
    """
    return ColourMode.RGB if window.need(0, _HEADER_BYTES)[12] == _RGB_CHANNELS else ColourMode.RGBA
