"""What do a picture and a sound cost in Gemma 3 and Gemma 3n?"""

import math
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, known, number
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import positive, scoped
from tessera.core.pricing.sizes import NO_AREA, flag
from tessera.core.pricing.smart_resize import LARGEST_SIDE, no_sides
from tessera.core.pricing.sound import NO_SOUND, num_samples

NUM_FRAME_TOKENS = 4
"""A blank line, a start, an end and a blank line, which the processor puts around each picture or sound."""

NUM_SENTENCE_TOKENS = 17
"""Tokens of the English sentence around a picture that has crops; a space stands between two crops."""

MAX_CROPS = 64
"""Crops that a setting may ask for; published: 4."""


@plugin("gemma3")
class Gemma3(Family):
    """Gemma 3: 256 embeddings and 260 tokens a picture, whatever its size, unless pan-and-scan is on.

    Pan-and-scan cuts a picture with ``longer / shorter >= pan_and_scan_min_ratio``
    into 2 to ``pan_and_scan_max_crops`` crops along its longer side, none where a
    crop's side would be under ``pan_and_scan_min_crop_size`` pixels; each crop costs
    what the picture costs. The sentence between them counts as wrapper.
    Source: transformers 5.18.0, Gemma3ImageProcessor, Gemma3Processor; vLLM 0.32.0,
    gemma3_mm.py.
    """

    image_seq_length: Annotated[int, Range(ge=1)] = 256
    """Embeddings of a picture (``image_seq_length``, ``mm_tokens_per_image``)."""
    do_pan_and_scan: bool = False
    """Whether long pictures are also cut into crops."""
    pan_and_scan_min_crop_size: Annotated[int, Range(ge=1)] = 256
    """Pixels of a crop's shorter side below which there are no crops."""
    pan_and_scan_max_crops: Annotated[int, Range(ge=1)] = 4
    """Crops of a picture at most (``pan_and_scan_max_num_crops``)."""
    pan_and_scan_min_ratio: Annotated[float, Range(gt=0)] = 1.2
    """Longer side over shorter side from which on there are crops (``pan_and_scan_min_ratio_to_activate``)."""

    architectures: ClassVar[frozenset[str]] = frozenset({"Gemma3ForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("gemma-3", "gemma3", "medgemma")

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``image_seq_length`` of the processor, else ``mm_tokens_per_image`` of config.json; and pan-and-scan.

        >>> Gemma3.from_files(ModelFiles(config={"mm_tokens_per_image": 64}, preprocessor={"do_pan_and_scan": None}))
        {'image_seq_length': 64}
        """
        seq_length = (
            number(files.processor, "image_seq_length")
            or number(files.image, "image_seq_length")
            or number(files.config, "mm_tokens_per_image")
        )
        return {**known(image_seq_length=seq_length), **_pan_and_scan(files.image)}

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Pan-and-scan, flat or under ``images_kwargs``."""
        return _pan_and_scan(scoped(kwargs, "images_kwargs"))

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The picture and its crops; swapping the sides changes nothing.

        >>> Gemma3().image(1280, 720)
        Count(num_tokens=260, num_embeds=256, num_wrapper_tokens=0)
        >>> Gemma3(do_pan_and_scan=True).image(1280, 720)
        Count(num_tokens=780, num_embeds=768, num_wrapper_tokens=18)
        """
        if not (0 < width <= LARGEST_SIDE and 0 < height <= LARGEST_SIDE):
            return no_sides(width, height)
        num_crops = self._num_crops(max(width, height), min(width, height)) if self.do_pan_and_scan else 0
        return Count(
            num_tokens=(1 + num_crops) * (self.image_seq_length + NUM_FRAME_TOKENS),
            num_embeds=(1 + num_crops) * self.image_seq_length,
            num_wrapper_tokens=NUM_SENTENCE_TOKENS + num_crops - 1 if num_crops else 0,
        )

    def _num_crops(self, longer: int, shorter: int) -> int:
        ratio, smallest = longer / shorter, self.pan_and_scan_min_crop_size
        if ratio < self.pan_and_scan_min_ratio:
            return 0
        wanted = min(longer // smallest, math.floor(ratio + 0.5))
        num_crops = min(self.pan_and_scan_max_crops, max(2, wanted))
        return num_crops if min(math.ceil(longer / num_crops), shorter) >= smallest else 0


def _pan_and_scan(settings: Mapping[str, Any]) -> dict[str, Any]:
    max_crops = number(settings, "pan_and_scan_max_num_crops")
    return known(
        do_pan_and_scan=flag(settings, "do_pan_and_scan"),
        pan_and_scan_min_crop_size=number(settings, "pan_and_scan_min_crop_size"),
        pan_and_scan_max_crops=max_crops if max_crops is not None and max_crops <= MAX_CROPS else None,
        pan_and_scan_min_ratio=positive(settings, "pan_and_scan_min_ratio_to_activate"),
    )


@plugin("gemma3n")
class Gemma3n(Family):
    """Gemma 3n: 256 embeddings a picture and 188 a sound, whatever its size or length, and four tokens around each.

    Source: transformers 5.18.0, Gemma3nProcessor; vLLM 0.32.0, gemma3n_mm.py.
    """

    image_seq_length: Annotated[int, Range(ge=1)] = 256
    """Embeddings of a picture."""
    audio_seq_length: Annotated[int, Range(ge=1)] = 188
    """Embeddings of a sound."""

    needs_processor: ClassVar[bool] = False
    architectures: ClassVar[frozenset[str]] = frozenset({"Gemma3nForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("gemma-3n", "gemma3n")

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``image_seq_length`` and ``audio_seq_length`` of processor_config.json."""
        return known(
            image_seq_length=number(files.processor, "image_seq_length"),
            audio_seq_length=number(files.processor, "audio_seq_length"),
        )

    def image(self, width: int, height: int, *, num_images: int = 1) -> Count | Refused:
        """The same for every picture.

        >>> Gemma3n().image(1280, 720)
        Count(num_tokens=260, num_embeds=256, num_wrapper_tokens=0)
        """
        if width < 1 or height < 1:
            return NO_AREA
        return Count(num_tokens=self.image_seq_length + NUM_FRAME_TOKENS, num_embeds=self.image_seq_length)

    def audio(self, info: AudioInfo) -> Count | Refused:
        """The same for every sound.

        >>> Gemma3n().audio(AudioInfo(duration_s=10))
        Count(num_tokens=192, num_embeds=188, num_wrapper_tokens=0)
        """
        if not num_samples(info):
            return NO_SOUND
        return Count(num_tokens=self.audio_seq_length + NUM_FRAME_TOKENS, num_embeds=self.audio_seq_length)
