"""How many tokens does an image cost in Llama 4?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.best_canvas import best_canvas
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import (
    MAX_SIDE,
    MAX_TILES,
    NO_AREA,
    flag,
    fraction,
    num_tiles,
    side,
    square,
)


@plugin("llama4")
class Llama4(Family):
    """Llama 4 Scout and Maverick: a canvas of square tiles, and the whole image once more as one tile.

    Source: preprocessor_config.json of the published models; transformers
    5.18.0, Llama4ImageProcessor and Llama4Processor.
    """

    architectures = frozenset({"Llama4ForConditionalGeneration"})
    model_names = ("llama-4", "llama4")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 336
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    pixel_shuffle_ratio: Annotated[float, Range(ge=0.01, le=1)] = 0.5
    """What is left of a side, in patches, when patches are merged."""
    max_patches: Annotated[int, Range(ge=1, le=MAX_TILES)] = 16
    """Most tiles of a canvas."""
    resize_to_max_canvas: bool = False
    """Whether an image is enlarged as far as any canvas allows."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """Tiles from the processor's files; what a tile costs from ``vision_config``."""
        return known(
            image_size=side(files.vision, "image_size") or square(files.image, "size"),
            patch_size=side(files.vision, "patch_size") or side(files.processor, "patch_size"),
            pixel_shuffle_ratio=fraction(files.vision, "pixel_shuffle_ratio")
            or fraction(files.processor, "pixel_shuffle_ratio"),
            max_patches=num_tiles(files.image, "max_patches"),
            resize_to_max_canvas=flag(files.image, "resize_to_max_canvas"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``max_patches`` and ``resize_to_max_canvas``."""
        given = scoped(kwargs, "images_kwargs")
        return known(
            max_patches=num_tiles(given, "max_patches"), resize_to_max_canvas=flag(given, "resize_to_max_canvas")
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The whole image as one tile and three markers; a canvas of n > 1 tiles adds n tiles and n separators.

        >>> Llama4().image(1280, 720)
        Count(num_tokens=1887, num_embeds=1872, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        columns, rows = best_canvas(
            width, height, tile=self.image_size, most=self.max_patches, largest=self.resize_to_max_canvas
        )
        tiles = columns * rows if columns * rows > 1 else 0
        embeds = (tiles + 1) * self._tile_embeds()
        return Count(num_tokens=embeds + tiles + 3, num_embeds=embeds)

    def _tile_embeds(self) -> int:
        """Embeddings of one tile, at least 1."""
        patches = (self.image_size // self.patch_size) ** 2
        return max(1, patches // round(1 / self.pixel_shuffle_ratio**2))
