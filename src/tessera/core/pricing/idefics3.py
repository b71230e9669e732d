"""How many tokens does an image cost in Idefics3?"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Refused, known, number
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, NO_AREA, flag, side, square

MAX_EDGE = 4096
"""Pixels a side above which the processor never goes. Source: transformers 5.18.0, Idefics3ImageProcessor."""
TILE_MARKERS = 2
"""Before each tile: a marker, and the tile's row and column."""
GLOBAL_MARKERS = 3
"""Around the whole image: two markers, and a name."""


@plugin("idefics3")
class Idefics3(Family):
    """Idefics3: the longer side is scaled, up or down, to a whole number of tiles; the whole image comes last.

    A row of tiles ends with a line end; the two after the last row are one token.
    Source: preprocessor_config.json of HuggingFaceM4/Idefics3-8B-Llama3;
    transformers 5.18.0, Idefics3ImageProcessor and Idefics3Processor.
    """

    architectures = frozenset({"Idefics3ForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("idefics3",)

    longest_edge: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 1456
    """Pixels to which the longer side is scaled (``size.longest_edge``)."""
    max_image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 364
    """Pixels along a side of one tile (``max_image_size.longest_edge``)."""
    image_seq_len: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 169
    """Embeddings of one tile."""
    do_image_splitting: bool = True
    """Whether an image is cut into tiles at all."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """The processor's files; without ``image_seq_len`` there, it follows from config.json."""
        return known(
            longest_edge=square(files.image, "size"),
            max_image_size=square(files.image, "max_image_size"),
            image_seq_len=side(files.processor, "image_seq_len") or _image_seq_len(files),
            do_image_splitting=flag(files.image, "do_image_splitting"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``size``, ``max_image_size``, ``do_image_splitting``."""
        given = scoped(kwargs, "images_kwargs")
        return known(
            longest_edge=square(given, "size"),
            max_image_size=square(given, "max_image_size"),
            do_image_splitting=flag(given, "do_image_splitting"),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """Tiles with their markers, a line end a row, and the whole image; other images do not change it.

        >>> Idefics3().image(1280, 720)
        Count(num_tokens=2227, num_embeds=2197, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        columns, rows = self._grid(width, height) if self.do_image_splitting else (1, 1)
        tiles, line_ends = (columns * rows, rows) if columns * rows > 1 else (0, 0)
        embeds = (tiles + 1) * self.image_seq_len
        return Count(num_tokens=embeds + tiles * TILE_MARKERS + line_ends + GLOBAL_MARKERS, num_embeds=embeds)

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Columns and rows of tiles, each at least 1."""
        width, height = _scaled(width, height, self.longest_edge, multiple=2)
        if max(width, height) > MAX_EDGE:
            width, height = _scaled(width, height, MAX_EDGE)
        tiles = -(-max(width, height) // self.max_image_size)
        width, height = _scaled(width, height, tiles * self.max_image_size)
        return -(-width // self.max_image_size), -(-height // self.max_image_size)


def _scaled(width: int, height: int, edge: int, *, multiple: int = 1) -> tuple[int, int]:
    """The size whose longer side is ``edge``.

    The shorter side is cut off to a whole number, rounded up to a ``multiple`` of 1 or 2, and at least 1.
    """
    aspect = width / height
    shorter = int(edge / aspect) if width >= height else int(edge * aspect)
    shorter = max(1, shorter + shorter % multiple)
    return (edge, shorter) if width >= height else (shorter, edge)


def _image_seq_len(files: ModelFiles) -> int | None:
    size, patch = side(files.vision, "image_size"), side(files.vision, "patch_size")
    scale = number(files.config, "scale_factor")
    if size is None or patch is None or scale is None:
        return None
    return (size // patch) ** 2 // scale**2 or None
