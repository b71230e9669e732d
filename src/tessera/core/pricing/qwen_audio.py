"""What does a sound cost in Qwen2-Audio and Qwen3-ASR, and in the Qwen-Omni models that hear as they do?"""

from typing import Annotated, Any, ClassVar

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, known, number
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.processor_settings import feature_extractor
from tessera.core.pricing.sound import num_mel_frames

MEL_FRAMES_PER_SECOND = 100
MAX_QWEN2_AUDIO_CHUNK_S = 30
"""Seconds that Qwen2-Audio hears at most, whatever its file says. Source: vLLM 0.32.0, qwen2_audio.py."""

TOO_SHORT = Refused("a sound too short for one embedding")


def quarter(num_frames: int) -> int:
    """Rows of an encoder that halves the mel frames twice: about 25 a second; 0 for the shortest sounds.

    Source: vLLM 0.32.0, qwen2_audio.py; Qwen2.5-Omni counts the same.

    >>> quarter(1000), quarter(1)
    (250, 0)
    """
    return ((num_frames - 1) // 2 + 1 - 2) // 2 + 1


def thirteen_a_second(num_frames: int) -> int:
    """Rows of an encoder that makes 13 of every 100 mel frames, and halves what is left three times.

    Source: transformers 5.18.0, processing_qwen3_omni_moe.py.

    >>> thirteen_a_second(1000), thirteen_a_second(5)
    (130, 1)
    """
    rows = num_frames % MEL_FRAMES_PER_SECOND
    for _ in range(3):
        rows = (rows - 1) // 2 + 1
    return rows + num_frames // MEL_FRAMES_PER_SECOND * 13


def heard(num_rows: int, num_wrapper_tokens: int) -> Count | Refused:
    """The count of a sound of so many encoder rows, each one token."""
    if num_rows < 1:
        return TOO_SHORT
    return Count(num_tokens=num_rows, num_embeds=num_rows, num_wrapper_tokens=num_wrapper_tokens)


@plugin("qwen2-audio")
class Qwen2Audio(Family):
    """Qwen2-Audio: 25 tokens a second, of the first 30 seconds.

    The chat template writes ``Audio 1: `` and a line break around each sound's two marks.
    Source: transformers 5.18.0, WhisperFeatureExtractor; vLLM 0.32.0, qwen2_audio.py.
    """

    chunk_length_s: Annotated[int, Range(ge=1)] = 30
    """Seconds that are heard (``chunk_length``), 30 at most."""

    architectures: ClassVar[frozenset[str]] = frozenset({"Qwen2AudioForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("qwen2-audio",)
    num_wrapper_tokens: ClassVar[int] = 8
    """``<|audio_bos|>``, ``<|audio_eos|>`` and six tokens of text."""

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``chunk_length`` of the feature extractor."""
        return known(chunk_length_s=number(feature_extractor(files), "chunk_length"))

    def audio(self, info: AudioInfo) -> Count | Refused:
        """A quarter of the mel frames, each one token and one embedding.

        >>> Qwen2Audio().audio(AudioInfo(duration_s=10))
        Count(num_tokens=250, num_embeds=250, num_wrapper_tokens=8)
        """
        most = min(self.chunk_length_s, MAX_QWEN2_AUDIO_CHUNK_S) * MEL_FRAMES_PER_SECOND
        return heard(quarter(min(num_mel_frames(info), most)), self.num_wrapper_tokens)


@plugin("qwen3-asr")
class Qwen3ASR(Family):
    """Qwen3-ASR: 13 tokens a second, however long.

    Source: transformers 5.18.0, processing_qwen3_omni_moe.py; vLLM 0.32.0, qwen3_asr.py.
    """

    needs_processor: ClassVar[bool] = False
    architectures: ClassVar[frozenset[str]] = frozenset({"Qwen3ASRForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("qwen3-asr",)

    def audio(self, info: AudioInfo) -> Count | Refused:
        """13 rows of every 100 mel frames, each one token and one embedding.

        >>> Qwen3ASR().audio(AudioInfo(duration_s=10))
        Count(num_tokens=130, num_embeds=130, num_wrapper_tokens=2)
        """
        return heard(thirteen_a_second(num_mel_frames(info)), 2)
