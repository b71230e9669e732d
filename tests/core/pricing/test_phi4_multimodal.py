"""Do Phi-4-multimodal's settings come from its files, and what do sounds cost?"""

import pytest

from tessera.core.family import AudioInfo, Count, ModelFiles, Refused
from tessera.core.pricing.phi4_multimodal import Phi4Multimodal

REMOTE = ModelFiles(
    config={
        "architectures": ["Phi4MMForCausalLM"],
        "embd_layer": {"audio_embd_layer": {"compression_rate": 8, "downsample_rate": 1}},
    },
    preprocessor={"audio_compression_rate": 8, "audio_downsample_rate": 1, "dynamic_hd": 36},
)


def test_from_the_published_files():
    assert Phi4Multimodal.matches(REMOTE)
    assert Phi4Multimodal.from_files(REMOTE) == {"dynamic_hd": 36, "audio_compression_rate": 8}
    assert Phi4Multimodal.from_files(ModelFiles(config=REMOTE.config)) == {"audio_compression_rate": 8}
    hugging_face = ModelFiles(
        config={"architectures": ["Phi4MultimodalForCausalLM"]},
        preprocessor={"size": {"height": 448, "width": 448}, "patch_size": 14, "dynamic_hd": 36},
    )
    assert Phi4Multimodal.matches(hugging_face)
    assert Phi4Multimodal.from_files(hugging_face) == {"image_size": 448, "dynamic_hd": 36}
    assert Phi4Multimodal.from_files(ModelFiles(preprocessor={"size": 27})) == {}


def test_from_a_request():
    assert Phi4Multimodal.from_kwargs({"dynamic_hd": 4}) == {"dynamic_hd": 4}
    assert Phi4Multimodal.from_kwargs({"dynamic_hd": 10**12}) == {}


def test_padding_costs_nothing():
    whole = 16 * 16 + 16 + 1
    assert Phi4Multimodal().image(448, 448) == Count(num_tokens=whole + 16 * 16 + 16, num_embeds=whole + 16 * 16 + 16)
    # 13 pixels of padding are no patch; 14 are one, which shares its token; 28 are a token.
    for height, rows in [(448, 16), (435, 16), (434, 16), (420, 15)]:
        tokens = whole + 16 * rows + rows
        assert Phi4Multimodal().image(448, height) == Count(num_tokens=tokens, num_embeds=tokens)
    assert isinstance(Phi4Multimodal().image(448, 0), Refused)


def test_a_needle_is_priced_as_vllm_does():
    assert Phi4Multimodal().image(1, 200) == Count(num_tokens=305, num_embeds=305)


@pytest.mark.parametrize(("samples", "tokens"), [(400, 1), (400 + 7 * 160, 1), (400 + 8 * 160, 2)])
def test_sounds(samples, tokens):
    count = Phi4Multimodal().audio(AudioInfo(duration_s=samples / 16_000))
    assert count == Count(num_tokens=tokens, num_embeds=tokens)


@pytest.mark.parametrize("duration_s", [0.0, -1.0, 399 / 16_000, float("nan")])
def test_sounds_shorter_than_a_frame(duration_s):
    assert isinstance(Phi4Multimodal().audio(AudioInfo(duration_s=duration_s)), Refused)


def test_an_endless_sound_is_bounded():
    count = Phi4Multimodal().audio(AudioInfo(duration_s=float("inf")))
    assert isinstance(count, Count)
    assert count.num_tokens <= 12_500_000
