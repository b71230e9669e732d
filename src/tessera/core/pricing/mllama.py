"""How many tokens does an image cost in Llama 3.2 Vision?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.best_canvas import best_canvas
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, num_tiles, side, square


@plugin("mllama")
class Mllama(Family):
    """Llama 3.2 Vision, 11B and 90B: one prompt token an image, which the model reads by cross-attention.

    vLLM serves it up to 0.10.2.
    Source: preprocessor_config.json of the published models; transformers 5.18.0, MllamaImageProcessor.
    """

    architectures = frozenset({"MllamaForConditionalGeneration"})
    model_names = ("llama-3.2-11b-vision", "llama-3.2-90b-vision")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 560
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    max_image_tiles: Annotated[int, Range(ge=1, le=MAX_TILES)] = 4
    """Most tiles of a canvas."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """Tiles from the processor's files, patches from ``vision_config``."""
        return known(
            image_size=square(files.image, "size") or side(files.vision, "image_size"),
            patch_size=side(files.vision, "patch_size"),
            max_image_tiles=num_tiles(files.image, "max_image_tiles") or num_tiles(files.vision, "max_num_tiles"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``size`` and ``max_image_tiles``."""
        given = scoped(kwargs, "images_kwargs")
        return known(image_size=square(given, "size"), max_image_tiles=num_tiles(given, "max_image_tiles"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """One token; a tile is its patches and one class token, all read by cross-attention.

        >>> Mllama().image(1280, 720)
        Count(num_tokens=1, num_embeds=6404, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        columns, rows = best_canvas(width, height, tile=self.image_size, most=self.max_image_tiles)
        tile_embeds = (self.image_size // self.patch_size) ** 2 + 1
        return Count(num_tokens=1, num_embeds=columns * rows * tile_embeds)
