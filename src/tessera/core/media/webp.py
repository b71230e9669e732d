"""How large is a WebP? The canvas of VP8X, else the frame of VP8 or VP8L, turned as EXIF says.

Only an extended file (VP8X) whose flags announce EXIF or XMP is walked beyond its
first chunk, and not beyond the length that its RIFF head states.

Source: WebP container specification, RFC 9649; VP8 frame header, RFC 6386 section 9.1.
"""

from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.exif import UPRIGHT, orientation, spans
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import Window

NAME: Final = "webp"
MAX_STEPS: Final = 512
"""Chunks of one file, for the most part: frames, where EXIF or XMP stands behind them."""

_LOSSY, _LOSSLESS, _EXTENDED = b"VP8 ", b"VP8L", b"VP8X"
_FIRST_CHUNK = 12
_CHUNK_HEAD = 8
_HAS_EXIF, _HAS_XMP, _HAS_ALPHA, _IS_ANIMATED = 0x08, 0x04, 0x10, 0x02
_ALPHA = b"ALPH"
_LOSSLESS_HAS_ALPHA = 1 << 28
_SIDE = 0x3FFF


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a WebP."""
    riff, webp, kind = first_bytes[:4], first_bytes[8:12], first_bytes[12:16]
    return riff == b"RIFF" and webp == b"WEBP" and kind in (_LOSSY, _LOSSLESS, _EXTENDED)


def size(window: Window) -> Size:
    """The size as displayed.

    Raises:
        Unsized: the header says none.
    """
    window.allow(MAX_STEPS)
    head = window.need(0, 25)
    kind = head[12:16]
    if kind == _EXTENDED:
        return _extended(window, window.need(0, 30))
    width, height = _lossless(head) if kind == _LOSSLESS else _lossy(window.need(20, 10))
    check_sides(width, height)
    return Size(width, height)


def mode(window: Window) -> ColourMode | None:
    """The colours: with alpha where the lossless frame says so, or the flags or an ALPH chunk beside a lossy one.

    Of an animation only the flags count.

    Raises:
        Unsized: there is no frame.
    """
    window.allow(MAX_STEPS)
    head = window.need(0, 25)
    if head[12:16] != _EXTENDED:
        return _mode_of(head[12:16] == _LOSSLESS and _lossless_has_alpha(head[20:25]))
    has_alpha, at = bool(head[20] & _HAS_ALPHA), _FIRST_CHUNK
    if head[20] & _IS_ANIMATED:
        return _mode_of(has_alpha)
    while (chunk := window.need(at, _CHUNK_HEAD))[:4] not in (_LOSSY, _LOSSLESS):
        has_alpha |= chunk[:4] == _ALPHA
        length = int.from_bytes(chunk[4:], "little")
        at += _CHUNK_HEAD + length + (length & 1)
    if chunk[:4] == _LOSSLESS:
        has_alpha = _lossless_has_alpha(window.need(at + _CHUNK_HEAD, 5))
    return _mode_of(has_alpha)


def _mode_of(has_alpha: bool) -> ColourMode:
    return ColourMode.RGBA if has_alpha else ColourMode.RGB


def _lossless_has_alpha(frame: bytes) -> bool:
    return bool(int.from_bytes(frame[1:5], "little") & _LOSSLESS_HAS_ALPHA)


def _lossless(head: bytes) -> tuple[int, int]:
    if head[20] != 0x2F:
        raise Unsized(Reason.BAD_HEADER)
    bits = int.from_bytes(head[21:25], "little")
    return (bits & _SIDE) + 1, (bits >> 14 & _SIDE) + 1


def _lossy(frame: bytes) -> tuple[int, int]:
    is_key_frame = not frame[0] & 1
    if not is_key_frame or frame[3:6] != b"\x9d\x01\x2a":
        raise Unsized(Reason.BAD_HEADER)
    return int.from_bytes(frame[6:8], "little") & _SIDE, int.from_bytes(frame[8:10], "little") & _SIDE


def _extended(window: Window, head: bytes) -> Size:
    width = int.from_bytes(head[24:27], "little") + 1
    height = int.from_bytes(head[27:30], "little") + 1
    check_sides(width, height)
    wanted = {kind for kind, flag in ((b"EXIF", _HAS_EXIF), (b"XMP ", _HAS_XMP)) if head[20] & flag}
    return displayed(width, height, _orientation(window, head, wanted) if wanted else UPRIGHT)


def _orientation(window: Window, head: bytes, wanted: set[bytes]) -> int:
    """Walk the chunks until those that are wanted are found; the first of a kind counts."""
    end = _CHUNK_HEAD + int.from_bytes(head[4:8], "little")
    at, found = _FIRST_CHUNK, dict[bytes, tuple[int, int]]()
    while at + _CHUNK_HEAD <= end and wanted - found.keys():
        chunk = window.need(at, _CHUNK_HEAD)
        kind, length = chunk[:4], int.from_bytes(chunk[4:], "little")
        if kind in wanted and kind not in found:
            found[kind] = at + _CHUNK_HEAD, length
        at += _CHUNK_HEAD + length + (length & 1)
    if at > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
    exif, xmp = (spans(window, [found[kind]]) if kind in found else None for kind in (b"EXIF", b"XMP "))
    return orientation(exif, xmp)
