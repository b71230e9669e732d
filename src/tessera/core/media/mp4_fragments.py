"""How many samples lie in the fragments of an MP4, and how long do they last? The heads of ``moof``, one after another.

Source: ISO/IEC 14496-12 sections 8.8 (``moof``) and 8.16.3 (``sidx``).
"""

import struct
from dataclasses import dataclass

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.mp4_tracks import Track, payload
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window

_HAS_OFFSET, _HAS_ENTRY, _HAS_TICKS = 0x1, 0x2, 0x8
"""Which optional fields of ``tfhd`` stand up to the default duration."""
_RUN_HAS_OFFSET, _RUN_HAS_FLAGS, _RUN_HAS_TICKS = 0x1, 0x4, 0x100
_RUN_FIELDS = 0xF00
_MAX_REFERENCES = 4096


@dataclass(slots=True)
class Fragments:
    """What has been found of one track."""

    num_samples: int = 0
    num_ticks: int = 0
    """Their duration, by the track's clock."""
    indexed_s: float = 0.0
    """Seconds of all fragments, where an index in front of them says it."""
    reason: Reason | None = None
    """Why the walk ended before the content did, if it did."""


def fragments_of(window: Window, track: Track, default_ticks: int, start: int) -> Fragments:
    """All fragments from ``start`` on, as many as the window's limits let be seen; nothing is raised."""
    found = Fragments()
    try:
        for box in boxes(window, start, window.num_bytes):
            if box.kind == b"moof":
                _moof(window, box, track.number, default_ticks, found)
            elif box.kind == b"sidx" and not found.num_samples and not found.indexed_s:
                found.indexed_s = _indexed_s(window, box, track.number)
    except Unsized as gave_up:
        found.reason = gave_up.reason
    return found


def _moof(window: Window, moof: Box, number: int, default_ticks: int, found: Fragments) -> None:
    for traf in boxes(window, moof.start, moof.end):
        if traf.kind != b"traf":
            continue
        is_ours, num_ticks = False, default_ticks
        for box in boxes(window, traf.start, traf.end):
            if box.kind == b"tfhd":
                flags, owner = struct.unpack(">II", payload(window, box, 0, 8))
                is_ours = owner == number
                if is_ours and flags & _HAS_TICKS:
                    at = 8 + (8 if flags & _HAS_OFFSET else 0) + (4 if flags & _HAS_ENTRY else 0)
                    num_ticks = int.from_bytes(payload(window, box, at, 4), "big")
            elif box.kind == b"trun" and is_ours:
                _run(window, box, num_ticks, found)


def _run(window: Window, trun: Box, default_ticks: int, found: Fragments) -> None:
    flags, num_samples = struct.unpack(">II", payload(window, trun, 0, 8))
    if not flags & _RUN_HAS_TICKS:
        num_ticks = num_samples * default_ticks
    else:
        at = 8 + (4 if flags & _RUN_HAS_OFFSET else 0) + (4 if flags & _RUN_HAS_FLAGS else 0)
        num_fields = (flags & _RUN_FIELDS).bit_count()
        data = payload(window, trun, at, num_samples * num_fields * 4)
        num_ticks = sum(struct.unpack(f">{len(data) // 4}I", data)[::num_fields])
    found.num_samples += num_samples
    found.num_ticks += num_ticks


def _indexed_s(window: Window, sidx: Box, number: int) -> float:
    """Seconds that an index of this track covers; 0 where it is another track's or does not say."""
    version, _, owner, timescale = struct.unpack(">B3sII", payload(window, sidx, 0, 12))
    at = 30 if version else 22
    num_references = int.from_bytes(payload(window, sidx, at, 2), "big")
    if owner != number or not timescale or num_references > _MAX_REFERENCES:
        return 0.0
    data = payload(window, sidx, at + 2, num_references * 12)
    return float(sum(struct.unpack(f">{3 * num_references}I", data)[1::3]) / timescale)
