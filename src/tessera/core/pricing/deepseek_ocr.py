"""How many tokens does an image cost in DeepSeek-OCR?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.closest_aspect import closest_aspect
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, flag

UNIT = 64
"""Pixels along a side of one token: 4 patches of 16."""


@plugin("deepseek-ocr")
class DeepseekOCR(Family):
    """DeepSeek-OCR in the mode that vLLM serves (Gundam): a view of 1024 pixels, and tiles of 640 for larger images.

    vLLM reads none of this from the model's files.
    Source: vLLM 0.32.0, processors/deepseek_ocr.py and deepseek_ocr.py, where these are constants.
    """

    architectures = frozenset({"DeepseekOCRForCausalLM"})
    needs_processor = False
    model_names = ("deepseek-ocr",)

    base_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1024
    """Pixels along a side of the view of the whole image."""
    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 640
    """Pixels along a side of one tile; an image that fits into one is not cut."""
    min_crops: Annotated[int, Range(ge=1, le=MAX_TILES)] = 2
    """Fewest tiles of an image that is cut."""
    max_crops: Annotated[int, Range(ge=1, le=MAX_TILES)] = 6
    """Most tiles of an image."""
    crop_mode: bool = True
    """Whether an image is cut into tiles at all."""

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``crop_mode``."""
        return known(crop_mode=flag(scoped(kwargs, "images_kwargs"), "crop_mode"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The view and the tiles, each with a line end a row, and a separator; other images do not change it.

        >>> DeepseekOCR().image(1280, 720), DeepseekOCR().image(640, 480).num_tokens
        (Count(num_tokens=483, num_embeds=483, num_wrapper_tokens=0), 273)
        """
        if width < 1 or height < 1:
            return NO_AREA
        view = -(-self.base_size // UNIT)
        tokens = view * (view + 1) + 1
        if self.crop_mode and max(width, height) > self.image_size:
            least, most = self.min_crops, self.max_crops
            columns, rows = closest_aspect(width, height, tile=self.image_size, least=least, most=most)
            if columns * rows > 1:
                grid = -(-self.image_size // UNIT)
                tokens += rows * grid * (columns * grid + 1)
        return Count(num_tokens=tokens, num_embeds=tokens)
