"""What does a sound cost in Whisper?"""

from typing import Annotated, Any, ClassVar

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, known, number
from tessera.core.plugin import Range, plugin
from tessera.core.pricing.sound import NO_SOUND, num_samples


@plugin("whisper")
class Whisper(Family):
    """Whisper: no prompt tokens, and 1,500 encoder positions for every request, which are attended across.

    A sound is padded or cut to 30 seconds; of a longer upload vLLM makes one engine
    request for every 30 seconds, which are not added up here.
    Source: transformers 5.18.0, WhisperFeatureExtractor; vLLM 0.32.0, whisper.py.
    """

    max_source_positions: Annotated[int, Range(ge=1)] = 1_500
    """Encoder positions."""

    needs_processor: ClassVar[bool] = False
    architectures: ClassVar[frozenset[str]] = frozenset({"WhisperForConditionalGeneration"})
    model_names: ClassVar[tuple[str, ...]] = ("whisper",)

    @classmethod
    def from_files(cls, files: ModelFiles) -> dict[str, Any]:
        """``max_source_positions`` of config.json."""
        return known(max_source_positions=number(files.config, "max_source_positions"))

    def audio(self, info: AudioInfo) -> Count | Refused:
        """The same for every sound.

        >>> Whisper().audio(AudioInfo(duration_s=10))
        Count(num_tokens=0, num_embeds=1500, num_wrapper_tokens=0)
        """
        return Count(num_tokens=0, num_embeds=self.max_source_positions) if num_samples(info) else NO_SOUND
