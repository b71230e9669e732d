"""How many tokens does an image cost in DeepSeek-VL2?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.anyres import best_resolution
from tessera.core.pricing.sizes import MAX_SIDE, NO_AREA, canvases, side

MAX_CROPPED_IMAGES = 2
"""Images of a prompt above which none is cut into tiles. Source: vLLM 0.32.0, processors/deepseek_vl2.py."""
TILE = 384
CANDIDATES = tuple(
    (TILE * columns, TILE * rows)
    for columns, rows in (
        *((1, 1), (1, 2), (2, 1), (1, 3), (3, 1), (1, 4), (4, 1), (2, 2), (1, 5), (5, 1), (1, 6), (6, 1)),
        *((2, 3), (3, 2), (1, 7), (7, 1), (1, 8), (8, 1), (2, 4), (4, 2), (1, 9), (9, 1), (3, 3)),
    )
)
"""Every canvas of at most nine tiles, width before height, in the published order."""


@plugin("deepseek-vl2")
class DeepseekVL2(Family):
    """DeepSeek-VL2, Tiny, Small and full: the whole image as one tile, then on the best of 23 canvases.

    A prompt with more than two images is not cut into tiles.
    Source: processor_config.json of the published models; vLLM 0.32.0, processors/deepseek_vl2.py.
    """

    architectures = frozenset({"DeepseekVLV2ForCausalLM"})
    model_names = ("deepseek-vl2",)

    candidate_resolutions: tuple[tuple[int, int], ...] = CANDIDATES
    """Canvases, width before height, in the order in which equals win; the first one's width is a tile's side."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    downsample_ratio: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 2
    """Patches along a side that are merged into one token."""

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """Its class, or its model type in a config.json that names no class, as the published ones do."""
        return super().matches(files) or (
            not files.architectures and files.config.get("model_type") == "deepseek_vl_v2"
        )

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """processor_config.json, else the canvases of config.json."""
        return known(
            candidate_resolutions=canvases(files.processor, "candidate_resolutions")
            or canvases(files.config, "candidate_resolutions"),
            patch_size=side(files.processor, "patch_size"),
            downsample_ratio=side(files.processor, "downsample_ratio"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: vLLM's processor takes no settings of a request."""
        return {}

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The whole image and the canvas, each with a line end a row, and a separator.

        >>> DeepseekVL2().image(1280, 720), DeepseekVL2().image(1280, 720, num_images=3).num_tokens
        (Count(num_tokens=1807, num_embeds=1807, num_wrapper_tokens=0), 421)
        """
        if width < 1 or height < 1:
            return NO_AREA
        tile = self.candidate_resolutions[0][0]
        canvas = (tile, tile)
        if num_images <= MAX_CROPPED_IMAGES:
            canvas = best_resolution(width, height, self.candidate_resolutions)
        columns, rows = canvas[0] // tile, canvas[1] // tile
        grid = -(-(tile // self.patch_size) // self.downsample_ratio)
        tokens = grid * (grid + 1) + 1 + rows * grid * (columns * grid + 1)
        return Count(num_tokens=tokens, num_embeds=tokens)
