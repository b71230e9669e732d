"""How large is a GIF? Its logical screen, stretched by a first frame that reaches beyond it.

Source: GIF89a specification; ``GifImagePlugin`` of Pillow 13, which stretches the screen.
"""

from typing import Final

from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.window import Window

NAME: Final = "gif"

_SCREEN_BYTES = 13
_HAS_COLOURS = 0x80
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a GIF."""
    return first_bytes.startswith((b"GIF87a", b"GIF89a"))


def size(window: Window) -> Size:
    """The size of the first frame's canvas.

    Raises:
        Unsized: the header says none.
    """
    screen = window.need(0, _SCREEN_BYTES)
    width, height = _pair(screen[6:10])
    at = _SCREEN_BYTES
    if screen[10] & _HAS_COLOURS:
        at += 3 << ((screen[10] & 7) + 1)
    frame = window.need(_first_image(window, at), 9)
    left, top = _pair(frame[1:5])
    frame_width, frame_height = _pair(frame[5:9])
    width, height = max(width, left + frame_width), max(height, top + frame_height)
    check_sides(width, height)
    return Size(width, height)


def _first_image(window: Window, at: int) -> int:
    """The offset of the first image descriptor, extensions skipped."""
    while (kind := window.need(at, 1)[0]) != _IMAGE:
        if kind == _TRAILER:
            raise Unsized(Reason.BAD_HEADER)
        at += 1
        if kind == _EXTENSION:
            at = _after_blocks(window, at + 1)
    return at


def _after_blocks(window: Window, at: int) -> int:
    """The offset after a chain of data blocks, the empty one that ends it included."""
    while length := window.need(at, 1)[0]:
        at += 1 + length
    return at + 1


def _pair(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:2], "little"), int.from_bytes(data[2:4], "little")
