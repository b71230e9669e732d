"""Into how many cells does the smart resize of Qwen and GLM cut a picture, or each pair of a clip's frames?"""

import math

from tessera.core.family import Refused
from tessera.core.pricing.sizes import NO_AREA

MAX_ASPECT_RATIO = 200
"""Longer side over shorter side that the processors still take. Source: transformers 5.18.0, Qwen2VLImageProcessor."""

LARGEST_SIDE = 1 << 40
"""Pixels of a side above which no rule is asked."""


def num_cells(width: int, height: int, unit: int, min_pixels: int, max_pixels: int) -> int | Refused:
    """``columns x rows`` of a picture: see ``cells``.

    >>> num_cells(1280, 720, 32, 65_536, 16_777_216)
    880
    """
    found = cells(width, height, unit, min_pixels, max_pixels)
    return found if isinstance(found, Refused) else found[0] * found[1]


def cells(width: int, height: int, unit: int, min_pixels: int, max_pixels: int) -> tuple[int, int] | Refused:
    """Columns and rows of a picture whose sides become whole cells of ``unit`` pixels and whose area fits the limits.

    A side rounds half to even, as Python's ``round`` does. The area of what comes
    out is at most ``max_pixels``, except that a side is never less than one cell.
    Swapping the sides swaps the cells.
    Source: transformers 5.18.0, Qwen2VLImageProcessor.

    >>> cells(1280, 720, 32, 65_536, 16_777_216)
    (40, 22)
    """
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        return no_sides(width, height)
    ratio = max(width, height) / min(width, height)
    if ratio > MAX_ASPECT_RATIO:
        return _too_long(ratio)
    columns, rows = round(width / unit), round(height / unit)
    area = columns * rows * unit * unit
    if area > max_pixels:
        shrink = math.sqrt(width * height / max_pixels)
        return max(1, math.floor(width / shrink / unit)), max(1, math.floor(height / shrink / unit))
    if area < min_pixels:
        grow = math.sqrt(min_pixels / (width * height))
        return math.ceil(width * grow / unit), math.ceil(height * grow / unit)
    return columns, rows


def num_cells_of_frames(
    width: int,
    height: int,
    unit: int,
    min_volume: int,
    max_volume: int,
    *,
    num_frames: int,
    group: int,
) -> int | Refused:
    """``columns x rows`` of one frame of a clip whose whole volume (pixels of all its frames) fits the limits.

    ``group`` frames become one step in time. A frame with a side below one cell is
    scaled up first. GLM treats a picture as a clip of one group.
    Source: transformers 5.18.0, Qwen3VLVideoProcessor, Glm4vImageProcessor.

    >>> num_cells_of_frames(1280, 720, 32, 4_096, 25_165_824, num_frames=120, group=2)
    190
    """
    if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
        return no_sides(width, height)
    if num_frames < group:
        return Refused(f"a clip of {num_frames} sampled frames is shorter than one group of {group}")
    if width < unit or height < unit:
        scale = max(unit / height, unit / width)
        width, height = int(width * scale), int(height * scale)
    ratio = max(width, height) / min(width, height)
    if ratio > MAX_ASPECT_RATIO:
        return _too_long(ratio)
    columns, rows = round(width / unit), round(height / unit)
    volume = round(num_frames / group) * group * columns * rows * unit * unit
    if volume > max_volume:
        shrink = math.sqrt(num_frames * width * height / max_volume)
        return max(1, math.floor(width / shrink / unit)) * max(1, math.floor(height / shrink / unit))
    if volume < min_volume:
        grow = math.sqrt(min_volume / (num_frames * width * height))
        return math.ceil(width * grow / unit) * math.ceil(height * grow / unit)
    return columns * rows


def no_sides(width: int, height: int) -> Refused:
    """Why no processor could take a picture whose sides are not within 1..2^40."""
    return NO_AREA if min(width, height) < 1 else Refused(f"an image of more than {LARGEST_SIDE} pixels a side")


def _too_long(ratio: float) -> Refused:
    return Refused(f"aspect ratio {ratio:.1f} is above {MAX_ASPECT_RATIO}")
