"""What does a format parser answer? A size in displayed pixels, or the reason why there is none."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tessera.core.errors import TesseraError

MAX_PIXELS: Final = 178_956_970
"""Pictures with more pixels are refused by the engine.

Source: ``VLLM_MAX_IMAGE_PIXELS`` of vLLM 0.32.0, which is also twice Pillow's ``MAX_IMAGE_PIXELS``.
"""


class Reason(StrEnum):
    """Why an item has no size, or no length."""

    UNKNOWN_FORMAT = "unknown-format"
    """Neither a parser of ours knows the first bytes, nor Pillow where it was asked."""
    TRUNCATED_HEADER = "truncated-header"
    """The content ends before the header does."""
    BAD_HEADER = "bad-header"
    """The header says something that no decoder accepts: a side of zero, five colour components."""
    HEADER_LIMIT = "header-limit"
    """The header is longer than a parser may look."""
    TOO_MANY_PIXELS = "too-many-pixels"
    """More than ``MAX_PIXELS``."""
    REFUSED_FORMAT = "refused-format"
    """A format that is known, and that the engine does not accept."""
    SLOW_FORMAT = "slow-format"
    """No parser of ours knows the first bytes; Pillow may, but was not asked: it must not run on an event loop."""
    NEEDS_PILLOW = "needs-pillow"
    """Pillow would have been asked, but is not installed (extra ``demo``)."""
    BAD_BASE64 = "bad-base64"
    """The content is neither base64 of any alphabet nor a well-formed data URI."""
    LINK = "link"
    """Only a URL is known, and it is not fetched."""
    UUID_ONLY = "uuid-only"
    """The client names an item that the engine is to hold already."""
    NO_CONTENT = "no-content"
    """Neither content nor link nor uuid."""
    EMBEDS = "embeds"
    """The content is a tensor that stands in for the encoder's output."""
    NO_DURATION = "no-duration"
    """The container does not say how long the sound or the clip is."""


class Unsized(TesseraError):
    """A parser gives up; never leaves this folder."""

    def __init__(self, reason: Reason) -> None:
        self.reason: Final = reason
        super().__init__(reason.value)


@dataclass(frozen=True, slots=True)
class Size:
    """Pixels, as displayed: after the rotation that the EXIF orientation asks for."""

    width: int
    height: int


def check_sides(width: int, height: int) -> None:
    """Refuse what the engine refuses, before the rest of a header is walked.

    Raises:
        Unsized: a side is zero, or the picture has more than ``MAX_PIXELS``.
    """
    if width <= 0 or height <= 0:
        raise Unsized(Reason.BAD_HEADER)
    if width * height > MAX_PIXELS:
        raise Unsized(Reason.TOO_MANY_PIXELS)


def displayed(width: int, height: int, orientation: int) -> Size:
    """The size after rotation: orientations 5 to 8 swap the sides, every other value leaves them.

    Source: EXIF 2.3, tag 0x0112; what ``PIL.ImageOps.exif_transpose`` does.

    >>> displayed(317, 203, 6)
    Size(width=203, height=317)
    """
    return Size(height, width) if 5 <= orientation <= 8 else Size(width, height)
