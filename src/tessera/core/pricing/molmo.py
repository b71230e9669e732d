"""How many tokens does an image cost in Molmo?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.best_canvas import best_canvas
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, num_tiles, side

POOLING = 2
"""Patches along a side that are pooled into one token."""
NUM_MARKERS = 2
"""Start and end, of the whole image and of the tiles."""


@plugin("molmo")
class Molmo(Family):
    """Molmo 7B-O, 7B-D and 72B, MolmoE 1B: the whole image, then up to twelve overlapping tiles.

    A tile reaches into its neighbours by the margins; what only reaches is not counted.
    Source: preprocessor_config.json of allenai/Molmo-7B-D-0924; vLLM 0.32.0, molmo.py.
    """

    architectures = frozenset({"MolmoForCausalLM"})
    model_names = ("molmo-7b", "molmo-72b", "molmoe-1b")

    base_image_input_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 336
    """Pixels along a side of one tile, margins included."""
    image_patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    overlap_margins: tuple[int, int] = (4, 4)
    """Patches by which a tile reaches into the one before, and into the one after."""
    max_crops: Annotated[int, Range(ge=1, le=MAX_TILES)] = 12
    """Most tiles of an image."""
    image_token_length: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 12
    """Tokens along a side of the whole image (``image_token_length_w`` and ``_h``)."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """preprocessor_config.json; settings that leave no tile are not believed."""
        said = known(
            base_image_input_size=side(files.image, "base_image_input_size"),
            image_patch_size=side(files.image, "image_patch_size"),
            overlap_margins=_margins(files.image.get("overlap_margins")),
            max_crops=num_tiles(files.image, "max_crops"),
            image_token_length=side(files.image, "image_token_length_w"),
        )
        return said if cls(**said)._window() > 0 else {}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: vLLM's processor takes no settings of a request."""
        return {}

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The whole image and the tiles, each with a line end a row and two markers; other images do not change it.

        >>> Molmo().image(1280, 720)
        Count(num_tokens=1196, num_embeds=1152, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        margin = sum(self.overlap_margins) * self.image_patch_size
        inner_width, inner_height = width - margin, height - margin
        columns = rows = 1
        if min(inner_width, inner_height) >= 0:
            window = max(1, self._window()) * self.image_patch_size
            # A side of exactly the margins divides by zero in vLLM, which comes to the same as one pixel.
            columns, rows = best_canvas(max(1, inner_width), max(1, inner_height), tile=window, most=self.max_crops)
        columns, rows = self._pooled(columns), self._pooled(rows)
        whole = self.image_token_length
        embeds = whole * whole + columns * rows
        return Count(num_tokens=embeds + whole + rows + 2 * NUM_MARKERS, num_embeds=embeds)

    def _window(self) -> int:
        """Patches along a side of a tile without its margins."""
        return self.base_image_input_size // self.image_patch_size - sum(self.overlap_margins)

    def _pooled(self, tiles: int) -> int:
        """Tokens along ``tiles`` tiles: the first and the last keep their outer margin."""
        if tiles == 1:
            patches = _pairs(self._window() + sum(self.overlap_margins))
        else:
            left, right = (_pairs(self._window() + margin) for margin in self.overlap_margins)
            patches = left + (tiles - 2) * _pairs(self._window()) + right
        return max(1, (patches + 1) // POOLING)


def _pairs(patches: int) -> int:
    """``patches`` rounded up to a multiple of what is pooled."""
    return -(-patches // POOLING) * POOLING


def _margins(written: Any) -> tuple[int, int] | None:
    """Two numbers of 0..1024 patches."""
    if not isinstance(written, list) or len(written) != 2:
        return None
    left, right = written
    sound = all(isinstance(each, int) and not isinstance(each, bool) and 0 <= each <= 1024 for each in written)
    return (left, right) if sound else None
