"""How long is an MP3? The frames that its first frame counts, else its bytes over those of an average frame.

The average is that of the first 128 frames: exact where the bit rate is constant or
the file is short. Encoders that vary it count their frames (Xing, Info, VBRI).
A cut file without such a count has the length of what is there.

Ours, because mutagen is GPL and tinytag reads through a file object without a bound
on steps.

Source: ISO/IEC 11172-3 section 2.4.2.3 and 13818-3; ID3v2.4.0 structure; the layout of
Xing's, Fraunhofer's (VBRI) and LAME's headers as their readers document it.
"""

import re
from typing import Final, NamedTuple

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound, sound_of
from tessera.core.media.window import Window

NAME: Final = "mp3"

_TAG, _TAG_HEAD_BYTES, _HAS_FOOTER = b"ID3", 10, 0x10
_MAX_TAGS = 4
_OLD_TAG, _OLD_TAG_BYTES = b"TAG", 128
_SEARCH_BYTES = 4096
"""Bytes behind the tags in which the first frame must begin."""
_MAX_FRAMES = 128
_HEAD_BYTES = 4
_SECOND = bytes(byte for byte in range(0xE0, 0x100) if byte >> 3 & 3 != 1 and byte >> 1 & 3)
_THIRD = bytes(byte for byte in range(0x10, 0xF0) if byte >> 2 & 3 != 3)
_HEAD = re.compile(rb"\xff[" + re.escape(_SECOND) + rb"][" + re.escape(_THIRD) + rb"].", re.DOTALL)
"""A frame's head: its version, layer, bit rate and sample rate are none that must not be or are not said."""

_KBITS_1 = {
    3: (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    2: (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    1: (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
}
"""Kilobits a second of MPEG-1, by the layer's bits."""
_KBITS_2 = {
    3: (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    2: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    1: (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}
"""Kilobits a second of MPEG-2 and 2.5."""
_RATES = (44_100, 48_000, 32_000)
_DIVISORS = {3: 1, 2: 2, 0: 4}
"""Of the rates, by the version's bits: MPEG-1, MPEG-2, MPEG-2.5."""
_LAYER_1, _LAYER_3 = 3, 1
_MONO = 3

_XING_MAGICS = (b"Xing", b"Info")
_VBRI, _VBRI_AT = b"VBRI", 36
_FIRST_BYTES = 200
"""Of the first frame; its counts and LAME's trims stand within."""


class _Frame(NamedTuple):
    """What the head of a frame says."""

    kind: tuple[int, int, int]
    """Version's and layer's bits and rate, the same in every frame of a file."""
    rate: int
    num_channels: int
    num_samples: int
    num_bytes: int
    counts_at: int
    """Where Xing's counts stand in a first frame."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an MP3, or a tag that mostly stands before one."""
    return first_bytes.startswith(_TAG) or _HEAD.match(first_bytes) is not None


def sound(window: Window) -> Sound:
    """Its length, samples that the encoder added left out where it says how many.

    Raises:
        Unsized: there is no frame behind the tags.
    """
    window.allow(MAX_STEPS)
    at, frame = _first_frame(window, _after_tags(window))
    first = window.read(at, _FIRST_BYTES)
    counts = _counts(first, frame)
    if counts is None:
        return sound_of(_num_frames(window, at, frame) * frame.num_samples / frame.rate, frame.rate, frame.num_channels)
    num_frames, num_bytes, num_trimmed = counts
    if at + num_bytes > window.num_bytes:
        return sound_of(None, frame.rate, frame.num_channels, Reason.TRUNCATED_HEADER)
    num_samples = num_frames * frame.num_samples
    return sound_of(max(0, num_samples - num_trimmed) / frame.rate, frame.rate, frame.num_channels)


def _after_tags(window: Window) -> int:
    at = 0
    for _ in range(_MAX_TAGS):
        head = window.read(at, _TAG_HEAD_BYTES)
        if not head.startswith(_TAG):
            break
        if len(head) < _TAG_HEAD_BYTES:
            raise Unsized(Reason.TRUNCATED_HEADER)
        if max(head[6:]) > 0x7F:
            raise Unsized(Reason.BAD_HEADER)
        length = head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9]
        at += _TAG_HEAD_BYTES + length + (_TAG_HEAD_BYTES if head[5] & _HAS_FOOTER else 0)
    if at >= window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
    return at


def _first_frame(window: Window, start: int) -> tuple[int, _Frame]:
    """The first frame that another one of its kind follows, or that ends the content."""
    data, is_cut = window.read(start, _SEARCH_BYTES), False
    match = _HEAD.search(data)
    while match is not None:
        at, frame = start + match.start(), _frame(match[0])
        end = at + frame.num_bytes
        if end == window.num_bytes or _follows(frame, window.read(end, _HEAD_BYTES)):
            return at, frame
        is_cut = is_cut or end + _HEAD_BYTES > window.num_bytes
        match = _HEAD.search(data, match.start() + 1)
    raise Unsized(Reason.TRUNCATED_HEADER if is_cut or len(data) < _HEAD_BYTES else Reason.UNKNOWN_FORMAT)


def _follows(frame: _Frame, head: bytes) -> bool:
    """Whether a frame of the same kind begins so."""
    return _HEAD.match(head) is not None and _frame(head).kind == frame.kind


def _frame(head: bytes) -> _Frame:
    """What a frame's head says."""
    version, layer = head[1] >> 3 & 3, head[1] >> 1 & 3
    bits, padding = head[2] >> 4, head[2] >> 1 & 1
    is_first, is_mono = _DIVISORS[version] == 1, head[3] >> 6 == _MONO
    rate = _RATES[head[2] >> 2 & 3] // _DIVISORS[version]
    bit_rate = (_KBITS_1 if is_first else _KBITS_2)[layer][bits - 1] * 1000
    if layer == _LAYER_1:
        num_samples, num_bytes = 384, (12 * bit_rate // rate + padding) * 4
    else:
        num_samples = 576 if layer == _LAYER_3 and not is_first else 1152
        num_bytes = num_samples // 8 * bit_rate // rate + padding
    side_bytes = (17 if is_mono else 32) if is_first else (9 if is_mono else 17)
    kind = version, layer, rate
    return _Frame(kind, rate, 1 if is_mono else 2, num_samples, num_bytes, _HEAD_BYTES + side_bytes)


def _counts(first: bytes, frame: _Frame) -> tuple[int, int, int] | None:
    """Frames, bytes (0: not said) and samples to leave out, where the first frame says them."""
    if first[_VBRI_AT : _VBRI_AT + 4] == _VBRI:
        num_bytes, num_frames = (_word(first, _VBRI_AT + at) for at in (10, 14))
        return (num_frames, num_bytes, 0) if num_frames else None
    at = frame.counts_at
    if first[at : at + 4] not in _XING_MAGICS:
        return None
    flags, at = _word(first, at + 4), at + 8
    fields = []
    for bit, length in ((1, 4), (2, 4), (4, 100), (8, 4)):
        fields.append(_word(first, at) if flags & bit else 0)
        at += length if flags & bit else 0
    num_frames, num_bytes, *_ = fields
    trims = int.from_bytes(first[at + 21 : at + 24], "big") if first[at : at + 1].isalpha() else 0
    return (num_frames, num_bytes, (trims >> 12) + (trims & 0xFFF)) if num_frames else None


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "big")


def _num_frames(window: Window, start: int, frame: _Frame) -> int:
    """Whole frames from ``start`` on: counted up to ``_MAX_FRAMES``, the rest by the average of these."""
    end = window.num_bytes
    if window.read(end - _OLD_TAG_BYTES, len(_OLD_TAG)) == _OLD_TAG and end - start > _OLD_TAG_BYTES:
        end -= _OLD_TAG_BYTES
    at, num_frames, num_bytes = start, 0, frame.num_bytes
    while num_frames < _MAX_FRAMES and at + num_bytes <= end:
        at += num_bytes
        num_frames += 1
        head = window.read(at, _HEAD_BYTES)
        if not _follows(frame, head):
            break
        num_bytes = _frame(head).num_bytes
    return num_frames + int((end - at) * num_frames / (at - start)) if at + num_bytes <= end else num_frames
