"""What do a picture and a clip cost in a Qwen vision-language model?"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import Count, Family, ModelFiles, Placeholder, Refused, VideoInfo, known, number, section
from tessera.core.parts import Modality
from tessera.core.plugin import Range, plugin
from tessera.core.pricing import frames
from tessera.core.pricing.processor_settings import for_video, pixel_limits, positive, scoped
from tessera.core.pricing.sizes import flag
from tessera.core.pricing.smart_resize import cells, num_cells, num_cells_of_frames

NUM_WRAPPER_TOKENS = 2
"""``<|vision_start|>`` and ``<|vision_end|>``, which the chat template puts around each item."""

IMAGE = Placeholder("<|image_pad|>", "<|vision_start|><|image_pad|><|vision_end|>")
VIDEO = Placeholder("<|video_pad|>", "<|vision_start|><|video_pad|><|vision_end|>")

NUM_TIMESTAMP_MARKS = 4
"""Tokens of ``<12.5 seconds>`` that are no digit. Source: counted with Qwen's vocabulary on 5,700 such texts."""


@plugin("qwen2-vl", aliases=("qwen2.5-vl",))
class Qwen2VL(Family):
    """Qwen2-VL and Qwen2.5-VL: cells of 28 x 28 pixels, 4 to 16,384 of them an image or a pair of frames.

    The picture is resized so that both sides are whole cells of ``patch_size x
    merge_size`` pixels and its area lies within the limits; a cell is one token. A
    clip is sampled at ``fps``, every ``temporal_patch_size`` frames share their
    cells, and the limits hold for each frame alone: nothing caps a whole clip.
    Source: preprocessor_config.json of the published models; transformers 5.18.0,
    Qwen2VLImageProcessor, Qwen2VLVideoProcessor; vLLM 0.32.0, loader ``qwen2_vl``.
    """

    patch_size: Annotated[int, Range(ge=1)] = 14
    """Pixels along a side of one encoder patch."""
    merge_size: Annotated[int, Range(ge=1)] = 2
    """Patches along a side that are merged into one token."""
    temporal_patch_size: Annotated[int, Range(ge=1)] = 2
    """Frames that share their cells."""
    min_pixels: Annotated[int, Range(ge=1)] = 3_136
    """Smallest area after resizing (``size.shortest_edge``); smaller images are scaled up."""
    max_pixels: Annotated[int, Range(ge=1)] = 12_845_056
    """Largest area after resizing (``size.longest_edge``); larger images are scaled down."""
    video_min_pixels: Annotated[int, Range(ge=1)] = 3_136
    """The same for clips."""
    video_max_pixels: Annotated[int, Range(ge=1)] = 12_845_056
    """The same for clips."""
    fps: Annotated[float, Range(gt=0)] = 2.0
    """Frames a second that the loader takes of a clip, 30 at most."""
    min_frames: Annotated[int, Range(ge=1)] = 4
    """Frames that the loader takes at least, if the clip has them."""
    max_frames: Annotated[int, Range(ge=1)] = 768
    """Frames that the loader takes at most; more than 768 is read as 768."""
    cap_pixels_per_frame: bool = False
    """Whether a clip as a whole is capped too; from transformers 5.22 on this is the default."""
    max_video_tokens: Annotated[int, Range(ge=1)] = 128_000
    """Tokens of which that cap leaves a clip nine tenths."""

    architectures: ClassVar[frozenset[str]] = frozenset(
        {"Qwen2VLForConditionalGeneration", "Qwen2_5_VLForConditionalGeneration"}
    )
    model_names: ClassVar[tuple[str, ...]] = ("qwen2-vl", "qwen2.5-vl")
    placeholders: ClassVar[Mapping[Modality, Placeholder]] = {Modality.IMAGE: IMAGE, Modality.VIDEO: VIDEO}
    class_limits: ClassVar[Mapping[str, int]] = {"min_pixels": 3_136, "max_pixels": 1_003_520}
    """What the image processor's class says where its file is there but says nothing."""
    class_video_limits: ClassVar[Mapping[str, int]] = {"min_pixels": 100_352, "max_pixels": 602_112}
    """The same of the video processor's class."""

    def check(self) -> Iterator[tuple[str, str]]:
        """The limits must leave room."""
        if self.min_pixels > self.max_pixels:
            yield "minPixels", f"is {self.min_pixels}, more than maxPixels {self.max_pixels}; swap them"
        if self.video_min_pixels > self.video_max_pixels:
            yield (
                "videoMinPixels",
                f"is {self.video_min_pixels}, more than videoMaxPixels {self.video_max_pixels}; swap them",
            )

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """Patches from ``vision_config``, limits from the processors' files, where ``min_pixels`` goes before ``size``.

        >>> files = ModelFiles(preprocessor={"min_pixels": 784, "size": {"longest_edge": 50_176}})
        >>> Qwen2VL(**Qwen2VL.from_files(files)).max_pixels
        50176
        """
        image, video = files.image, cls.video_section(files)
        found: dict[str, Any] = known(
            patch_size=number(files.vision, "patch_size") or number(image, "patch_size"),
            merge_size=number(files.vision, "spatial_merge_size") or number(image, "merge_size"),
            temporal_patch_size=number(files.vision, "temporal_patch_size") or number(image, "temporal_patch_size"),
            cap_pixels_per_frame=flag(video, "cap_pixels_per_frame"),
            max_video_tokens=number(video, "max_video_tokens"),
        )
        if image:
            found |= {**cls.class_limits, **pixel_limits(image)}
        if video:
            found |= for_video({**cls.class_video_limits, **pixel_limits(video)})
        return found

    @classmethod
    def video_section(cls, files: ModelFiles) -> Mapping[str, Any]:
        """The settings of the video processor: without a file of its own it reads the image processor's."""
        return files.video or files.image

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The limits: flat ones hold for images and clips, those of ``images_kwargs`` or ``videos_kwargs`` go first.

        ``fps`` and ``num_frames`` are the loader's and not heard here.

        >>> Qwen2VL.from_kwargs({"max_pixels": 50_176, "videos_kwargs": {"max_pixels": 25_088}})
        {'max_pixels': 50176, 'video_max_pixels': 25088}
        """
        flat, clips = pixel_limits(kwargs), scoped(kwargs, "videos_kwargs")
        return {
            **flat,
            **pixel_limits(section(kwargs, "images_kwargs")),
            **for_video({**flat, **pixel_limits(section(kwargs, "videos_kwargs"))}),
            **known(
                cap_pixels_per_frame=flag(clips, "cap_pixels_per_frame"),
                max_video_tokens=number(clips, "max_video_tokens"),
            ),
        }

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``media_io_kwargs`` say to the loader of clips.

        >>> Qwen2VL.from_media_io_kwargs({"video": {"fps": 1, "num_frames": 8}})
        {'fps': 1.0}
        """
        video = section(kwargs, "video")
        return known(
            fps=positive(video, "fps"),
            min_frames=number(video, "min_frames"),
            max_frames=number(video, "max_frames"),
        )

    @property
    def _unit(self) -> int:
        return self.patch_size * self.merge_size

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; other images do not change it.

        >>> Qwen2VL().image(1280, 720)
        Count(num_tokens=1196, num_embeds=1196, num_wrapper_tokens=2)
        """
        number = num_cells(width, height, self._unit, self.min_pixels, self.max_pixels)
        if isinstance(number, Refused):
            return number
        return Count(num_tokens=number, num_embeds=number, num_wrapper_tokens=NUM_WRAPPER_TOKENS)

    def grid(self, width: int, height: int) -> tuple[int, int, int] | Refused:
        """Pairs of frames, rows and columns of a picture's patches: the processor's ``image_grid_thw``.

        >>> Qwen3VL().grid(1280, 720)
        (1, 44, 80)
        """
        found = cells(width, height, self._unit, self.min_pixels, self.max_pixels)
        if isinstance(found, Refused):
            return found
        columns, rows = found
        return 1, rows * self.merge_size, columns * self.merge_size

    def video(self, info: VideoInfo) -> Count | Refused:
        """``columns x rows`` cells for every group of frames; a clip of unknown rate is refused.

        >>> Qwen2VL().video(VideoInfo(width=1280, height=720, num_frames=300, fps=30))
        Count(num_tokens=11960, num_embeds=11960, num_wrapper_tokens=2)
        """
        num_frames = frames.qwen2_vl(
            info,
            fps=self.fps,
            min_frames=self.min_frames,
            max_frames=self.max_frames,
            group=self.temporal_patch_size,
        )
        if not num_frames:
            return Refused("a clip of unknown frame rate, or of less frames than share their cells")
        limit = self.video_max_pixels
        if self.cap_pixels_per_frame:
            share = int(self.max_video_tokens * self._unit**2 * 0.9) * self.temporal_patch_size // num_frames
            limit = max(min(limit, share), int(self.video_min_pixels * 1.05))
        cells = num_cells(info.width, info.height, self._unit, self.video_min_pixels, limit)
        if isinstance(cells, Refused):
            return cells
        cells *= math.ceil(num_frames / self.temporal_patch_size)
        return Count(num_tokens=cells, num_embeds=cells, num_wrapper_tokens=NUM_WRAPPER_TOKENS)


@plugin("qwen3-vl", aliases=("qwen3.5", "qwen3.6"))
class Qwen3VL(Qwen2VL):
    """Qwen3-VL, dense and MoE, Qwen3.5 and Qwen3.6: cells of 32 x 32 pixels, 64 to 16,384 of them an image.

    A clip's limits hold for its whole volume, so that it has about 12,288 cells at
    most; before each pair of frames stand the time as text and the marks of a picture.
    Source: preprocessor_config.json and video_preprocessor_config.json of the
    published models; transformers 5.18.0, Qwen3VLVideoProcessor; vLLM 0.32.0, loader
    ``qwen3_vl``.
    """

    patch_size: Annotated[int, Range(ge=1)] = 16
    """Pixels along a side of one encoder patch."""
    min_pixels: Annotated[int, Range(ge=1)] = 65_536
    """Smallest area after resizing (``size.shortest_edge``); smaller images are scaled up."""
    max_pixels: Annotated[int, Range(ge=1)] = 16_777_216
    """Largest area after resizing (``size.longest_edge``); larger images are scaled down."""
    video_min_pixels: Annotated[int, Range(ge=1)] = 4_096
    """Smallest volume of a clip after resizing: pixels of all its sampled frames."""
    video_max_pixels: Annotated[int, Range(ge=1)] = 25_165_824
    """Largest volume of a clip after resizing."""
    processor_fps: Annotated[float, Range(gt=0)] = 2.0
    """Frames a second that the processor takes once more, of a clip of which the loader has kept every frame."""
    max_video_tokens: Annotated[int, Range(ge=1)] = 768
    """Tokens that ``cap_pixels_per_frame`` leaves each frame."""

    architectures: ClassVar[frozenset[str]] = frozenset(
        {
            "Qwen3VLForConditionalGeneration",
            "Qwen3VLMoeForConditionalGeneration",
            "Qwen3_5ForConditionalGeneration",
            "Qwen3_5MoeForConditionalGeneration",
        }
    )
    model_names: ClassVar[tuple[str, ...]] = ("qwen3-vl", "qwen3.5", "qwen3.6")
    # The times between a clip's frames are text of their own.
    placeholders: ClassVar[Mapping[Modality, Placeholder]] = {Modality.IMAGE: IMAGE}
    class_video_limits: ClassVar[Mapping[str, int]] = {"min_pixels": 131_072, "max_pixels": 786_432}

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """As in Qwen2-VL, and the processor's own ``fps``.

        >>> files = ModelFiles(video_preprocessor={"size": {"longest_edge": 234_881_024, "shortest_edge": 4_096}})
        >>> Qwen3VL.from_files(files)
        {'video_min_pixels': 4096, 'video_max_pixels': 234881024}
        """
        return {**super().from_files(files), **known(processor_fps=positive(files.video, "fps"))}

    @classmethod
    def video_section(cls, files: ModelFiles) -> Mapping[str, Any]:
        """The settings of the video processor; a missing file leaves the published ones."""
        return files.video

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """As in Qwen2-VL; ``fps`` is the processor's, which samples only clips that the loader has kept whole."""
        fps = positive(scoped(kwargs, "videos_kwargs"), "fps")
        return {**super().from_kwargs(kwargs), **known(processor_fps=fps)}

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """``columns x rows`` cells, each one token and one embedding; other images do not change it.

        >>> Qwen3VL().image(1280, 720)
        Count(num_tokens=880, num_embeds=880, num_wrapper_tokens=2)
        """
        return super().image(width, height, num_images=num_images)

    def video(self, info: VideoInfo) -> Count | Refused:
        """Cells, and for every group of frames ``<12.5 seconds>`` and two marks; a clip of one frame is refused.

        >>> Qwen3VL().video(VideoInfo(width=1280, height=720, num_frames=300, fps=30))
        Count(num_tokens=8880, num_embeds=8800, num_wrapper_tokens=2)
        """
        total, group = frames.total_frames(info), self.temporal_patch_size
        if not total:
            return frames.NO_FRAMES
        num_frames = self._num_frames(info, total)
        cells = num_cells_of_frames(
            info.width,
            info.height,
            self._unit,
            self.video_min_pixels,
            self._max_volume(num_frames),
            num_frames=num_frames,
            group=group,
        )
        if isinstance(cells, Refused):
            return cells
        num_groups = math.ceil(num_frames / group)
        rate = frames.source_rate(info) or 24.0

        def num_digits(index: int) -> int:
            first, last = index * group, min(index * group + group, num_frames) - 1
            ends = (round(frames.position(each, num_frames, total)) / rate for each in (first, last))
            return len(f"{sum(ends) / 2:.1f}") - 1

        text = frames.sum_of_rising(num_digits, num_groups) + NUM_TIMESTAMP_MARKS * num_groups
        embeds = cells * num_groups
        return Count(
            num_tokens=embeds + text + NUM_WRAPPER_TOKENS * num_groups,
            num_embeds=embeds,
            num_wrapper_tokens=NUM_WRAPPER_TOKENS,
        )

    def _num_frames(self, info: VideoInfo, total: int) -> int:
        """Frames that are encoded: the loader's, sampled again by the processor where the loader kept all."""
        limits = {"min_frames": self.min_frames, "max_frames": self.max_frames}
        kept = frames.qwen3_vl(info, fps=self.fps, **limits)
        return kept if kept < total else frames.qwen3_vl(info, fps=self.processor_fps, **limits)

    def _max_volume(self, num_frames: int) -> int:
        if not self.cap_pixels_per_frame or not num_frames:
            return self.video_max_pixels
        share = min(self.max_video_tokens * self._unit**2, self.video_max_pixels // num_frames)
        return num_frames * max(share, int(self.video_min_pixels * 1.05))
