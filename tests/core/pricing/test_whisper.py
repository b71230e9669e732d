"""Does Whisper price encoder positions only?"""

from tessera.core.family import AudioInfo, Count, ModelFiles, Refused
from tessera.core.pricing.whisper import Whisper


def test_the_encoder_has_always_as_many_positions():
    files = ModelFiles(
        config={"architectures": ["WhisperForConditionalGeneration"], "max_source_positions": 1_500},
        preprocessor={"chunk_length": 30, "feature_size": 128},
    )
    assert Whisper.matches(files)
    family = Whisper(**Whisper.from_files(files))
    assert family.audio(AudioInfo(duration_s=0.1)) == Count(num_tokens=0, num_embeds=1_500)
    assert family.audio(AudioInfo(duration_s=300.0)) == Count(num_tokens=0, num_embeds=1_500)
    assert Whisper(max_source_positions=750).audio(AudioInfo(duration_s=1.0)).num_embeds == 750


def test_an_empty_sound_is_refused():
    assert isinstance(Whisper().audio(AudioInfo(duration_s=0.0)), Refused)
