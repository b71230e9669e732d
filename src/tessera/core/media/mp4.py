"""How large and how long is an MP4 or MOV clip, and how long the sound of an MP4 or M4A?

``moov`` is found by jumping from box to box, wherever it stands. Frames are counted
as the engine's readers count them: the samples that the container lists, and no more
than the edit list shows. Width and height are those of the decoded frame, turned as
the track's matrix asks; a pixel aspect ratio stretches nothing, as in OpenCV.

A file cut behind ``moov`` still has the numbers of the whole file; a fragmented file
cut between two fragments has those of the fragments that are there.

Ours, because ``pymp4`` builds a tree of every box in memory before it answers. See
``timed.py`` for the libraries that read many formats.
"""

import struct
from typing import Final

from tessera.core.media.aac import in_esds
from tessera.core.media.boxes import boxes
from tessera.core.media.mp4_fragments import Fragments, fragments_of
from tessera.core.media.mp4_tracks import PICTURE, SOUND, Movie, Track, is_turned, movie_of, sample_entry, sides
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_SAMPLE_RATE, MAX_STEPS, Clip, Sound, clip_of, clip_without, sound_of
from tessera.core.media.window import Window

NAME: Final = "mp4"

_FIRST_BOXES = frozenset({b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip", b"pnot"})
_STILLS = frozenset({b"avif", b"heic", b"heix", b"mif1", b"miaf"})
"""Brands of pictures, which share the boxes."""
_MAX_ENTRY_BYTES = 1024
_SECOND_VERSION = b"\0\2"
"""Of QuickTime's sample entry, whose rate and channels stand elsewhere."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an MP4 or MOV file."""
    return first_bytes[4:8] in _FIRST_BOXES and first_bytes[8:12] not in _STILLS


def clip(window: Window) -> Clip:
    """The first track of pictures.

    Raises:
        Unsized: there is none, or its headers cannot be read.
    """
    window.allow(MAX_STEPS)
    movie, track, end = _first_track(window, PICTURE)
    width, height = sides(window, track)
    if is_turned(window, track):
        width, height = height, width
    if movie.has_fragments:
        return _fragmented(window, movie, track, end, (width, height))
    run, ticks = track.first_run
    is_steady = ticks and run >= track.num_samples - 1
    fps = track.timescale / ticks if is_steady else _rate(track, track.num_samples, track.num_ticks)
    if not fps:
        return clip_without(width, height, Reason.NO_DURATION)
    shown = round(_shown_s(movie, track) * fps) or track.num_samples
    num_frames = shown if track.num_samples > shown + 1 else track.num_samples
    return clip_of(width, height, num_frames, fps)


def sound(window: Window) -> Sound:
    """The first track of sound, whatever other tracks there are.

    Raises:
        Unsized: there is none, or its headers cannot be read.
    """
    window.allow(MAX_STEPS)
    movie, track, end = _first_track(window, SOUND)
    rate, num_channels = _heard(window, track)
    if not movie.has_fragments:
        seconds = _shown_s(movie, track) or track.num_ticks / track.timescale
        return sound_of(seconds or None, rate, num_channels)
    more = fragments_of(window, track, movie.fragment_ticks.get(track.number, 0), end)
    seconds = _whole_s(movie, more) if more.reason else (track.num_ticks + more.num_ticks) / track.timescale
    return sound_of(seconds or None, rate, num_channels, more.reason)


def _first_track(window: Window, kind: bytes) -> tuple[Movie, Track, int]:
    """The movie, its first track of that kind, and where ``moov`` ends."""
    for box in boxes(window, 0, window.num_bytes):
        if box.kind == b"moov":
            if box.end > window.num_bytes:
                raise Unsized(Reason.TRUNCATED_HEADER)
            movie = movie_of(window, box, kind)
            if movie.track is None:
                raise Unsized(Reason.UNKNOWN_FORMAT)
            return movie, movie.track, box.end
    raise Unsized(Reason.BAD_HEADER)


def _fragmented(window: Window, movie: Movie, track: Track, start: int, size: tuple[int, int]) -> Clip:
    """A clip in fragments; where not all are there or can be seen, those that are tell the rate of the whole."""
    more = fragments_of(window, track, movie.fragment_ticks.get(track.number, 0), start)
    num_frames = track.num_samples + more.num_samples
    fps = _rate(track, num_frames, track.num_ticks + more.num_ticks)
    whole_s = _whole_s(movie, more)
    if more.reason or whole_s * fps > num_frames + 1:
        num_frames = round(whole_s * fps)
    if more.reason and not num_frames:
        return clip_without(*size, more.reason, duration_s=whole_s)
    return clip_of(*size, num_frames, fps) if fps else clip_without(*size, Reason.NO_DURATION)


def _rate(track: Track, num_samples: int, num_ticks: int) -> float:
    """Samples a second; 0 where their duration is not known."""
    return num_samples * track.timescale / num_ticks if num_ticks else 0.0


def _shown_s(movie: Movie, track: Track) -> float:
    """Seconds that the edit list shows; 0 where it does not say."""
    return track.num_shown_ticks / movie.timescale if movie.timescale else 0.0


def _whole_s(movie: Movie, more: Fragments) -> float:
    """Seconds of all fragments, as the file says before them; 0 where it does not."""
    return (
        movie.num_fragment_ticks / movie.timescale if movie.timescale and movie.num_fragment_ticks else more.indexed_s
    )


def _heard(window: Window, track: Track) -> tuple[int, int]:
    """Samples a second and channels: the codec's own where it says them, else the sample entry's."""
    entry = sample_entry(window, track, 36, _MAX_ENTRY_BYTES)
    at = entry.find(b"esds")
    if at >= 0 and (heard := in_esds(entry[at + 8 :])):
        return heard
    num_channels, rate = int.from_bytes(entry[24:26], "big"), int.from_bytes(entry[32:34], "big")
    if entry[16:18] == _SECOND_VERSION and len(entry) >= 52:
        rate, num_channels = _in_second_version(entry)
    # The entry's rate has 16 bits; a higher one is left to the track's clock.
    return rate or track.timescale, num_channels


def _in_second_version(entry: bytes) -> tuple[int, int]:
    rate, num_channels = struct.unpack(">dI", entry[40:52])
    return int(rate) if 0 < rate <= MAX_SAMPLE_RATE else 0, num_channels
