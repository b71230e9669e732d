"""What does a sound cost in Voxtral?"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, known, number, section
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.sound import NO_SOUND, num_samples

CHUNK_SAMPLES = 480_000
"""Samples of 30 seconds at 16 kHz, to whose multiples a sound is padded."""
ENCODER_POSITIONS = 1_500
"""Encoder positions of a chunk before they are merged."""


@plugin("voxtral")
class Voxtral(Family):
    """Voxtral: 375 tokens for every 30 seconds begun, and a mark before them.

    Source: mistral_common 1.13.1, AudioEncoder; vLLM 0.32.0, voxtral.py.
    """

    tokens_per_chunk: Annotated[int, Range(ge=1)] = 375
    """Tokens of 30 seconds: 1,500 encoder positions over ``downsample_factor``."""

    architectures: ClassVar[frozenset[str]] = frozenset({"VoxtralForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("voxtral",)

    @classmethod
    def matches(cls, files: ModelFiles) -> bool:
        """By the class name in config.json, or by an audio encoder in params.json that does not listen live."""
        encoder = _audio_encoder(files)
        is_live = bool(section(encoder, "encoder_args").get("causal"))
        return super().matches(files) or bool(encoder and not is_live)

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``downsample_factor`` of params.json.

        >>> Voxtral.from_files(
        ...     ModelFiles(params={"multimodal": {"whisper_model_args": {"downsample_args": {"downsample_factor": 8}}}})
        ... )
        {'tokens_per_chunk': 187}
        """
        factor = number(_audio_encoder(files), "downsample_args", "downsample_factor")
        return known(tokens_per_chunk=max(1, ENCODER_POSITIONS // factor) if factor else None)

    def audio(self, info: AudioInfo) -> Count | Refused:
        """Whole chunks and one mark.

        >>> Voxtral().audio(AudioInfo(duration_s=31))
        Count(num_tokens=751, num_embeds=750, num_wrapper_tokens=0)
        """
        samples = num_samples(info)
        if not samples:
            return NO_SOUND
        rows = self.tokens_per_chunk * -(-samples // CHUNK_SAMPLES)
        return Count(num_tokens=rows + 1, num_embeds=rows)


def _audio_encoder(files: ModelFiles) -> Mapping[str, Any]:
    return section(section(files.params, "multimodal"), "whisper_model_args")
