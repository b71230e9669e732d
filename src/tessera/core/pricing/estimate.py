"""What would llm-d say an item costs? Its rules, exactly, with its defaults, clamps and caps.

Source: llm-d-router ``mm_estimate.go`` at ebab687927f5, formulas and defaults as
facts. What differs: header values are bounded, so that no client can claim a
million hours of video.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from tessera.core.headers import positive_number
from tessera.core.parts import MediaItem, Modality
from tessera.core.plugin import Range, params
from tessera.core.types import Basis

DEFAULT_WIDTH = 640
DEFAULT_HEIGHT = 360
DEFAULT_FACTOR = 1024
DEFAULT_DURATION_S = 10.0
DEFAULT_SOURCE_FPS = 24.0
MAX_SIDE = 65_536
"""Pixels a side that a header may claim."""
MAX_DURATION_S = 86_400.0
"""A day: the longest clip that a header may claim."""
MAX_FPS = 1_000.0

DURATION_HEADER = "x-llm-d-video-duration-seconds"
RESOLUTION_HEADER = "x-llm-d-video-resolution"
FPS_HEADER = "x-llm-d-video-fps"

PositiveInt = Annotated[int, Range(ge=1)]


@params
class Resolution:
    """A size in pixels; a side left out takes llm-d's default of 640 or 360."""

    width: PositiveInt = DEFAULT_WIDTH
    """Pixels across."""
    height: PositiveInt = DEFAULT_HEIGHT
    """Pixels down."""


@params
class Dynamic:
    """Tokens by resolution: ``max(1, floor(width * height / factor))``."""

    factor: PositiveInt = DEFAULT_FACTOR
    """Pixels that make one token; 1024 for Qwen3-VL's 32 x 32 regions."""


@params
class StaticImage:
    """A fixed price for an image."""

    static_token: PositiveInt = 1
    """Tokens of every image."""


@params
class ImageEstimate:
    """How images are priced where no model family is configured."""

    mode: Literal["dynamic", "static"] = "dynamic"
    """``dynamic``: by resolution (Qwen-VL style); ``static``: fixed (Gemma style)."""
    default_resolution: Resolution = Resolution()
    """The size of an image whose bytes the router cannot see, such as a link."""
    dynamic: Dynamic = Dynamic()
    """Parameters of ``mode: dynamic``."""
    static: StaticImage = StaticImage()
    """Parameters of ``mode: static``."""


@params
class StaticFrame:
    """A fixed price for a video frame."""

    num_tokens_per_frame: PositiveInt = 1
    """Tokens of every frame."""


@params
class FrameTokens:
    """How one frame is priced."""

    mode: Literal["dynamic", "static"] = "dynamic"
    """``dynamic``: by resolution; ``static``: fixed."""
    dynamic: Dynamic = Dynamic()
    """Parameters of ``mode: dynamic``."""
    static: StaticFrame = StaticFrame()
    """Parameters of ``mode: static``."""


@params
class SampledFrames:
    """Frames by duration: ``trunc(duration * sampleFPS)``, clamped, then divided."""

    sample_fps: Annotated[float, Range(gt=0)] = 2.0
    """Frames a second that the model's processor takes."""
    temporal_patch_size: PositiveInt = 1
    """Frames that are merged into one; 2 for Qwen3-VL."""


@params
class StridedFrames:
    """Frames by stride: ``trunc(duration * fps) // frameStride``, then clamped."""

    frame_stride: PositiveInt = 1
    """Every how many-th frame of the clip is taken."""
    default_source_fps: Annotated[float, Range(gt=0)] = DEFAULT_SOURCE_FPS
    """Frames a second of a clip whose header does not say."""


@params
class FrameCount:
    """How many frames of a clip are priced."""

    mode: Literal["sampled", "strided"] = "sampled"
    """``sampled``: by duration (Qwen-VL style); ``strided``: every n-th frame of the clip (Gemma style)."""
    min_frames: Annotated[int, Range(ge=0)] = 0
    """Fewest frames, before any division; 0: no lower bound."""
    max_frames: Annotated[int, Range(ge=0)] = 0
    """Most frames, before any division; 0: no upper bound."""
    sampled: SampledFrames = SampledFrames()
    """Parameters of ``mode: sampled``."""
    strided: StridedFrames = StridedFrames()
    """Parameters of ``mode: strided``."""


@params
class VideoEstimate:
    """How clips are priced: frames times tokens per frame, capped."""

    default_resolution: Resolution = Resolution()
    """The size of a clip whose header does not say."""
    default_duration: Annotated[float, Range(gt=0)] = DEFAULT_DURATION_S
    """Seconds of a clip whose header does not say."""
    tokens_per_frame: FrameTokens = FrameTokens()
    """How a frame is priced."""
    frames: FrameCount = FrameCount()
    """How many frames are priced."""
    max_video_tokens: Annotated[int, Range(ge=0)] = 0
    """Most tokens of a clip; 0: no cap."""


@dataclass(frozen=True, slots=True)
class Estimated:
    """A price by llm-d's rule, and how well the size behind it is known."""

    num_tokens: int
    size_basis: Basis
    reason: str | None = None


def estimate_image(item: MediaItem, rule: ImageEstimate) -> Estimated:
    """Tokens of an image; at least 1."""
    if rule.mode == "static":
        return Estimated(rule.static.static_token, Basis.EXACT)
    if item.width is not None and item.height is not None:
        return Estimated(_by_area(item.width, item.height, rule.dynamic), Basis.EXACT)
    default = rule.default_resolution
    tokens = _by_area(default.width, default.height, rule.dynamic)
    return Estimated(tokens, Basis.DEFAULT, item.reason or "default-resolution")


def estimate_video(rule: VideoEstimate, headers: Mapping[str, str]) -> Estimated:
    """Tokens of a clip by the three ``x-llm-d-video-*`` headers; at least 1.

    The clamp comes before the division by ``temporalPatchSize``, as in llm-d. A
    header value that is no positive number within bounds is as good as absent,
    and ``reason`` then says ``invalid-header``; a header that the rule does not
    ask for is not looked at.
    """
    duration = positive_number(headers.get(DURATION_HEADER), largest=MAX_DURATION_S)
    size = parse_resolution(headers.get(RESOLUTION_HEADER))
    fps = positive_number(headers.get(FPS_HEADER), largest=MAX_FPS)
    resolution = size or (rule.default_resolution.width, rule.default_resolution.height)
    frames = _num_frames(rule.frames, duration or rule.default_duration, fps)
    per_frame = rule.tokens_per_frame
    by_area = per_frame.mode == "dynamic"
    each = _by_area(*resolution, per_frame.dynamic) if by_area else per_frame.static.num_tokens_per_frame
    tokens = frames * each
    if rule.max_video_tokens:
        tokens = min(tokens, rule.max_video_tokens)
    asked = [(DURATION_HEADER, duration, True), (RESOLUTION_HEADER, size, by_area)]
    asked.append((FPS_HEADER, fps, rule.frames.mode == "strided"))
    if any(is_asked and value is None and headers.get(name) for name, value, is_asked in asked):
        return Estimated(max(1, tokens), Basis.DEFAULT, "invalid-header")
    if duration is None or (by_area and size is None):
        return Estimated(max(1, tokens), Basis.DEFAULT, "default-video")
    return Estimated(max(1, tokens), Basis.DECLARED, "header")


def estimate_audio(item: MediaItem) -> Estimated:
    """What llm-d says of a sound: a quarter of its base64 text and its format's name, whatever it lasts; at least 1.

    A link has no text, so it is 1. llm-d also says 1 of an ``audio_url`` that holds
    a data URI, which an item here does not tell from ``input_audio``.

    >>> ten_seconds = MediaItem(modality=Modality.AUDIO, format="wav", identifier="a", num_bytes=320_044)
    >>> estimate_audio(ten_seconds).num_tokens
    106683
    """
    num_chars = -(-item.num_bytes // 3) * 4 + len(item.format or "")
    return Estimated(max(1, -(-num_chars // 4)), Basis.EXACT if item.num_bytes else Basis.DEFAULT)


def estimate(item: MediaItem, image: ImageEstimate, video: VideoEstimate, headers: Mapping[str, str]) -> Estimated:
    """Tokens of any item by llm-d's rule."""
    match item.modality:
        case Modality.IMAGE:
            return estimate_image(item, image)
        case Modality.VIDEO:
            return estimate_video(video, headers)
        case Modality.AUDIO:
            return estimate_audio(item)


def parse_resolution(text: str | None) -> tuple[int, int] | None:
    """``WIDTHxHEIGHT`` in pixels, each 1..65,536; nothing for anything else.

    >>> parse_resolution("1280X720"), parse_resolution("0x720"), parse_resolution("99999x2")
    ((1280, 720), None, None)
    """
    sides = re.fullmatch(r"\s*(\d{1,5})\s*[xX]\s*(\d{1,5})\s*", text or "", re.ASCII)
    if sides is None:
        return None
    width, height = int(sides[1]), int(sides[2])
    return (width, height) if 0 < width <= MAX_SIDE and 0 < height <= MAX_SIDE else None


def _by_area(width: int, height: int, rule: Dynamic) -> int:
    return max(1, width * height // rule.factor)


def _num_frames(rule: FrameCount, duration_s: float, fps: float | None) -> int:
    if rule.mode == "sampled":
        clamped = _clamp(int(duration_s * rule.sampled.sample_fps), rule)
        return clamped // rule.sampled.temporal_patch_size
    strided = rule.strided
    return _clamp(int(duration_s * (fps or strided.default_source_fps)) // strided.frame_stride, rule)


def _clamp(frames: int, rule: FrameCount) -> int:
    frames = max(frames, rule.min_frames)
    return min(frames, rule.max_frames) if rule.max_frames else frames
