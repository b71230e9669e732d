"""How many tokens does an image cost in Command-A Vision?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.best_canvas import best_canvas
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, flag, num_tiles, side, square

NUM_MARKERS = 2
"""Start and end of the image; each tile ends with a line break, one token more."""


@plugin("command-a-vision")
class CommandAVision(Family):
    """Command-A Vision: a canvas of square tiles, and a thumbnail.

    Source: transformers 5.18.0, Cohere2VisionImageProcessor and Cohere2VisionProcessor, whose defaults these are.
    """

    architectures = frozenset({"Cohere2VisionForConditionalGeneration"})
    model_names = ("command-a-vision",)

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 512
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 16
    """The processor takes the square of this number for the embeddings of one tile."""
    max_patches: Annotated[int, Range(ge=1, le=MAX_TILES)] = 12
    """Most tiles of an image, thumbnail not counted."""
    crop_to_patches: bool = True
    """Whether an image is cut into tiles at all."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """preprocessor_config.json."""
        return known(
            image_size=square(files.image, "size") or side(files.vision, "image_size"),
            patch_size=side(files.image, "patch_size") or side(files.vision, "patch_size"),
            max_patches=num_tiles(files.image, "max_patches"),
            crop_to_patches=flag(files.image, "crop_to_patches"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``max_patches``, ``crop_to_patches``."""
        given = scoped(kwargs, "images_kwargs")
        return known(max_patches=num_tiles(given, "max_patches"), crop_to_patches=flag(given, "crop_to_patches"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """Each tile costs its embeddings and a line break; other images do not change it.

        >>> CommandAVision().image(1280, 720)
        Count(num_tokens=1801, num_embeds=1792, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        tiles = 1
        if self.crop_to_patches:
            columns, rows = best_canvas(width, height, tile=self.image_size, most=self.max_patches)
            tiles = columns * rows + 1 if columns * rows > 1 else 1
        embeds = tiles * self.patch_size**2
        return Count(num_tokens=embeds + tiles + NUM_MARKERS, num_embeds=embeds)
