"""What does a parser of clips and sounds answer? How large, how many, how long; or the reason why that is not known.

Considered for all of these formats and not used: PyAV, which is the engine's own
reader (FFmpeg: a large C library that would meet hostile bytes inside the router,
wants a file object and reads up to 5 MB to be sure); mutagen (GPL; sounds only) and
tinytag (sounds only), which both read through a file object without a bound on
bytes and steps. Each format here needs a page of code and a few dozen reads.
"""

import math
from dataclasses import dataclass
from typing import Final

from tessera.core.media.size import Reason, Unsized, check_sides

MAX_STEPS: Final = 500
"""Steps of a parser in one clip or sound: fewer than pictures have, because here each may be a read far away."""
MAX_DURATION_S: Final = 86_400.0
"""A day; a header that claims more is not believed."""
MAX_FPS: Final = 1_000.0
MAX_SAMPLE_RATE: Final = 1_000_000
"""Samples a second."""
MAX_CHANNELS: Final = 1_024


@dataclass(frozen=True, slots=True)
class Clip:
    """A moving picture; what is not known is nothing, and ``reason`` says why."""

    width: int
    """Pixels, as displayed: after the rotation that the container asks for, before any pixel aspect ratio."""
    height: int
    num_frames: int | None = None
    """As the engine's reader counts: from the container, without decoding."""
    fps: float | None = None
    """Frames a second, on average."""
    duration_s: float | None = None
    """``num_frames / fps`` where both are known."""
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class Sound:
    """A sound; what is not known is nothing, and ``reason`` says why."""

    duration_s: float | None
    sample_rate: int | None = None
    """Samples a second in each channel."""
    num_channels: int | None = None
    reason: Reason | None = None


def clip_of(width: int, height: int, num_frames: int, fps: float) -> Clip:
    """A clip of which everything is known.

    Raises:
        Unsized: a value that no clip has.
    """
    check_sides(width, height)
    if num_frames < 1 or not 0 < fps <= MAX_FPS or num_frames > fps * MAX_DURATION_S:
        raise Unsized(Reason.BAD_HEADER)
    return Clip(width, height, num_frames, fps, num_frames / fps)


def clip_without(width: int, height: int, reason: Reason, *, duration_s: float | None = None) -> Clip:
    """A clip whose size is known and whose frames are not.

    Raises:
        Unsized: a size that no clip has.
    """
    check_sides(width, height)
    is_sound = duration_s is not None and 0 < duration_s <= MAX_DURATION_S
    return Clip(width, height, duration_s=duration_s if is_sound else None, reason=reason)


def sound_of(duration_s: float | None, sample_rate: int, num_channels: int, reason: Reason | None = None) -> Sound:
    """A sound; ``reason`` is why its duration is not known, ``no-duration`` where none is given.

    Raises:
        Unsized: a value that no sound has.
    """
    if not 0 < sample_rate <= MAX_SAMPLE_RATE or not 0 < num_channels <= MAX_CHANNELS:
        raise Unsized(Reason.BAD_HEADER)
    if duration_s is None:
        return Sound(None, sample_rate, num_channels, reason or Reason.NO_DURATION)
    if not math.isfinite(duration_s) or not 0 <= duration_s <= MAX_DURATION_S:
        raise Unsized(Reason.BAD_HEADER)
    return Sound(duration_s, sample_rate, num_channels)
