"""How many tokens do images and clips cost in LLaVA-OneVision?"""

import math
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Any

from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.anyres import best_resolution, unpadded
from tessera.core.pricing.frames import opencv
from tessera.core.pricing.processor_settings import positive, scoped
from tessera.core.pricing.sizes import MAX_SIDE, MAX_TILES, NO_AREA, canvases, num_tiles, side, square

MAX_GROWTH = 1.1
"""How far the side of the features may exceed that of ``max_tiles`` tiles before they are shrunk."""
SIX_BY_SIX = tuple(product(range(384, 2305, 384), range(384, 2305, 384)))
"""Every canvas of 1 to 6 tiles of 384 pixels a side, height before width."""


@plugin("llava-onevision")
class LlavaOnevision(Family):
    """LLaVA-OneVision: LLaVA-NeXT's rule on up to 6 x 6 tiles, the features shrunk to those of 9 tiles.

    Every image is priced by the rule for a single one, as vLLM does; Hugging
    Face's processor takes 730 tokens for each of several.
    Source: config.json of llava-hf/llava-onevision-qwen2-7b-ov-hf; transformers
    5.18.0, LlavaOnevisionProcessor; vLLM 0.32.0, llava_onevision.py.
    """

    architectures = frozenset({"LlavaOnevisionForConditionalGeneration"})
    model_names = ("llava-onevision", "llava-ov")

    image_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 384
    """Pixels along a side of one tile."""
    patch_size: Annotated[int, Range(ge=1, le=MAX_SIDE)] = 14
    """Pixels along a side of one encoder patch."""
    image_grid_pinpoints: tuple[tuple[int, int], ...] = SIX_BY_SIX
    """Canvases, height before width, in the order in which equals win."""
    max_tiles: Annotated[int, Range(ge=1, le=MAX_TILES)] = 9
    """Tiles to whose number of features more are shrunk (``vision_aspect_ratio: anyres_max_9``)."""
    num_frames: Annotated[int, Range(ge=1)] = 32
    """Frames that the loader takes of a clip at most, spread evenly."""
    fps: Annotated[float, Range(ge=0)] = 0.0
    """Frames a second that it takes at most; 0: no such limit."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """config.json, which vLLM reads, before the processor's files."""
        return known(
            image_size=side(files.vision, "image_size") or square(files.image, "size"),
            patch_size=side(files.vision, "patch_size"),
            image_grid_pinpoints=canvases(files.config, "image_grid_pinpoints")
            or canvases(files.image, "image_grid_pinpoints"),
            max_tiles=_max_tiles(files.config) or _max_tiles(files.processor),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``image_grid_pinpoints``."""
        return known(image_grid_pinpoints=canvases(scoped(kwargs, "images_kwargs"), "image_grid_pinpoints"))

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``media_io_kwargs`` say to the loader of clips: ``num_frames`` and ``fps`` of ``video``."""
        video = section(kwargs, "video")
        return known(num_frames=number(video, "num_frames"), fps=positive(video, "fps"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The image as one tile, the rest of the canvas, and one line end for each of its rows.

        >>> LlavaOnevision().image(1280, 720)
        Count(num_tokens=5967, num_embeds=5967, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        grid = max(1, self.image_size // self.patch_size)
        tokens = grid * grid
        canvas_height, canvas_width = best_resolution(height, width, self.image_grid_pinpoints)
        columns, rows = canvas_width // self.image_size * grid, canvas_height // self.image_size * grid
        if columns and rows:
            columns, rows = unpadded(width, height, columns, rows)
            growth = math.sqrt(columns * rows / (self.max_tiles * grid**2))
            if growth > MAX_GROWTH:
                columns, rows = int(columns // growth), int(rows // growth)
            tokens += rows * columns + rows
        return Count(num_tokens=tokens, num_embeds=tokens)

    def video(self, info: VideoInfo) -> Count | Refused:
        """A tile pooled 2 x 2 for each frame, and one line end for the clip.

        >>> LlavaOnevision().video(VideoInfo(width=1280, height=720, num_frames=300, fps=30.0))
        Count(num_tokens=6273, num_embeds=6273, num_wrapper_tokens=0)
        """
        pooled = -(-max(1, self.image_size // self.patch_size) // 2)
        tokens = opencv(info, num_frames=self.num_frames, fps=self.fps) * pooled * pooled + 1
        return Count(num_tokens=tokens, num_embeds=tokens)


def _max_tiles(mapping: Mapping[str, Any]) -> int | None:
    """The number at the end of ``anyres_max_9``."""
    said = mapping.get("vision_aspect_ratio")
    digits = said.removeprefix("anyres_max_") if isinstance(said, str) else ""
    return num_tiles({"tiles": int(digits)}, "tiles") if digits.isdecimal() and len(digits) <= 3 else None
