"""Does Voxtral price whole chunks of thirty seconds, in either file format?"""

import pytest

from tessera.core.family import AudioInfo, ModelFiles, Refused
from tessera.core.pricing.voxtral import Voxtral

PARAMS = {
    "dim": 3_072,
    "multimodal": {
        "whisper_model_args": {
            "encoder_args": {"audio_encoding_args": {"sampling_rate": 16_000, "num_mel_bins": 128}},
            "downsample_args": {"downsample_factor": 4},
        }
    },
}


def test_from_the_published_files():
    assert Voxtral.matches(ModelFiles(params=PARAMS))
    assert Voxtral.matches(ModelFiles(config={"architectures": ["VoxtralForConditionalGeneration"]}))
    assert not Voxtral.matches(ModelFiles(params={"vision_encoder": {"patch_size": 14}}))
    live = {"multimodal": {"whisper_model_args": {"encoder_args": {"causal": True}}}}
    assert not Voxtral.matches(ModelFiles(params=live))
    assert Voxtral.from_files(ModelFiles(params=PARAMS)) == {"tokens_per_chunk": 375}
    assert Voxtral.from_files(ModelFiles(params={"multimodal": []})) == {}


@pytest.mark.parametrize(("seconds", "tokens"), [(0.001, 376), (30.0, 376), (30.001, 751), (60.0, 751), (61.0, 1_126)])
def test_chunks(seconds, tokens):
    count = Voxtral().audio(AudioInfo(duration_s=seconds))
    assert (count.num_tokens, count.num_embeds) == (tokens, tokens - 1)


def test_an_empty_sound_is_refused():
    assert isinstance(Voxtral().audio(AudioInfo(duration_s=0.0)), Refused)
