"""How many tokens does an image cost in MiniCPM-V 4.6?"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Literal

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, flag, num_tiles, side

NUM_MERGED = 4
"""Patches along a side that two merges make one token."""
VIEW_MARKERS = 2
"""Start and end of the whole image, and of each slice."""
ID_TOKENS = 3
"""``<image_id>0</image_id>`` before each image; the tenth image and later ones cost one token more."""


@plugin("minicpm-v-4.6")
class MiniCPMV46(Family):
    """MiniCPM-V 4.6: the whole image at about 448 x 448 pixels, and up to nine slices of that size.

    Source: transformers 5.18.0, MiniCPMV4_6ImageProcessor and MiniCPMV4_6Processor, whose defaults these are.
    """

    architectures = frozenset({"MiniCPMV4_6ForConditionalGeneration"})
    model_names = ("minicpm-v-4.6", "minicpm-v-4-6")

    scale_resolution: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 448
    """Pixels along a side of a square slice; others have the same area."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    max_slice_nums: Annotated[int, Range(ge=1, le=MAX_TILES)] = 9
    """Most slices of an image."""
    slice_mode: bool = True
    """Whether an image is sliced at all."""
    downsample_mode: Literal["16x", "4x"] = "16x"
    """Patches that become one token."""
    use_image_id: bool = True
    """Whether each image has its number before it."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """preprocessor_config.json."""
        return known(patch_size=side(files.image, "patch_size"), **cls.from_kwargs(files.image))

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``scale_resolution``, ``max_slice_nums``, ``slice_mode``, ``downsample_mode``, ``use_image_id``."""
        given = scoped(kwargs, "images_kwargs")
        mode = given.get("downsample_mode")
        return known(
            scale_resolution=side(given, "scale_resolution"),
            max_slice_nums=num_tiles(given, "max_slice_nums"),
            slice_mode=flag(given, "slice_mode"),
            downsample_mode=mode if mode in ("16x", "4x") else None,
            use_image_id=flag(given, "use_image_id"),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The whole image and its slices, each with two markers; a line end between two rows of slices.

        >>> MiniCPMV46().image(1280, 720)
        Count(num_tokens=462, num_embeds=444, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        columns, rows = self._slices(width, height) if self.slice_mode else (0, 0)
        embeds = self._view(width, height, enlarge=not rows)
        markers = VIEW_MARKERS + ID_TOKENS * self.use_image_id
        if rows:
            embeds += columns * rows * self._view(_slice(width, columns), _slice(height, rows), enlarge=True)
            markers += columns * rows * VIEW_MARKERS + rows - 1
        return Count(num_tokens=embeds + markers, num_embeds=embeds)

    def _slices(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of slices; none where the image is small enough."""
        area = self.scale_resolution * self.scale_resolution
        num_slices = min(math.ceil(width * height / area), self.max_slice_nums)
        if num_slices <= 1:
            return 0, 0
        aspect = math.log(width / height)
        best, least_error = (1, 1), math.inf
        for columns, rows, log_ratio in _grids(num_slices, self.max_slice_nums):
            error = abs(aspect - log_ratio)
            if error < least_error or (error == least_error and rows > best[1]):
                best, least_error = (columns, rows), error
        return best

    def _view(self, width: float, height: float, *, enlarge: bool) -> int:
        """Embeddings of one view: its sides are whole cells after scaling to the area of a slice."""
        if enlarge or width * height > self.scale_resolution * self.scale_resolution:
            aspect = width / height
            height = int(self.scale_resolution / math.sqrt(aspect))
            width = int(height * aspect)
        cell = self.patch_size * NUM_MERGED
        cells = max(1, round(width / cell)) * max(1, round(height / cell))
        return cells if self.downsample_mode == "16x" else cells * 4


def _slice(pixels: int, parts: int) -> float:
    """One of ``parts`` equal parts, after rounding the side to a multiple of them."""
    return max(parts, round(pixels / parts) * parts) / parts


@lru_cache(maxsize=64)
def _grids(num_slices: int, most: int) -> tuple[tuple[int, int, float], ...]:
    """Columns, rows and the logarithm of their ratio, of every grid with one slice less, as many, or one more."""
    return tuple(
        (total // rows, rows, math.log(total // rows / rows))
        for total in (num_slices - 1, num_slices, num_slices + 1)
        if 1 < total <= most
        for rows in range(1, total + 1)
        if total % rows == 0
    )
