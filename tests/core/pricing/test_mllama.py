"""Do the settings of Llama 3.2 Vision come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.mllama import Mllama

FILES = ModelFiles(
    config={
        "architectures": ["MllamaForConditionalGeneration"],
        "vision_config": {"image_size": 560, "patch_size": 14, "max_num_tiles": 4},
    },
    preprocessor={"size": {"height": 560, "width": 560}, "max_image_tiles": 4},
)


def test_from_the_published_files():
    assert Mllama.matches(FILES)
    assert Mllama.from_files(FILES) == {"image_size": 560, "patch_size": 14, "max_image_tiles": 4}
    assert Mllama.from_files(ModelFiles(config=FILES.config)) == Mllama.from_files(FILES)


def test_from_a_request():
    assert Mllama.from_kwargs({"max_image_tiles": 2, "size": {"height": 448, "width": 448}}) == {
        "max_image_tiles": 2,
        "image_size": 448,
    }
    assert Mllama.from_kwargs({"max_image_tiles": -2, "size": {"height": 448, "width": 1}}) == {}


def test_one_token_whatever_the_encoder_does():
    assert Mllama().image(560, 560) == Count(num_tokens=1, num_embeds=1601)
    assert Mllama().image(561, 560) == Count(num_tokens=1, num_embeds=2 * 1601)
    assert Mllama(max_image_tiles=1).image(9000, 9000) == Count(num_tokens=1, num_embeds=1601)
    assert isinstance(Mllama().image(0, 0), Refused)
