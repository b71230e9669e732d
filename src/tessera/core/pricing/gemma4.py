"""What do a picture, a clip and a sound cost in Gemma 4?"""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, VideoInfo, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing import frames
from tessera.core.pricing.processor_settings import feature_extractor, positive, scoped
from tessera.core.pricing.smart_resize import LARGEST_SIDE, no_sides
from tessera.core.pricing.sound import NO_SOUND, num_samples

BUDGETS = (70, 140, 280, 560, 1_120)
"""Values of ``max_soft_tokens`` that the processor takes."""
FRAME_BUDGET = 70
"""Soft tokens of a clip's frame at most. Source: vLLM 0.32.0, gemma4_mm.py; no setting changes it."""
NUM_MARKS = 2
"""Start and end of a picture or a sound, which the processor inserts."""
DEFAULT_RATE = 24.0
"""Frames a second of a clip that names none, for the time before its frames."""


def num_soft_tokens(width: int, height: int, unit: int, budget: int) -> int:
    """``columns x rows`` cells of ``unit`` pixels, at most ``budget``: by the picture's shape alone, not its size.

    Swapping the sides changes nothing.
    Source: transformers 5.18.0, Gemma4ImageProcessor; vLLM 0.32.0, gemma4_mm.py.

    >>> num_soft_tokens(1280, 720, 48, 280), num_soft_tokens(3, 900, 48, 280)
    (264, 280)
    """
    scale = math.sqrt(budget * unit * unit / (width * height))
    columns, rows = math.floor(scale * width / unit), math.floor(scale * height / unit)
    if not columns or not rows:
        return min(max(width, height) // min(width, height), budget)
    return min(columns * rows, budget)


@plugin("gemma4")
class Gemma4(Family):
    """Gemma 4: up to ``max_soft_tokens`` cells a picture, by its shape, and two marks.

    A clip is 32 frames spread evenly, each priced as a picture of at most 70 cells
    with its time (``mm:ss``) before it; the digits and signs of the time are counted
    as one token each. A sound has 25 tokens a second, 750 at most.
    Source: transformers 5.18.0, Gemma4Processor and its parts; vLLM 0.32.0,
    gemma4_mm.py, loader ``opencv``.
    """

    patch_size: Annotated[int, Range(ge=1)] = 16
    """Pixels along a side of one encoder patch."""
    pooling_kernel_size: Annotated[int, Range(ge=1)] = 3
    """Patches along a side that are pooled into one token."""
    max_soft_tokens: Annotated[int, Range(ge=1)] = 280
    """Cells of a picture at most: 70, 140, 280, 560 or 1120."""
    num_frames: Annotated[int, Range(ge=1)] = 32
    """Frames that the loader takes of a clip."""
    fps: Annotated[float, Range(ge=0)] = 0.0
    """Frames a second that the loader takes at most; 0 sets no limit."""
    takes_audio: bool = True
    """Whether the model has an audio encoder (``audio_config``)."""
    audio_seq_length: Annotated[int, Range(ge=1)] = 750
    """Embeddings of a sound at most."""

    architectures: ClassVar[frozenset[str]] = frozenset({"Gemma4ForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("gemma-4", "gemma4")
    default_budget_key: ClassVar[str] = "default_output_length"
    """Where ``vision_config`` says what vLLM takes for ``max_soft_tokens``."""

    def check(self) -> Iterator[tuple[str, str]]:
        """The processor takes five budgets only."""
        if self.max_soft_tokens not in BUDGETS:
            expected = ", ".join(map(str, BUDGETS))
            yield "maxSoftTokens", f"is {self.max_soft_tokens}, which the processor refuses; it takes {expected}"

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """The budget that vLLM takes, from ``vision_config``, goes before the processor's ``max_soft_tokens``.

        >>> Gemma4.from_files(ModelFiles(config={"vision_config": {"default_output_length": 560}}))
        {'max_soft_tokens': 560, 'takes_audio': False}
        """
        image, vision = files.image, files.vision
        return known(
            patch_size=number(vision, "patch_size") or number(image, "patch_size"),
            pooling_kernel_size=number(vision, "pooling_kernel_size") or number(image, "pooling_kernel_size"),
            max_soft_tokens=number(vision, cls.default_budget_key) or number(image, "max_soft_tokens"),
            takes_audio=bool(section(files.config, "audio_config")) if files.config else None,
            audio_seq_length=number(files.processor, "audio_seq_length"),
        )

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """``max_soft_tokens``, flat or under ``images_kwargs``; it does not change a clip's frames.

        >>> Gemma4.from_kwargs({"max_soft_tokens": 1120})
        {'max_soft_tokens': 1120}
        """
        return known(max_soft_tokens=number(scoped(kwargs, "images_kwargs"), "max_soft_tokens"))

    @classmethod
    def from_media_io_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """What ``media_io_kwargs`` say to the loader of clips."""
        video = section(kwargs, "video")
        num_frames = frames.MAX_TOTAL_FRAMES if video.get("num_frames") == -1 else number(video, "num_frames")
        return known(num_frames=num_frames, fps=positive(video, "fps"))

    @property
    def _unit(self) -> int:
        return self.patch_size * self.pooling_kernel_size

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """Cells and two marks; a budget that the processor does not know is refused.

        >>> Gemma4().image(1280, 720)
        Count(num_tokens=266, num_embeds=264, num_wrapper_tokens=0)
        """
        if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
            return no_sides(width, height)
        if self.max_soft_tokens not in BUDGETS:
            return Refused(f"max_soft_tokens {self.max_soft_tokens} is none of {', '.join(map(str, BUDGETS))}")
        soft = num_soft_tokens(width, height, self._unit, self.max_soft_tokens)
        return Count(num_tokens=soft + NUM_MARKS, num_embeds=soft)

    def video(self, info: VideoInfo) -> Count | Refused:
        """For each sampled frame its cells, two marks and the time before it.

        >>> Gemma4().video(VideoInfo(width=1280, height=720, num_frames=300, fps=30))
        Count(num_tokens=2399, num_embeds=2112, num_wrapper_tokens=0)
        """
        if not (0 < info.width <= LARGEST_SIDE and 0 < info.height <= LARGEST_SIDE):
            return no_sides(info.width, info.height)
        total = frames.total_frames(info)
        if not total:
            return frames.NO_FRAMES
        num_frames = frames.opencv(info, num_frames=self.num_frames, fps=self.fps)
        rate = frames.source_rate(info) or DEFAULT_RATE

        def num_minute_digits(index: int) -> int:
            second = math.floor(frames.position(index, num_frames, total)) / rate
            return max(2, len(str(int(second // 60))))

        # A colon, two digits of seconds and a space; from the second frame on a space before.
        text = frames.sum_of_rising(num_minute_digits, num_frames) + 4 * num_frames + num_frames - 1
        embeds = num_soft_tokens(info.width, info.height, self._unit, FRAME_BUDGET) * num_frames
        return Count(num_tokens=embeds + NUM_MARKS * num_frames + text, num_embeds=embeds)

    def audio(self, info: AudioInfo) -> Count | Refused:
        """One token of four mel frames, and two marks; a sound under 11 ms has the marks alone.

        >>> Gemma4().audio(AudioInfo(duration_s=10))
        Count(num_tokens=252, num_embeds=250, num_wrapper_tokens=0)
        """
        if not self.takes_audio:
            return Refused("the model has no audio encoder")
        if not num_samples(info):
            return NO_SOUND
        rows = self._num_audio_rows(num_samples(info))
        return Count(num_tokens=rows + NUM_MARKS, num_embeds=rows)

    def _num_audio_rows(self, samples: int) -> int:
        """Mel frames of 161 samples every 160, halved twice."""
        rows = (samples - 161) // 160 + 1
        for _ in range(2):
            rows = (rows - 1) // 2 + 1
        return min(max(rows, 0), self.audio_seq_length)


@plugin("gemma4-unified")
class Gemma4Unified(Gemma4):
    """Gemma 4 12B, which has no encoders: pictures and clips as in Gemma 4, sounds in steps of 640 samples, uncapped.

    Source: transformers 5.18.0, Gemma4UnifiedProcessor; vLLM 0.32.0, gemma4_unified.py.
    """

    audio_samples_per_token: Annotated[int, Range(ge=1)] = 640
    """Samples at 16 kHz that become one embedding."""

    architectures: ClassVar[frozenset[str]] = frozenset({"Gemma4UnifiedForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("gemma-4-12b", "gemma4-12b", "gemma4:12b")
    default_budget_key: ClassVar[str] = "num_soft_tokens"

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """As in Gemma 4, with ``num_soft_tokens`` in ``vision_config``, and ``audio_samples_per_token``."""
        samples = number(feature_extractor(files), "audio_samples_per_token")
        return {**super().from_files(files), **known(audio_samples_per_token=samples)}

    def _num_audio_rows(self, samples: int) -> int:
        return -(-samples // self.audio_samples_per_token)
