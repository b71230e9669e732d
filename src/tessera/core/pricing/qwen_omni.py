"""What do a picture, a clip and a sound cost in Qwen2.5-Omni and Qwen3-Omni?"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import EMPTY, AudioInfo, Count, ModelFiles, Placeholder, Refused, known, number
from tessera.core.parts import Modality
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import feature_extractor
from tessera.core.pricing.qwen_audio import MEL_FRAMES_PER_SECOND, heard, quarter, thirteen_a_second
from tessera.core.pricing.qwen_vl import NUM_WRAPPER_TOKENS, Qwen2VL
from tessera.core.pricing.sound import num_mel_frames


@plugin("qwen2.5-omni")
class Qwen25Omni(Qwen2VL):
    """Qwen2.5-Omni: pictures as in Qwen2-VL, clips of 128 to 768 cells a frame pair, sounds of 25 tokens a second.

    The limits of a clip come from the processor's own defaults, which go before every
    file; a clip's own sound is not counted (``use_audio_in_video``).
    Source: preprocessor_config.json of the published models; transformers 5.18.0,
    Qwen2_5OmniProcessor; vLLM 0.32.0, qwen2_5_omni_thinker.py.
    """

    video_min_pixels: Annotated[int, Range(ge=1)] = 100_352
    """Smallest area of a frame after resizing."""
    video_max_pixels: Annotated[int, Range(ge=1)] = 602_112
    """Largest area of a frame after resizing."""
    chunk_length_s: Annotated[int, Range(ge=1)] = 300
    """Seconds of a sound that are heard (``chunk_length``)."""

    architectures: ClassVar[frozenset[str]] = frozenset(
        {
            "Qwen2_5OmniModel",
            "Qwen2_5OmniForConditionalGeneration",
            "Qwen2_5OmniThinkerForConditionalGeneration",
        }
    )
    model_names: ClassVar[tuple[str, ...]] = ("qwen2.5-omni",)
    placeholders: ClassVar[Mapping[Modality, Placeholder]] = {}

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """As in Qwen2-VL (``vision_config`` may stand in ``thinker_config``), and ``chunk_length``."""
        chunk_length = number(feature_extractor(files), "chunk_length")
        return {**super().from_files(files), **known(chunk_length_s=chunk_length)}

    @classmethod
    def video_section(cls, files: ModelFiles) -> Mapping[str, Any]:
        """No file has a say in the limits of clips."""
        return EMPTY

    def audio(self, info: AudioInfo) -> Count | Refused:
        """A quarter of the mel frames, each one token and one embedding.

        >>> Qwen25Omni().audio(AudioInfo(duration_s=10))
        Count(num_tokens=250, num_embeds=250, num_wrapper_tokens=2)
        """
        most = self.chunk_length_s * MEL_FRAMES_PER_SECOND
        return heard(quarter(min(num_mel_frames(info), most)), NUM_WRAPPER_TOKENS)


@plugin("qwen3-omni")
class Qwen3Omni(Qwen2VL):
    """Qwen3-Omni: cells of 32 x 32 pixels, clips of 128 to 768 cells a frame pair, sounds of 13 tokens a second.

    Pictures and clips go by the rules of Qwen2-VL, not of Qwen3-VL: no time stands
    between the frames. A clip's own sound is not counted (``use_audio_in_video``).
    Source: preprocessor_config.json of the published models; transformers 5.18.0,
    Qwen3OmniMoeProcessor; vLLM 0.32.0, qwen3_omni_moe_thinker.py.
    """

    patch_size: Annotated[int, Range(ge=1)] = 16
    """Pixels along a side of one encoder patch."""
    video_min_pixels: Annotated[int, Range(ge=1)] = 131_072
    """Smallest area of a frame after resizing."""
    video_max_pixels: Annotated[int, Range(ge=1)] = 786_432
    """Largest area of a frame after resizing."""

    architectures: ClassVar[frozenset[str]] = frozenset(
        {"Qwen3OmniMoeForConditionalGeneration", "Qwen3OmniMoeThinkerForConditionalGeneration"}
    )
    model_names: ClassVar[tuple[str, ...]] = ("qwen3-omni",)
    placeholders: ClassVar[Mapping[Modality, Placeholder]] = {}

    @classmethod
    def video_section(cls, files: ModelFiles) -> Mapping[str, Any]:
        """No file has a say in the limits of clips."""
        return EMPTY

    def audio(self, info: AudioInfo) -> Count | Refused:
        """13 rows of every 100 mel frames, each one token and one embedding.

        >>> Qwen3Omni().audio(AudioInfo(duration_s=10))
        Count(num_tokens=130, num_embeds=130, num_wrapper_tokens=2)
        """
        return heard(thirteen_a_second(num_mel_frames(info)), NUM_WRAPPER_TOKENS)
