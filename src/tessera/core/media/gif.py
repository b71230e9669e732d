"""How large is a GIF, and how long does it move? A picture is its first frame, a clip all of them.

As a picture it has the logical screen, stretched by a first frame that reaches beyond
it, as Pillow does. As a clip it has the screen as it is, and as many frames as it
holds; they are counted up to the window's limits, which is about 256 KiB of GIF.

Source: GIF89a specification; ``GifImagePlugin`` of Pillow 13; the GIF demuxer of FFmpeg for the shortest delay.
"""

from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.size import Reason, Size, Unsized, check_sides
from tessera.core.media.timed import Clip, clip_of, clip_without
from tessera.core.media.window import Window

NAME: Final = "gif"
MAX_STEPS: Final = 1024
"""Blocks in front of the first frame: 260 KB of comments and profiles, or 60 KB of XMP."""
MAX_CLIP_STEPS: Final = 2560
"""Blocks of all frames: 256 KiB of full ones, and six more for each of 250 frames."""

_SCREEN_BYTES = 13
_HAS_COLOURS = 0x80
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_CONTROL = 0xF9
_SHORTEST_CS, _DEFAULT_CS = 2, 10
"""Hundredths of a second: a frame that asks for less than the first is shown for the second."""
_CLIP_BYTES_AT_ONCE = 4096


class _Reader:
    """Bytes one after another, fetched in large pieces."""

    def __init__(self, window: Window, at: int) -> None:
        self._window = window
        self._piece, self._at, self._start = b"", 0, at

    def take(self, length: int) -> bytes:
        """The next bytes; raises Unsized at the end of the content. One step."""
        self._window.step()
        if self._at + length > len(self._piece):
            self._start += self._at
            self._piece, self._at = self._window.read(self._start, _CLIP_BYTES_AT_ONCE), 0
            if len(self._piece) < length:
                raise Unsized(Reason.TRUNCATED_HEADER)
        self._at += length
        return self._piece[self._at - length : self._at]

    def skip(self, length: int) -> None:
        """Pass over the next bytes unseen."""
        self._at += length

    def skip_blocks(self) -> None:
        """Pass over a chain of data blocks."""
        while length := self.take(1)[0]:
            self.skip(length)


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a GIF."""
    return first_bytes.startswith((b"GIF87a", b"GIF89a"))


def size(window: Window) -> Size:
    """The size of the first frame's canvas.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    screen = window.need(0, _SCREEN_BYTES)
    width, height = _pair(screen[6:10])
    frame = window.need(_first_image(window, _SCREEN_BYTES + _num_colour_bytes(screen[10])), 9)
    left, top = _pair(frame[1:5])
    frame_width, frame_height = _pair(frame[5:9])
    width, height = max(width, left + frame_width), max(height, top + frame_height)
    check_sides(width, height)
    return Size(width, height)


def mode(_: Window) -> ColourMode | None:
    """The colours: a palette, which the engine's image library may take for grey."""
    return ColourMode.OTHER


def clip(window: Window) -> Clip:
    """All frames, and how long they are shown.

    Raises:
        Unsized: the header says no size.
    """
    window.allow(MAX_CLIP_STEPS)
    screen = window.need(0, _SCREEN_BYTES)
    width, height = _pair(screen[6:10])
    reader = _Reader(window, _SCREEN_BYTES)
    reader.skip(_num_colour_bytes(screen[10]))
    try:
        num_frames, length_cs = _frames(reader)
    except Unsized as gave_up:
        return clip_without(width, height, gave_up.reason)
    if not num_frames:
        raise Unsized(Reason.BAD_HEADER)
    return clip_of(width, height, num_frames, num_frames * 100 / length_cs)


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


def _frames(reader: _Reader) -> tuple[int, int]:
    """How many frames there are up to the trailer, and how many hundredths of a second they are shown."""
    num_frames, length_cs, delay_cs = 0, 0, _DEFAULT_CS
    while (kind := reader.take(1)[0]) != _TRAILER:
        if kind == _EXTENSION:
            if reader.take(1)[0] == _CONTROL:
                block = reader.take(4)
                delay_cs = int.from_bytes(block[2:4], "little")
                reader.skip(max(0, block[0] - 3))
            reader.skip_blocks()
        elif kind == _IMAGE:
            reader.skip(_num_colour_bytes(reader.take(9)[8]))
            reader.take(1)
            reader.skip_blocks()
            num_frames += 1
            length_cs += delay_cs if delay_cs >= _SHORTEST_CS else _DEFAULT_CS
            delay_cs = _DEFAULT_CS
    return num_frames, length_cs


def _pair(data: bytes) -> tuple[int, int]:
    return int.from_bytes(data[:2], "little"), int.from_bytes(data[2:4], "little")


def _num_colour_bytes(flags: int) -> int:
    """Bytes of the colour table that the flags of a screen or a frame announce."""
    return 3 << ((flags & 7) + 1) if flags & _HAS_COLOURS else 0
