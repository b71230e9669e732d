"""Do Llama 4's settings come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.llama4 import Llama4

FILES = ModelFiles(
    config={
        "architectures": ["Llama4ForConditionalGeneration"],
        "vision_config": {"image_size": 336, "patch_size": 14, "pixel_shuffle_ratio": 0.5},
    },
    preprocessor={"size": {"height": 336, "width": 336}, "max_patches": 16, "resize_to_max_canvas": False},
    processor={"patch_size": 14, "pixel_shuffle_ratio": 0.5},
)


def test_from_the_published_files():
    assert Llama4.matches(FILES)
    assert Llama4.from_files(FILES) == {
        "image_size": 336,
        "patch_size": 14,
        "pixel_shuffle_ratio": 0.5,
        "max_patches": 16,
        "resize_to_max_canvas": False,
    }
    assert Llama4.from_files(ModelFiles()) == {}


def test_from_a_request():
    assert Llama4.from_kwargs({"max_patches": 4, "resize_to_max_canvas": True}) == {
        "max_patches": 4,
        "resize_to_max_canvas": True,
    }
    assert Llama4.from_kwargs({"max_patches": 10**9, "resize_to_max_canvas": "yes"}) == {}


def test_one_tile_has_no_separators():
    assert Llama4().image(336, 336) == Count(num_tokens=147, num_embeds=144)
    assert Llama4().image(337, 336) == Count(num_tokens=3 + 3 * 144 + 2, num_embeds=3 * 144)
    assert Llama4(max_patches=1).image(5000, 5000) == Count(num_tokens=147, num_embeds=144)
    assert isinstance(Llama4().image(1, 0), Refused)


def test_the_shuffle_ratio_decides_what_a_tile_costs():
    assert Llama4(pixel_shuffle_ratio=1.0).image(1, 1) == Count(num_tokens=579, num_embeds=576)
    assert Llama4(pixel_shuffle_ratio=0.01).image(1, 1) == Count(num_tokens=4, num_embeds=1)
