"""How many tokens does an image cost in Pixtral?"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from tessera.core.family import Count, Family, ModelFiles, Refused, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, NO_AREA, side, square


@plugin("pixtral")
class Pixtral(Family):
    """Pixtral 12B and Pixtral Large: one token a patch, and one at the end of each row of patches.

    An image whose longer side is above ``longestEdge`` is shrunk to it; none is
    enlarged. A model in Mistral's own format (params.json) rounds the shrunk
    sides, one in Hugging Face's format cuts them off: up to a row or a column
    of difference.
    Source: published params.json and preprocessor_config.json; transformers
    5.18.0, PixtralImageProcessor; mistral_common 1.13.1, ImageEncoder.
    """

    architectures = frozenset({"PixtralForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("pixtral",)

    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 16
    """Pixels along a side of one encoder patch."""
    spatial_merge_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1
    """Patches along a side that are merged into one token."""
    longest_edge: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1024
    """Pixels of the longer side that are not shrunk."""
    rounding: Literal["floor", "round"] = "floor"
    """How a shrunk side becomes whole: ``floor`` with config.json, ``round`` (half to even) with params.json."""

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """Pixtral's class, LLaVA's class around Pixtral's encoder, or a params.json whose encoder merges nothing."""
        encoder = section(files.params, "vision_encoder")
        around_pixtral = "LlavaForConditionalGeneration" in files.architectures
        return (
            super().matches(files)
            or (around_pixtral and files.vision.get("model_type") == "pixtral")
            or (not files.architectures and bool(encoder) and number(encoder, "spatial_merge_size") in {None, 1})
        )

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """From ``vision_encoder`` of params.json, which vLLM prefers; else from config.json and the processor's files.

        The edge of the processor goes before that of the encoder.
        """
        encoder = section(files.params, "vision_encoder")
        if encoder:
            return known(
                patch_size=side(encoder, "patch_size"),
                spatial_merge_size=side(encoder, "spatial_merge_size"),
                longest_edge=side(encoder, "max_image_size") or side(encoder, "image_size"),
                rounding="round",
            )
        return known(
            patch_size=side(files.vision, "patch_size") or square(files.image, "patch_size"),
            spatial_merge_size=side(files.config, "spatial_merge_size") or side(files.processor, "spatial_merge_size"),
            longest_edge=square(files.image, "size") or side(files.vision, "image_size"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``size``."""
        return known(longest_edge=square(scoped(kwargs, "images_kwargs"), "size"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``rows * (columns + 1)`` tokens, ``rows * columns`` embeddings; other images do not change it.

        Refused where ``floor`` leaves nothing of the shorter side.

        >>> Pixtral().image(1280, 720)
        Count(num_tokens=2340, num_embeds=2304, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        ratio = max(width, height) / self.longest_edge
        if ratio > 1:
            width, height = self._shrunk(width, ratio), self._shrunk(height, ratio)
            if width < 1 or height < 1:
                return Refused(f"an image of {ratio:.0f} times {self.longest_edge} pixels is shrunk to a line")
        unit = self.patch_size * self.spatial_merge_size
        columns, rows = (width - 1) // unit + 1, (height - 1) // unit + 1
        return Count(num_tokens=rows * (columns + 1), num_embeds=rows * columns)

    def _shrunk(self, pixels: int, ratio: float) -> int:
        if self.rounding == "round":
            return max(1, round(pixels / ratio))
        return math.floor(pixels / ratio)
