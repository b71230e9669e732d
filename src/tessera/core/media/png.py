"""How large is a PNG? Its IHDR, turned as the eXIf chunk says, which may stand behind the pixels.

Chunks are jumped over to the end of the picture: IEND, or the second frame of an
animation. Apple's CgBI files are read like others. Where no eXIf is found, the
EXIF block counts that ImageMagick writes as text, and then XMP. A file that stops
before its end has no size, even where a decoder would be content with its pixels:
an eXIf that was cut off would have turned it.

Source: PNG specification, third edition; ``PngImagePlugin`` of Pillow 13 for what orientation it honours.
"""

import re
import zlib
from dataclasses import dataclass, field
from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.exif import UPRIGHT, in_exif, in_memory, in_xmp, spans
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import MAX_BYTES, Window

NAME: Final = "png"
MAX_STEPS: Final = 2048
"""Chunks of one file, for the most part; runs of IDAT of one length, as most encoders write them, take few steps."""
MAX_OTHER_CHUNKS: Final = 256
"""Chunks that are no pixels; real files have about twenty."""

_MAGIC = b"\x89PNG\r\n\x1a\n"
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
"""Bit depths that a colour type may have."""
_MODES = {2: ColourMode.RGB, 6: ColourMode.RGBA}
"""By colour type. Grey with alpha is the only other one that is not always ``OTHER``."""
_GREY_WITH_ALPHA = 4
_CHUNK_KIND = re.compile(rb"\w{4}")
_TEXT_KINDS = (b"tEXt", b"zTXt", b"iTXt")
_PROFILE, _XMP = b"Raw profile type exif", b"XML:com.adobe.xmp"
_MAX_KEYWORD_BYTES = 79
_MAX_FRAMES = 1 << 31
_PROFILE_HEAD_LINES = 3


@dataclass(slots=True)
class _Found:
    """What the chunks have said so far; of several of a kind the last counts."""

    sides: tuple[int, int] | None = None
    exif: tuple[int, int] | None = None
    text: dict[bytes, tuple[bytes, int, int]] = field(default_factory=dict)
    """By keyword: chunk kind, offset behind the keyword, length from there."""
    num_frames: int = 0
    """Frames of an animation; 0 where there is none."""
    is_frame: bool = False
    """Whether the first picture is one of the animation's frames."""
    has_pixels: bool = False
    num_others: int = 0
    """Chunks that are no pixels."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a PNG."""
    return first_bytes.startswith(_MAGIC)


def size(window: Window) -> Size:
    """The size as displayed.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    found, at = _Found(), len(_MAGIC)
    head = window.need(at, 8)
    while True:
        length, kind = int.from_bytes(head[:4], "big"), head[4:]
        if kind == b"IDAT" and found.has_pixels:
            at, head = _behind_pixels(window, at, head)
            continue
        found.num_others += 1
        if found.num_others > MAX_OTHER_CHUNKS:
            raise Unsized(Reason.HEADER_LIMIT)
        if not _CHUNK_KIND.fullmatch(kind) and not found.has_pixels:
            raise Unsized(Reason.BAD_HEADER)
        if _is_end(kind, found):
            break
        if found.has_pixels:
            _late_chunk(window, kind, at + 8, length, found)
        else:
            _early_chunk(window, kind, at + 8, length, found)
        at += 12 + length
        head = window.need(at, 8)
    if found.sides is None or not found.has_pixels:
        raise Unsized(Reason.BAD_HEADER)
    return displayed(*found.sides, _orientation(window, found))


def mode(window: Window) -> ColourMode | None:
    """The colours that the last IHDR in front of the pixels states; a transparent colour changes nothing.

    Raises:
        Unsized: there is none.
    """
    window.allow(MAX_STEPS)
    found, at = None, len(_MAGIC)
    while (head := window.need(at, 8))[4:] != b"IDAT":
        if head[4:] == b"IHDR":
            found = mode_of_header(window.need(at + 8, 10))
        at += 12 + int.from_bytes(head[:4], "big")
    return found


def mode_of_header(header: bytes) -> ColourMode:
    """The colours that the data of an IHDR chunk states."""
    depth, colour_type = header[8], header[9]
    if colour_type == _GREY_WITH_ALPHA and depth == 16:
        # The engine's image library has no mode of that depth with alpha.
        return ColourMode.RGBA
    return _MODES.get(colour_type, ColourMode.OTHER)


def _behind_pixels(window: Window, at: int, head: bytes) -> tuple[int, bytes]:
    """The offset and the head of the first chunk that is no IDAT; leaps that double over heads that are the same."""
    leap = 1
    while True:
        next_at = at + leap * (12 + int.from_bytes(head[:4], "big"))
        next_head = window.read(next_at, 8)
        if next_head == head:
            at, leap = next_at, leap * 2
        elif leap > 1:
            leap = 1
        elif next_head[4:] == b"IDAT":
            at, head = next_at, next_head
        elif len(next_head) < 8:
            raise Unsized(Reason.TRUNCATED_HEADER)
        else:
            return next_at, next_head


def _is_end(kind: bytes, found: _Found) -> bool:
    """Whether a decoder of the first picture reads no further than this chunk."""
    if kind == b"fcTL":
        is_animated = found.num_frames > 1 or (found.num_frames == 1 and not found.is_frame)
        return found.has_pixels and is_animated
    return kind == b"IEND" or not _CHUNK_KIND.fullmatch(kind)


def _early_chunk(window: Window, kind: bytes, start: int, length: int, found: _Found) -> None:
    """Take what a chunk before the pixels says; ``start`` is its data's offset."""
    if kind == b"IHDR":
        found.sides = _header(window.need(start, 13), length)
    elif kind == b"acTL":
        num_frames = int.from_bytes(window.need(start, 4), "big")
        found.num_frames = num_frames if num_frames <= _MAX_FRAMES else 0
    elif kind == b"fcTL":
        found.is_frame = True
    elif kind == b"IDAT":
        found.has_pixels = True
    else:
        _late_chunk(window, kind, start, length, found)


def _late_chunk(window: Window, kind: bytes, start: int, length: int, found: _Found) -> None:
    """Take what a chunk says that may stand before or behind the pixels."""
    if kind == b"eXIf":
        found.exif = start, length
    elif kind in _TEXT_KINDS:
        keyword, nul, _ = window.read(start, min(length, _MAX_KEYWORD_BYTES + 1)).partition(b"\0")
        if nul and keyword in (_PROFILE, _XMP):
            skip = len(keyword) + 1
            found.text[keyword] = kind, start + skip, length - skip


def _header(data: bytes, length: int) -> tuple[int, int]:
    width, height = int.from_bytes(data[:4], "big"), int.from_bytes(data[4:8], "big")
    check_sides(width, height)
    if length < 13 or data[8] not in _DEPTHS.get(data[9], ()):
        raise Unsized(Reason.BAD_HEADER)
    return width, height


def _orientation(window: Window, found: _Found) -> int:
    value = None
    if found.exif:
        value = in_exif(spans(window, [found.exif]))
    elif _PROFILE in found.text:
        value = in_exif(in_memory(_profile(_text(window, *found.text[_PROFILE]))))
    if value is None and _XMP in found.text:
        value = in_xmp(in_memory(_text(window, *found.text[_XMP])))
    return UPRIGHT if value is None else value


def _text(window: Window, kind: bytes, start: int, length: int) -> bytes:
    """The text of a chunk, unpacked; empty where it is broken."""
    data = window.need(start, length)
    if kind == b"tEXt":
        return data
    if kind == b"zTXt":
        return _unpacked(window, data[1:])
    # A language and a translated keyword stand before the text.
    text = data[2:].split(b"\0", 2)[-1]
    return text if data[:1] == b"\0" else _unpacked(window, text)


def _unpacked(window: Window, data: bytes) -> bytes:
    """Inflated data, as much as a parser may look at."""
    inflater = zlib.decompressobj()
    try:
        text = inflater.decompress(data, MAX_BYTES)
    except zlib.error:
        return b""
    if inflater.unconsumed_tail:
        raise Unsized(Reason.HEADER_LIMIT)
    window.look(len(text))
    return text


def _profile(text: bytes) -> bytes:
    """The bytes of a profile that is written as hexadecimal lines behind a name and a length."""
    lines = text.split(b"\n", _PROFILE_HEAD_LINES)[_PROFILE_HEAD_LINES:]
    try:
        return bytes.fromhex(b"".join(lines).decode("latin-1"))
    except ValueError:
        return b""
