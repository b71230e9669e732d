"""How large is a JPEG? Its frame header, turned as EXIF or XMP says; segments are jumped over, not read.

The walk goes on to the start of the first scan, because EXIF may stand after the
frame header. Thumbnails lie inside segments and are never seen.

Source: ITU-T T.81 annex B; ``JpegImagePlugin`` of Pillow 13 for what is let pass between segments.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.exif import orientation, spans
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import Window

NAME: Final = "jpeg"
MAX_STEPS: Final = 1024
"""Segments of one file, for the most part: 64 MB of profiles and comments, where real files have 20 segments."""

_MAGIC = b"\xff\xd8\xff"
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC} | {0xDE}
"""Frame headers of every process, and the one for hierarchical files."""
_WITHOUT_LENGTH = frozenset(range(0xD0, 0xDA)) | {0xC8} | frozenset(range(0xF0, 0xFE))
_APP1 = 0xE1
_SCAN = b"\xff\xda"
_SEGMENTS = frozenset(range(0xC0, 0xFF)) - _WITHOUT_LENGTH - {_SCAN[1]}
_OF_INTEREST = _FRAMES | {_APP1}
_EXIF = b"Exif\0\0"
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_MODES = {1: ColourMode.OTHER, 3: ColourMode.RGB, 4: ColourMode.OTHER}
"""By number of components: grey, YCbCr or RGB, CMYK."""
_MIN_BLOCK, _MAX_BLOCK = 16, 4096


@dataclass(slots=True)
class _Found:
    """What the segments have said so far."""

    sides: tuple[int, int] | None = None
    num_components: int = 0
    exif: list[tuple[int, int]] = field(default_factory=list)
    xmp: tuple[int, int] | None = None


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a JPEG."""
    return first_bytes.startswith(_MAGIC)


def size(window: Window) -> Size:
    """The size as displayed.

    Raises:
        Unsized: the header says none.
    """
    found = _walked(window)
    exif = spans(window, found.exif) if found.exif else None
    xmp = spans(window, [found.xmp]) if found.xmp else None
    assert found.sides is not None, "the walk found a frame"
    return displayed(*found.sides, orientation(exif, xmp))


def mode(window: Window) -> ColourMode | None:
    """The colours: those of the last frame header's components.

    Raises:
        Unsized: the header says none.
    """
    return _MODES[_walked(window).num_components]


def _walked(window: Window) -> _Found:
    """What all segments say, up to the first scan.

    Raises:
        Unsized: there is no frame header.
    """
    window.allow(MAX_STEPS)
    found, at = _Found(), 2
    while len(head := window.read(at, 4)) == 4:
        marker = head[1]
        if head[0] == 0xFF and marker in _SEGMENTS:
            length = max(2, int.from_bytes(head[2:], "big"))
            if marker in _OF_INTEREST:
                _segment(window, marker, at + 4, length - 2, found)
            at += 2 + length
        elif head.startswith(_SCAN):
            if found.sides is None:
                raise Unsized(Reason.BAD_HEADER)
            return found
        else:
            at = _between_segments(window, head, at)
    raise Unsized(Reason.TRUNCATED_HEADER)


def _between_segments(window: Window, head: bytes, at: int) -> int:
    """The offset behind what may stand between segments: fill, junk, markers without a length."""
    if head[0] != 0xFF:
        return _after(_num_junk, window, at)
    if head[1] == 0xFF:
        return _after(_num_fill, window, at) - 1
    if head[1] == 0 or head[1] in _WITHOUT_LENGTH:
        return at + 2
    raise Unsized(Reason.BAD_HEADER)


def _num_fill(data: bytes) -> int:
    """Leading bytes that are 0xFF."""
    return len(data) - len(data.lstrip(b"\xff"))


def _num_junk(data: bytes) -> int:
    """Leading bytes that are not."""
    return len(data.partition(b"\xff")[0])


def _after(num_skipped: Callable[[bytes], int], window: Window, at: int) -> int:
    """The offset behind what is to be skipped, looked at in growing blocks."""
    num_bytes = _MIN_BLOCK
    while data := window.read(at, num_bytes):
        num = num_skipped(data)
        at += num
        if num < len(data):
            return at
        num_bytes = min(num_bytes * 2, _MAX_BLOCK)
    raise Unsized(Reason.TRUNCATED_HEADER)


def _segment(window: Window, marker: int, start: int, length: int, found: _Found) -> None:
    """Take what a segment of interest says; ``start`` is behind its length."""
    if marker in _FRAMES:
        if length < 6:
            raise Unsized(Reason.BAD_HEADER)
        frame = window.need(start, 6)
        if frame[0] != 8 or frame[5] not in _MODES:
            raise Unsized(Reason.BAD_HEADER)
        found.sides = int.from_bytes(frame[3:5], "big"), int.from_bytes(frame[1:3], "big")
        found.num_components = frame[5]
        check_sides(*found.sides)
    elif marker == _APP1:
        name = window.read(start, min(length, len(_XMP)))
        if name.startswith(_EXIF):
            skip = len(_EXIF) if found.exif else 0
            found.exif.append((start + skip, length - skip))
        elif name == _XMP:
            found.xmp = start + len(_XMP), length - len(_XMP)
