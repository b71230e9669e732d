"""How many frames of a clip does vLLM's loader hand to the processor, and where in the clip are they?

One function a loader. vLLM takes the loader by the name of the model's video
processor; its options come from ``--media-io-kwargs`` and a request's
``media_io_kwargs``, not from ``mm_processor_kwargs``. Every answer is a closed form
but for GLM-4.6V's, which walks 641 steps at most; a frame count above 2^40 is read
as 2^40.
Source: vLLM 0.32.0, vllm/multimodal/video.py.
"""

import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Final

from tessera.core.family import Refused, VideoInfo

NO_FRAMES: Final = Refused("a clip without a frame")
"""What every family answers to a clip whose container has no frame."""

MAX_TOTAL_FRAMES = 1 << 40
MIN_RATE, MAX_RATE = 1e-6, 1e6
"""Frames a second within which a container's rate is believed."""
MAX_TARGET_RATE = 30.0
"""Frames a second that Qwen's loaders sample at most."""
MAX_QWEN_FRAMES = 768
"""Frames that Qwen's loaders hand on at most, whatever ``max_frames`` says."""
MAX_GLM46V_FRAMES = 640
MAX_GLM46V_DURATION_S = 2_400
GLM46V_RATES = ((30, 3.0), (300, 1.0), (math.inf, 0.5))
"""Frame pairs a second for clips of at most so many seconds."""


def total_frames(clip: VideoInfo) -> int:
    """Frames in the container, 0 to 2^40."""
    return min(max(clip.num_frames, 0), MAX_TOTAL_FRAMES)


def source_rate(clip: VideoInfo) -> float:
    """The container's frames a second, within 1e-6..1e6; 0 where it says none or nonsense."""
    return min(max(clip.fps, MIN_RATE), MAX_RATE) if math.isfinite(clip.fps) and clip.fps > 0 else 0.0


def position(index: int, num_frames: int, total: int) -> float:
    """Where sampled frame ``index`` of ``num_frames`` lies in a clip of ``total``, spread evenly from first to last."""
    if index == 0 or num_frames < 2:
        return 0.0
    return float(total - 1) if index >= num_frames - 1 else index * ((total - 1) / (num_frames - 1))


def sum_of_rising(values: Callable[[int], int], count: int) -> int:
    """``values(0) + ... + values(count - 1)`` of a function that never falls.

    It is called ``log2(count)`` times for each value between its first and its last.

    >>> sum_of_rising(lambda second: len(str(second)), 100)
    190
    """
    if count < 1:
        return 0
    lowest, highest = values(0), values(count - 1)
    steps = range(lowest + 1, highest + 1)
    return lowest * count + sum(count - bisect_left(range(count), value, key=values) for value in steps)


def opencv(clip: VideoInfo, *, num_frames: int = 32, fps: float = 0.0) -> int:
    """Frames of the default loader: ``num_frames`` spread evenly, or ``fps`` a second if that is fewer (0: no limit).

    >>> opencv(VideoInfo(width=8, height=8, num_frames=300, fps=30))
    32
    """
    total, rate = total_frames(clip), source_rate(clip)
    wanted = min(num_frames, total)
    if fps > 0:
        wanted = min(wanted, math.floor(total / rate * fps) if rate else 0)
    return max(1, wanted)


def qwen3_vl(clip: VideoInfo, *, fps: float = 2.0, min_frames: int = 4, max_frames: int = MAX_QWEN_FRAMES) -> int:
    """Frames of the loader of Qwen3-VL: ``fps`` a second within the limits; a clip of unknown rate counts as 24.

    >>> qwen3_vl(VideoInfo(width=8, height=8, num_frames=300, fps=30))
    20
    """
    total = total_frames(clip)
    wanted = int(total / (source_rate(clip) or 24.0) * min(fps, MAX_TARGET_RATE))
    return min(max(wanted, min_frames), max_frames, MAX_QWEN_FRAMES, total)


def qwen2_vl(
    clip: VideoInfo, *, fps: float = 2.0, min_frames: int = 4, max_frames: int = MAX_QWEN_FRAMES, group: int = 2
) -> int:
    """Frames of the loader of Qwen2-VL: whole groups of ``group``; 0 where the rate is unknown or there is no group.

    The loader steps through the clip by ``total / n``; where ``total / (total / n)``
    rounds up, it takes one frame more than it meant to.

    >>> qwen2_vl(VideoInfo(width=8, height=8, num_frames=1091, fps=23.976))
    90
    """
    total, rate = total_frames(clip), source_rate(clip)
    if not rate:
        return 0
    cap = min(max_frames, MAX_QWEN_FRAMES, total) // group * group
    wanted = min(max(total / rate * min(fps, MAX_TARGET_RATE), min_frames), cap, total)
    count = math.floor(wanted / group) * group
    return math.ceil(total / (total / count)) if count else 0


def glm4v(clip: VideoInfo, *, fps: float = 2.0, max_duration_s: float = 300) -> int:
    """Frames of the loader of GLM-4.1V and 4.5V: ``fps`` a second up to ``max_duration_s``, then as many, spread.

    0 for a clip shorter than ``1 / fps`` seconds.

    >>> glm4v(VideoInfo(width=8, height=8, num_frames=108_000, fps=30))
    600
    """
    total, rate = total_frames(clip), source_rate(clip)
    if not rate or not total:
        return 0
    duration = total / rate
    if duration <= max_duration_s:
        count = math.floor(duration * fps)
        if rate >= fps or not count:
            return count
        return min(total - 1, math.ceil((count - 1) * rate / fps)) + 1
    count = int(max_duration_s * fps)
    if count >= total or count < 2:
        return min(count, total)
    last_but_one = math.ceil((count - 2) * (duration / (count - 1)) * rate)
    return count - 1 if last_but_one >= total - 1 and count > 2 else count


def glm46v(clip: VideoInfo, *, group: int = 2) -> int:
    """Frames of the loader of GLM-4.6V: 3, 1 or 0.5 groups a second by duration, at most 640 frames, an even number.

    0 for a clip shorter than ``1 / (3 x group)`` seconds or of unknown rate.

    >>> glm46v(VideoInfo(width=8, height=8, num_frames=1091, fps=23.976))
    92
    """
    total, rate = total_frames(clip), source_rate(clip)
    if not rate or not total:
        return 0
    duration = total / rate
    groups_a_second = next(value for limit, value in GLM46V_RATES if duration <= limit)
    wanted = min(int(min(duration, MAX_GLM46V_DURATION_S) * groups_a_second * group), MAX_GLM46V_FRAMES)
    if total < wanted:
        count = total
    elif not wanted or _reaches(wanted, duration, rate, 1 / (group * groups_a_second)):
        count = wanted
    else:
        num_taken, last = _walk(total, wanted, int(duration), 1 / rate, 1 / (group * groups_a_second))
        count = wanted if num_taken >= wanted else min(wanted, last + 1)
    return count + count % 2


def _reaches(wanted: int, duration: float, rate: float, step_s: float) -> bool:
    """Whether the walk surely ends behind frame ``wanted``, so that it need not be walked."""
    return (int(duration) - step_s) * rate - 3 >= wanted


def _walk(total: int, wanted: int, end_s: int, frame_s: float, step_s: float) -> tuple[int, int]:
    """Frames taken, and the last one, by a loader that takes the first frame at or after each multiple of ``step_s``.

    The time is summed up as the loader sums it, rounding errors included; a walk that
    takes more than ``wanted`` frames is not walked further.
    """
    taken, frame, due_s = 0, 0, 0.0
    while taken <= wanted:
        frame = max(frame, math.floor(due_s / frame_s) - 1)
        while frame * frame_s < due_s:
            frame += 1
        if frame >= total:
            break
        taken, last = taken + 1, frame
        due_s += step_s
        if due_s >= end_s:
            break
        frame += 1
    return taken, last
