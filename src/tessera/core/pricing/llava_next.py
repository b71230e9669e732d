"""How many tokens does an image cost in LLaVA-NeXT (1.6)?"""

from collections.abc import Mapping
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, known
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.anyres import best_resolution, unpadded
from tessera.core.pricing.llava_1_5 import Strategy, num_additional_image_tokens, select_strategy
from tessera.core.pricing.processor_settings import scoped
from tessera.core.pricing.sizes import MAX_SIDE, NO_AREA, canvases, side, square


@plugin("llava-next")
class LlavaNext(Family):
    """LLaVA-NeXT (1.6): the image as one square, then on the best of a few canvases without its padding.

    Source: config.json of llava-hf/llava-v1.6-mistral-7b-hf; transformers 5.18.0, LlavaNextProcessor.
    """

    architectures = frozenset({"LlavaNextForConditionalGeneration"})
    model_names = ("llava-next", "llava-1.6", "llava-v1.6")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 336
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    image_grid_pinpoints: tuple[tuple[int, int], ...] = ((336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008))
    """Canvases, height before width, in the order in which equals win."""
    num_additional_image_tokens: Annotated[int, Range(ge=0, le=1)] = 1
    """Rows of the encoder that are no patch: 1 for CLIP's class token, 0 for SigLIP."""
    vision_feature_select_strategy: Strategy = "default"
    """``default`` leaves out the encoder's first row, ``full`` uses all."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """config.json, which vLLM reads, before the processor's files."""
        return known(
            image_size=side(files.vision, "image_size") or square(files.image, "size"),
            patch_size=side(files.vision, "patch_size") or side(files.processor, "patch_size"),
            image_grid_pinpoints=canvases(files.config, "image_grid_pinpoints")
            or canvases(files.image, "image_grid_pinpoints"),
            num_additional_image_tokens=num_additional_image_tokens(files),
            vision_feature_select_strategy=select_strategy(files),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``image_grid_pinpoints``."""
        return known(image_grid_pinpoints=canvases(scoped(kwargs, "images_kwargs"), "image_grid_pinpoints"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The square, the rest of the canvas, and one line end for each of its rows; other images change nothing.

        >>> LlavaNext().image(1280, 720)
        Count(num_tokens=1948, num_embeds=1948, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        grid = self.image_size // self.patch_size
        canvas_height, canvas_width = best_resolution(height, width, self.image_grid_pinpoints)
        columns, rows = canvas_width // self.image_size * grid, canvas_height // self.image_size * grid
        square_rows = grid * grid + self.num_additional_image_tokens
        tokens = max(1, square_rows - (self.vision_feature_select_strategy == "default"))
        if columns and rows:
            columns, rows = unpadded(width, height, columns, rows)
            tokens += rows * columns + rows
        return Count(num_tokens=tokens, num_embeds=tokens)
