"""What do a picture and a clip cost in the GLM vision-language models?"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing import frames
from tessera.core.pricing.processor_settings import for_video, positive, size_limits
from tessera.core.pricing.smart_resize import num_cells_of_frames

NUM_WRAPPER_TOKENS = 2
"""``<|begin_of_image|>`` and ``<|end_of_image|>``, or those of a video, which the chat template puts around an item."""
NUM_GROUP_MARKS = 2
"""``<|begin_of_image|>`` and ``<|end_of_image|>`` around each group of a clip's frames."""
DIGITS_PER_TOKEN = 3
"""Digits of a number that GLM's tokenizer takes as one token."""


@plugin("glm-4.5v", aliases=("glm-4.1v",))
class Glm45V(Family):
    """GLM-4.1V and GLM-4.5V: cells of 28 x 28 pixels; a picture is resized as a clip of one frame pair.

    The limits hold for the whole volume, so that a picture has about 6,144 cells at
    most. A clip is sampled at 2 frames a second up to 300 seconds, then 600 frames
    are spread over it; behind each pair of frames stands the second as text, whose
    tokens are counted as a number's three digits a token.
    Source: preprocessor_config.json of the published models; transformers 5.18.0,
    Glm4vImageProcessor, Glm4vVideoProcessor; vLLM 0.32.0, glm4_1v.py, loader
    ``opencv_dynamic``. Of a clip under one second that loader takes less than two
    frames, which the engine does not survive; here it is priced as two frames, as
    transformers does.
    """

    patch_size: Annotated[int, Range(ge=1)] = 14
    """Pixels along a side of one encoder patch."""
    merge_size: Annotated[int, Range(ge=1)] = 2
    """Patches along a side that are merged into one token."""
    temporal_patch_size: Annotated[int, Range(ge=1)] = 2
    """Frames that share their cells."""
    min_pixels: Annotated[int, Range(ge=1)] = 12_544
    """Smallest volume of a picture after resizing (``size.shortest_edge``): its area times ``temporal_patch_size``."""
    max_pixels: Annotated[int, Range(ge=1)] = 9_633_792
    """Largest volume of a picture after resizing (``size.longest_edge``)."""
    video_min_pixels: Annotated[int, Range(ge=1)] = 12_544
    """Smallest volume of a clip after resizing."""
    video_max_pixels: Annotated[int, Range(ge=1)] = 47_040_000
    """Largest volume of a clip after resizing."""
    fps: Annotated[float, Range(gt=0)] = 2.0
    """Frames a second that the loader takes of a clip."""
    max_duration_s: Annotated[float, Range(gt=0)] = 300.0
    """Seconds up to which the loader does so (``max_duration``)."""

    architectures: ClassVar[frozenset[str]] = frozenset(
        {"Glm4vForConditionalGeneration", "Glm4vMoeForConditionalGeneration"}
    )
    model_names: ClassVar[tuple[str, ...]] = ("glm-4.1v", "glm-4.5v")
    class_limits: ClassVar[Mapping[str, int]] = {"min_pixels": 12_544, "max_pixels": 11_760_000}
    """What the image processor's class says where its file is there but says nothing."""
    class_video_limits: ClassVar[Mapping[str, int]] = {"min_pixels": 12_544, "max_pixels": 47_040_000}
    """The same of the video processor's class."""
    num_unit_tokens: ClassVar[int] = 0
    """Tokens of what stands behind the second's digits."""

    def check(self) -> Iterator[tuple[str, str]]:
        """The limits must leave room."""
        if self.min_pixels > self.max_pixels:
            yield "minPixels", f"is {self.min_pixels}, more than maxPixels {self.max_pixels}; swap them"

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """By the class name in config.json, unless the processor is that of GLM-4.6V, which shares it."""
        return super().matches(files) and not is_glm46v(files)

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """Patches from ``vision_config``, limits from ``size`` of the processors' files.

        >>> Glm45V.from_files(ModelFiles(preprocessor={"size": {"longest_edge": 4_816_896}}))
        {'min_pixels': 12544, 'max_pixels': 4816896}
        """
        image, video = files.image, files.video
        found: dict[str, Any] = known(
            patch_size=number(files.vision, "patch_size") or number(image, "patch_size"),
            merge_size=number(files.vision, "spatial_merge_size") or number(image, "merge_size"),
            temporal_patch_size=number(files.vision, "temporal_patch_size") or number(image, "temporal_patch_size"),
        )
        if image:
            found |= {**cls.class_limits, **size_limits(image)}
        if video:
            found |= for_video({**cls.class_video_limits, **size_limits(video)})
        return found

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``size``, for images and clips; ``min_pixels`` and ``max_pixels`` do nothing in these processors.

        >>> Glm45V.from_kwargs({"size": {"longest_edge": 4_816_896}, "max_pixels": 1})
        {'max_pixels': 4816896, 'video_max_pixels': 4816896}
        """
        flat = size_limits(kwargs)
        return {
            **flat,
            **size_limits(section(kwargs, "images_kwargs")),
            **for_video({**flat, **size_limits(section(kwargs, "videos_kwargs"))}),
        }

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``media_io_kwargs`` say to the loader of clips."""
        video = section(kwargs, "video")
        return known(fps=positive(video, "fps"), max_duration_s=positive(video, "max_duration"))

    def _cells(self, width: int, height: int, limits: tuple[int, int], num_frames: int) -> int | Refused:
        unit = self.patch_size * self.merge_size
        return num_cells_of_frames(width, height, unit, *limits, num_frames=num_frames, group=self.temporal_patch_size)

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; swapping the sides changes nothing.

        >>> Glm45V().image(1280, 720)
        Count(num_tokens=1196, num_embeds=1196, num_wrapper_tokens=2)
        """
        cells = self._cells(width, height, (self.min_pixels, self.max_pixels), self.temporal_patch_size)
        if isinstance(cells, Refused):
            return cells
        return Count(num_tokens=cells, num_embeds=cells, num_wrapper_tokens=NUM_WRAPPER_TOKENS)

    def video(self, info: VideoInfo) -> Count | Refused:
        """For each group of frames its cells, two marks and the second.

        >>> Glm45V().video(VideoInfo(width=1280, height=720, num_frames=1800, fps=30))
        Count(num_tokens=28020, num_embeds=27840, num_wrapper_tokens=2)
        """
        total, rate = frames.total_frames(info), frames.source_rate(info)
        if not total or not rate:
            return Refused("a clip without frames or of unknown frame rate")
        group = self.temporal_patch_size
        num_frames = max(self._num_frames(info), group)
        cells = self._cells(info.width, info.height, (self.video_min_pixels, self.video_max_pixels), num_frames)
        if isinstance(cells, Refused):
            return cells
        num_groups = math.ceil(num_frames / group)

        def num_number_tokens(index: int) -> int:
            second = frames.position(index * group, num_frames, total) / rate
            return -(-len(str(int(second))) // DIGITS_PER_TOKEN)

        text = frames.sum_of_rising(num_number_tokens, num_groups) + self.num_unit_tokens * num_groups
        embeds = cells * num_groups
        return Count(
            num_tokens=embeds + NUM_GROUP_MARKS * num_groups + text,
            num_embeds=embeds,
            num_wrapper_tokens=NUM_WRAPPER_TOKENS,
        )

    def _num_frames(self, info: VideoInfo) -> int:
        return frames.glm4v(info, fps=self.fps, max_duration_s=self.max_duration_s)


@plugin("glm-4.6v", aliases=("glm-ocr",))
class Glm46V(Glm45V):
    """GLM-4.6V and GLM-OCR: pictures as in GLM-4.5V; 6, 2 or 1 frames of a clip a second by its length, at most 640.

    Behind each pair of frames stands the time as ``12.0 seconds``.
    Source: preprocessor_config.json of the published models; transformers 5.18.0,
    Glm46VImageProcessor, Glm46VVideoProcessor; vLLM 0.32.0, glm4_1v.py, loader
    ``glm46v``.
    """

    architectures: ClassVar[frozenset[str]] = frozenset(
        {"Glm46VForConditionalGeneration", "GlmOcrForConditionalGeneration"}
    )
    model_names: ClassVar[tuple[str, ...]] = ("glm-4.6v", "glm-ocr")
    num_unit_tokens: ClassVar[int] = 3
    """``.``, ``0`` and `` seconds``."""

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """By the class name in config.json, or by the processor's where it is that of GLM-4.5V."""
        return bool(cls.architectures.intersection(files.architectures)) or (
            bool(Glm45V.architectures.intersection(files.architectures)) and is_glm46v(files)
        )

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Nothing: the loader goes by a clip's duration alone."""
        return {}

    def _num_frames(self, info: VideoInfo) -> int:
        return frames.glm46v(info, group=self.temporal_patch_size)


def is_glm46v(files: ModelFiles) -> bool:
    """Whether any processor that the files name is GLM-4.6V's; config.json may name GLM-4.5V's class all the same."""
    names = (
        settings.get(key)
        for settings in (files.image, files.video, files.processor)
        for key in ("image_processor_type", "video_processor_type", "processor_class")
    )
    return any(isinstance(name, str) and name.startswith("Glm46V") for name in names)
