"""What do the tracks of an MP4 or MOV file say of themselves? The tables of ``moov``, heads only.

Frames are counted by the head of ``stsz``, never listed: an hour of video has 100,000.
Durations are those of ``stts`` where it is short, as with a constant rate it is, else
the track's own.

Source: ISO/IEC 14496-12 sections 8.2 to 8.8; QuickTime File Format specification.
"""

import struct
from dataclasses import dataclass, field
from typing import Any, Final

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window

PICTURE: Final = b"vide"
SOUND: Final = b"soun"

_CONTAINERS = frozenset({b"mdia", b"minf", b"stbl", b"edts"})
_TABLES = frozenset({b"tkhd", b"mdhd", b"hdlr", b"elst", b"stsd", b"stts", b"stsz", b"stz2"})
_MAX_EDITS = 64
_MAX_RUNS = 512
"""Entries of ``stts`` that are summed up."""
_UNKNOWN = (0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF)
"""Durations that mean "not known"."""
_TAIL = ">9iII"
"""The end of ``tkhd``: the matrix and the two sides, all of them fixed-point."""


@dataclass(slots=True, kw_only=True)
class Track:
    """One track: its own clock, how many samples it has, how long they last."""

    number: int
    timescale: int
    """Ticks a second, at least 1."""
    num_ticks: int
    """Duration of the samples that ``moov`` lists; 0 where it is not known."""
    num_samples: int
    """Samples that ``moov`` lists."""
    first_run: tuple[int, int]
    """How many samples from the first on last equally long, and how many ticks each."""
    num_shown_ticks: int
    """Ticks of the movie's clock that the edit list shows; 0 where it does not say."""
    tables: dict[bytes, Box]


@dataclass(slots=True, kw_only=True)
class Movie:
    """What ``moov`` says of the first track of a kind."""

    track: Track | None = None
    timescale: int = 0
    """Ticks a second of the movie's own clock; 0 where it has none."""
    has_fragments: bool = False
    num_fragment_ticks: int = 0
    """Duration of the whole movie, fragments included; 0 where it is not known."""
    fragment_ticks: dict[int, int] = field(default_factory=dict)
    """By track number: ticks of a sample of a fragment that does not say."""


def movie_of(window: Window, moov: Box, kind: bytes) -> Movie:
    """The movie with its first track of that kind, ``PICTURE`` or ``SOUND``.

    Raises:
        Unsized: it cannot be read.
    """
    movie = Movie()
    for box in boxes(window, moov.start, moov.end):
        if box.kind == b"mvhd":
            movie.timescale, _ = _clock(window, box)
        elif box.kind == b"trak" and movie.track is None:
            movie.track = _track(window, box, kind)
        elif box.kind == b"mvex":
            _fragment_defaults(window, box, movie)
    return movie


def is_turned(window: Window, track: Track) -> bool:
    """Whether the picture is shown a quarter turned."""
    a, b, _, c, d, *_ = _tail(window, track)
    return (a, d) == (0, 0) and bool(b and c)


def sides(window: Window, track: Track) -> tuple[int, int]:
    """Width and height as stored: by the sample entry, which no pixel aspect ratio has stretched."""
    width, height = struct.unpack(">HH", sample_entry(window, track, 36)[32:36])
    if not width or not height:
        *_, width, height = (side >> 16 for side in _tail(window, track))
    return width, height


def sample_entry(window: Window, track: Track, least: int, most: int = 0) -> bytes:
    """The first sample entry, its head included: ``least`` bytes of it, up to ``most`` where it has them.

    Raises:
        Unsized: it has less than ``least`` bytes.
    """
    table = _table(track.tables, b"stsd")
    length = min(int.from_bytes(payload(window, table, 8, 4), "big"), table.end - table.start - 8)
    if length < least:
        raise Unsized(Reason.BAD_HEADER)
    return payload(window, table, 8, max(least, min(length, most)))


def payload(window: Window, box: Box, at: int, length: int) -> bytes:
    """Exactly ``length`` bytes of a box, ``at`` bytes behind its head.

    Raises:
        Unsized: the box or the content ends before.
    """
    if box.start + at + length > box.end:
        raise Unsized(Reason.BAD_HEADER)
    return window.need(box.start + at, length)


def _track(window: Window, trak: Box, kind: bytes) -> Track | None:
    tables = _tables(window, trak, kind)
    if tables is None:
        return None
    timescale, num_ticks = _clock(window, _table(tables, b"mdhd"))
    if not timescale:
        raise Unsized(Reason.BAD_HEADER)
    (num_samples,) = _words(window, _table(tables, b"stsz" if b"stsz" in tables else b"stz2"), 8, 1)
    times = _table(tables, b"stts")
    (num_runs,) = _words(window, times, 4, 1)
    runs = _words(window, times, 8, 2 * min(num_runs, _MAX_RUNS))
    if num_runs <= _MAX_RUNS:
        num_ticks = sum(count * ticks for count, ticks in zip(runs[::2], runs[1::2], strict=True))
    header = _table(tables, b"tkhd")
    return Track(
        number=_words(window, header, 20 if _is_long(window, header) else 12, 1)[0],
        timescale=timescale,
        num_ticks=num_ticks,
        num_samples=num_samples,
        first_run=(runs[0], runs[1]) if runs else (0, 0),
        num_shown_ticks=_shown(window, tables[b"elst"]) if b"elst" in tables else 0,
        tables=tables,
    )


def _tables(window: Window, trak: Box, kind: bytes) -> dict[bytes, Box] | None:
    """The tables of a track, the first of each; nothing where the track is of another kind."""
    found: dict[bytes, Box] = {}
    pending = [trak]
    while pending:
        outer = pending.pop()
        for box in boxes(window, outer.start, outer.end):
            if box.kind in _CONTAINERS:
                pending.append(box)
            elif box.kind in _TABLES and box.kind not in found:
                found[box.kind] = box
                if box.kind == b"hdlr" and payload(window, box, 8, 4) != kind:
                    return None
    return found if b"hdlr" in found else None


def _table(tables: dict[bytes, Box], kind: bytes) -> Box:
    if kind not in tables:
        raise Unsized(Reason.BAD_HEADER)
    return tables[kind]


def _words(window: Window, box: Box, at: int, count: int) -> tuple[int, ...]:
    return struct.unpack(f">{count}I", payload(window, box, at, 4 * count))


def _is_long(window: Window, box: Box) -> bool:
    """Whether a box of two versions is of the one with 64-bit times."""
    return payload(window, box, 0, 1) != b"\0"


def _clock(window: Window, box: Box) -> tuple[int, int]:
    """Timescale and duration of ``mvhd`` or ``mdhd``."""
    timescale: int
    if _is_long(window, box):
        timescale, num_ticks = struct.unpack(">IQ", payload(window, box, 20, 12))
    else:
        timescale, num_ticks = struct.unpack(">II", payload(window, box, 12, 8))
    return timescale, 0 if num_ticks in _UNKNOWN else num_ticks


def _tail(window: Window, track: Track) -> tuple[Any, ...]:
    header = _table(track.tables, b"tkhd")
    at = 52 if _is_long(window, header) else 40
    return struct.unpack(_TAIL, payload(window, header, at, struct.calcsize(_TAIL)))


def _shown(window: Window, box: Box) -> int:
    """Ticks that the edits show, empty edits left out."""
    form = ">Qqi" if _is_long(window, box) else ">Iii"
    (num_edits,) = _words(window, box, 4, 1)
    if num_edits > _MAX_EDITS:
        return 0
    edits = struct.iter_unpack(form, payload(window, box, 8, num_edits * struct.calcsize(form)))
    return sum(num_ticks for num_ticks, begin, _ in edits if begin >= 0)


def _fragment_defaults(window: Window, mvex: Box, movie: Movie) -> None:
    movie.has_fragments = True
    for box in boxes(window, mvex.start, mvex.end):
        if box.kind == b"trex":
            number, _, num_ticks = _words(window, box, 4, 3)
            movie.fragment_ticks[number] = num_ticks
        elif box.kind == b"mehd":
            length = 8 if _is_long(window, box) else 4
            movie.num_fragment_ticks = int.from_bytes(payload(window, box, 4, length), "big")
