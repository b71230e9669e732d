"""How large and how long is an AVI clip? The heads of its first stream of pictures.

A file cut behind its heads still has the numbers of the whole file.

Ours: no kept Python library reads AVI alone; see ``timed.py`` for those that read
many formats.

Source: Microsoft's AVI RIFF File Reference; OpenDML AVI File Format Extensions 1.02.
"""

import struct
from typing import Final, NamedTuple

from tessera.core.media.riff import Chunk, chunks, payload
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Clip, clip_of, clip_without
from tessera.core.media.window import Window

NAME: Final = "avi"

_FIRST_CHUNK = 12
_PICTURES = b"vids"


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an AVI file."""
    return first_bytes[:4] == b"RIFF" and first_bytes[8:12] == b"AVI "


class _Stream(NamedTuple):
    """What the head of a stream says."""

    scale: int
    rate: int
    """Frames in ``scale`` seconds."""
    num_frames: int
    width: int
    height: int


def clip(window: Window) -> Clip:
    """The first stream of pictures.

    Raises:
        Unsized: there is none, or its headers cannot be read.
    """
    window.allow(MAX_STEPS)
    for chunk in chunks(window, _FIRST_CHUNK, window.num_bytes):
        if chunk.kind == b"LIST" and payload(window, chunk, 0, 4) == b"hdrl":
            return _clip(window, chunk)
    raise Unsized(Reason.TRUNCATED_HEADER)


def _clip(window: Window, heads: Chunk) -> Clip:
    main, stream = b"", None
    for chunk in chunks(window, heads.start + 4, heads.end):
        if chunk.kind == b"avih":
            main = payload(window, chunk, 0, 20)
        elif chunk.kind == b"LIST" and stream is None and payload(window, chunk, 0, 4) == b"strl":
            stream = _stream(window, chunk)
    if stream is None:
        raise Unsized(Reason.UNKNOWN_FORMAT)
    frame_us, num_frames = (int.from_bytes(main[at : at + 4], "little") for at in (0, 16))
    fps = stream.rate / stream.scale if stream.scale else 1e6 / frame_us if frame_us else 0.0
    num_frames = stream.num_frames or num_frames
    if not fps or not num_frames:
        return clip_without(stream.width, stream.height, Reason.NO_DURATION)
    return clip_of(stream.width, stream.height, num_frames, fps)


def _stream(window: Window, heads: Chunk) -> _Stream | None:
    """A stream of pictures; nothing for one of another kind."""
    times: tuple[int, ...] | None = None
    for chunk in chunks(window, heads.start + 4, heads.end):
        if chunk.kind == b"strh":
            if payload(window, chunk, 0, 4) != _PICTURES:
                return None
            times = struct.unpack("<IIII", payload(window, chunk, 20, 16))
        elif chunk.kind == b"strf" and times is not None:
            width, height = struct.unpack("<ii", payload(window, chunk, 4, 8))
            scale, rate, _, num_frames = times
            # A negative height means that the rows go from the top down.
            return _Stream(scale, rate, num_frames, width, abs(height))
    raise Unsized(Reason.BAD_HEADER)
