"""How large and how long is a WebM or Matroska clip, and how long its sound?

Frames are duration times rate, as OpenCV counts them, so a sound that outlasts the
pictures adds a frame or two. A live recording says neither its duration nor its
rate: then its blocks are counted, as far as the step limit lets that be done. Only
the segment and its clusters may be of unknown size; they end where the content does.

A file cut behind its tracks still has the numbers of the whole file; a live
recording that is cut between two blocks has the length of what is there.

Ours, because a dozen elements are wanted, and a general reader such as ebmlite goes
through a file object without a bound on steps. See ``timed.py`` for the libraries
that read many formats.

Source: RFC 9559 (Matroska).
"""

import math
from dataclasses import dataclass
from typing import Final

from tessera.core.media.ebml import Element, element_at, elements, integer, real, values
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Clip, Sound, clip_of, clip_without, sound_of
from tessera.core.media.window import Window

NAME: Final = "webm"

_MAGIC = b"\x1aE\xdf\xa3"
_SEGMENT, _INFO, _TRACKS, _CLUSTER = 0x18538067, 0x1549A966, 0x1654AE6B, 0x1F43B675
_SCALE, _DURATION = 0x2AD7B1, 0x4489
_ENTRY, _NUMBER, _KIND, _FRAME_NS, _CODEC = 0xAE, 0xD7, 0x83, 0x23E383, 0x86
_VIDEO, _WIDTH, _HEIGHT = 0xE0, 0xB0, 0xBA
_AUDIO, _RATE, _CHANNELS = 0xE1, 0xB5, 0x9F
_TIME, _SIMPLE_BLOCK, _GROUP, _BLOCK = 0xE7, 0xA3, 0xA0, 0xA1
_PICTURES, _SOUNDS = 1, 2
_SHORT_NUMBER = 0x80
_DEFAULT_SCALE_NS = 1_000_000
_DEFAULT_RATE = 8_000.0
_OPUS, _OPUS_RATE = b"A_OPUS", 48_000


@dataclass(slots=True, kw_only=True)
class _Movie:
    """What the segment says, as far as it was walked."""

    end: int
    """Where the segment does."""
    duration_s: float = 0.0
    """0 where it does not say."""
    scale_ns: int = _DEFAULT_SCALE_NS
    """Nanoseconds of a tick."""
    track: dict[int, bytes] | None = None
    """Values of the first track of the kind that was asked for."""
    settings: dict[int, bytes] | None = None
    """Values of its picture or its sound."""
    first_cluster: Element | None = None


@dataclass(slots=True)
class _Blocks:
    """What the blocks of one track say."""

    num_blocks: int = 0
    first: float = math.inf
    """Ticks; the earliest and the latest block."""
    last: float = -math.inf

    def duration_s(self, scale_ns: int) -> float:
        """Seconds, the last block taken to last as long as the others; 0 for fewer than two."""
        if self.num_blocks < 2:
            return 0.0
        return (self.last - self.first) * scale_ns / 1e9 * self.num_blocks / (self.num_blocks - 1)


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a WebM or Matroska file."""
    return first_bytes.startswith(_MAGIC)


def clip(window: Window) -> Clip:
    """The first track of pictures.

    Raises:
        Unsized: there is none, or its headers cannot be read.
    """
    movie, track, picture = _read(window, _PICTURES)
    width, height = integer(picture.get(_WIDTH), 0), integer(picture.get(_HEIGHT), 0)
    frame_ns = integer(track.get(_FRAME_NS), 0)
    fps = 1e9 / frame_ns if frame_ns else 0.0
    if fps and movie.duration_s:
        return clip_of(width, height, _whole(movie.duration_s * fps + 0.5), fps)
    try:
        seen = _blocks(window, movie, track)
    except Unsized as gave_up:
        return clip_without(width, height, gave_up.reason, duration_s=movie.duration_s)
    duration_s = movie.duration_s or seen.duration_s(movie.scale_ns)
    if not fps and not duration_s:
        return clip_without(width, height, Reason.NO_DURATION)
    return clip_of(width, height, seen.num_blocks, fps or seen.num_blocks / duration_s)


def sound(window: Window) -> Sound:
    """The first track of sound, whatever other tracks there are.

    Raises:
        Unsized: there is none, or its headers cannot be read.
    """
    movie, track, heard = _read(window, _SOUNDS)
    rate = _OPUS_RATE if track.get(_CODEC) == _OPUS else _whole(real(heard.get(_RATE), _DEFAULT_RATE))
    num_channels = integer(heard.get(_CHANNELS), 1)
    duration_s, reason = movie.duration_s, None
    if not duration_s:
        try:
            duration_s = _blocks(window, movie, track).duration_s(movie.scale_ns)
        except Unsized as gave_up:
            reason = gave_up.reason
    return sound_of(duration_s or None, rate, num_channels, reason)


def _read(window: Window, kind: int) -> tuple[_Movie, dict[int, bytes], dict[int, bytes]]:
    """The movie, its first track of that kind, and the settings of that track's picture or sound."""
    window.allow(MAX_STEPS)
    segment = _segment(window)
    movie = _Movie(end=window.num_bytes if segment.end is None else segment.end)
    for element in elements(window, segment.start, movie.end):
        if element.id == _CLUSTER:
            movie.first_cluster = movie.first_cluster or element
            if movie.track is not None or element.end is None:
                break
        elif element.id == _INFO:
            _info(values(window, element), movie)
        elif element.id == _TRACKS and movie.track is None:
            _first_track(window, element, kind, movie)
    if movie.track is None or movie.settings is None:
        raise Unsized(Reason.BAD_HEADER)
    return movie, movie.track, movie.settings


def _segment(window: Window) -> Element:
    for element in elements(window, 0, window.num_bytes):
        if element.id == _SEGMENT:
            return element
    raise Unsized(Reason.BAD_HEADER)


def _info(found: dict[int, bytes], movie: _Movie) -> None:
    movie.scale_ns = integer(found.get(_SCALE), _DEFAULT_SCALE_NS)
    num_ticks = real(found.get(_DURATION), 0.0)
    movie.duration_s = num_ticks * movie.scale_ns / 1e9 if num_ticks > 0 else 0.0


def _first_track(window: Window, tracks: Element, kind: int, movie: _Movie) -> None:
    wanted = _VIDEO if kind == _PICTURES else _AUDIO
    for entry in elements(window, tracks.start, tracks.end):
        if entry.id != _ENTRY:
            continue
        found, settings = dict[int, bytes](), None
        for child in elements(window, entry.start, entry.end):
            found.setdefault(child.id, child.first_bytes)
            if child.id == wanted:
                settings = values(window, child)
        if integer(found.get(_KIND), 0) == kind:
            movie.track, movie.settings = found, settings
            return
    raise Unsized(Reason.UNKNOWN_FORMAT)


def _blocks(window: Window, movie: _Movie, track: dict[int, bytes]) -> _Blocks:
    """All blocks of a track, from the first cluster on; clusters and groups are stepped into, never over.

    Raises:
        Unsized: they cannot all be seen.
    """
    seen, number = _Blocks(), integer(track.get(_NUMBER), 0)
    cluster, now = movie.first_cluster, 0
    at = movie.end if cluster is None else cluster.start
    if cluster is not None and (cluster.end or 0) > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
    while at < movie.end:
        element = element_at(window, at)
        if (element.end or 0) > window.num_bytes:
            raise Unsized(Reason.TRUNCATED_HEADER)
        if element.id in {_CLUSTER, _GROUP}:
            at = element.start
            continue
        data = element.first_bytes
        if element.id == _TIME:
            now = integer(data, 0)
        elif element.id in {_SIMPLE_BLOCK, _BLOCK} and data[:1] == bytes([number | _SHORT_NUMBER]):
            ticks = now + int.from_bytes(data[1:3], "big", signed=True)
            seen.num_blocks += 1
            seen.first, seen.last = min(seen.first, ticks), max(seen.last, ticks)
        if element.end is None:
            raise Unsized(Reason.BAD_HEADER)
        at = element.end
    return seen


def _whole(value: float) -> int:
    """The whole part of a number that a header says; 0 of one that is none."""
    return int(value) if 0 <= value < 1 << 60 else 0
