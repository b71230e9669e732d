"""How many tokens does an image cost in a Qwen vision-language model?"""

import math
from collections.abc import Iterator
from typing import Annotated

from tessera.core.family import Count, Family, Refused
from tessera.core.plugin import Range, plugin

MAX_ASPECT_RATIO = 200
"""Longer side over shorter side that the processor still takes. Source: transformers 5.18.0, Qwen2VLImageProcessor."""

NUM_WRAPPER_TOKENS = 2
"""``<|vision_start|>`` and ``<|vision_end|>``, which the chat template puts around each item."""


@plugin("qwen3-vl")
class Qwen3VL(Family):
    """Qwen3-VL, dense and MoE, and every Qwen model that resizes as it does.

    The image is resized so that both sides are whole cells of ``patch_size x
    merge_size`` pixels and its area lies within the limits; a cell is one token.
    Defaults are the published values of Qwen3-VL: a token covers 32 x 32 pixels,
    an image costs 64 to 16,384 tokens.
    Source: preprocessor_config.json of the Qwen3-VL models; transformers 5.18.0.
    """

    patch_size: Annotated[int, Range(ge=1)] = 16
    """Pixels along a side of one encoder patch."""
    merge_size: Annotated[int, Range(ge=1)] = 2
    """Patches along a side that are merged into one token."""
    min_pixels: Annotated[int, Range(ge=1)] = 65_536
    """Smallest area after resizing (``size.shortest_edge``); smaller images are scaled up."""
    max_pixels: Annotated[int, Range(ge=1)] = 16_777_216
    """Largest area after resizing (``size.longest_edge``); larger images are scaled down."""

    def check(self) -> Iterator[tuple[str, str]]:
        """The limits must leave room."""
        if self.min_pixels > self.max_pixels:
            yield "minPixels", f"is {self.min_pixels}, more than maxPixels {self.max_pixels}; swap them"

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; other images do not change it.

        >>> Qwen3VL().image(1280, 720)
        Count(num_tokens=880, num_embeds=880, num_wrapper_tokens=2)
        """
        if width < 1 or height < 1:
            return Refused(f"an image of {width}x{height} pixels has no area")
        ratio = max(width, height) / min(width, height)
        if ratio > MAX_ASPECT_RATIO:
            return Refused(f"aspect ratio {ratio:.1f} is above {MAX_ASPECT_RATIO}")
        cells = self._cells(width, height)
        return Count(num_tokens=cells, num_embeds=cells, num_wrapper_tokens=NUM_WRAPPER_TOKENS)

    def _cells(self, width: int, height: int) -> int:
        """Cells of the resized image; a side rounds half to even, as Python's ``round`` does."""
        unit = self.patch_size * self.merge_size
        columns, rows = round(width / unit), round(height / unit)
        area = columns * rows * unit * unit
        if area > self.max_pixels:
            shrink = math.sqrt(width * height / self.max_pixels)
            return max(1, math.floor(width / shrink / unit)) * max(1, math.floor(height / shrink / unit))
        if area < self.min_pixels:
            grow = math.sqrt(self.min_pixels / (width * height))
            return math.ceil(width * grow / unit) * math.ceil(height * grow / unit)
        return columns * rows


@plugin("qwen2-vl", aliases=("qwen2.5-vl",))
class Qwen2VL(Qwen3VL):
    """Qwen2-VL and Qwen2.5-VL: the rule of Qwen3-VL with cells of 28 x 28 pixels, 4 to 16,384 tokens an image.

    Source: preprocessor_config.json of the published models. The processor class
    itself defaults to ``maxPixels`` 1,003,520, which a model without that file gets.
    """

    patch_size: Annotated[int, Range(ge=1)] = 14
    """Pixels along a side of one encoder patch."""
    min_pixels: Annotated[int, Range(ge=1)] = 3_136
    """Smallest area after resizing."""
    max_pixels: Annotated[int, Range(ge=1)] = 12_845_056
    """Largest area after resizing."""
