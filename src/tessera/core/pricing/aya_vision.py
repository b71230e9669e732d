"""How many tokens does an image cost in Aya Vision?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.closest_aspect import closest_aspect
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, flag, num_tiles, side, square

NUM_MARKERS = 2
"""Start and end of the image; each tile has its own name before it, one token more."""


@plugin("aya-vision")
class AyaVision(Family):
    """Aya Vision 8B and 32B: tiles by InternVL's rule, each with its name, and a thumbnail.

    vLLM serves it up to 0.24.0.
    Source: processor_config.json of the published models; transformers 5.18.0,
    GotOcr2ImageProcessor and AyaVisionProcessor.
    """

    architectures = frozenset({"AyaVisionForConditionalGeneration"})
    model_names = ("aya-vision",)

    img_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 364
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    downsample_factor: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 2
    """Patches along a side that are merged into one token."""
    min_patches: Annotated[int, Range(ge=1, le=MAX_TILES)] = 1
    """Fewest tiles of an image."""
    max_patches: Annotated[int, Range(ge=1, le=MAX_TILES)] = 12
    """Most tiles of an image, thumbnail not counted."""
    crop_to_patches: bool = True
    """Whether an image is cut into tiles at all."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """processor_config.json for what a tile costs, preprocessor_config.json for how many there are."""
        return known(
            img_size=side(files.processor, "img_size") or square(files.image, "size"),
            patch_size=side(files.processor, "patch_size") or side(files.vision, "patch_size"),
            downsample_factor=side(files.processor, "downsample_factor") or side(files.config, "downsample_factor"),
            min_patches=num_tiles(files.image, "min_patches"),
            max_patches=num_tiles(files.image, "max_patches"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``min_patches``, ``max_patches``, ``crop_to_patches``."""
        given = scoped(kwargs, "images_kwargs")
        return known(
            min_patches=num_tiles(given, "min_patches"),
            max_patches=num_tiles(given, "max_patches"),
            crop_to_patches=flag(given, "crop_to_patches"),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """Each tile costs its embeddings and its name; other images do not change it.

        >>> AyaVision().image(1280, 720)
        Count(num_tokens=1532, num_embeds=1521, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        tiles = 1
        if self.crop_to_patches and self.max_patches > 1:
            least, most = self.min_patches, self.max_patches
            columns, rows = closest_aspect(width, height, tile=self.img_size, least=least, most=most)
            tiles = columns * rows + 1 if columns * rows > 1 else 1
        embeds = tiles * max(1, (self.img_size // (self.patch_size * self.downsample_factor)) ** 2)
        return Count(num_tokens=embeds + tiles + NUM_MARKERS, num_embeds=embeds)
