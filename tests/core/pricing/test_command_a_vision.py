"""Do Command-A Vision's settings come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.command_a_vision import CommandAVision

FILES = ModelFiles(
    config={
        "architectures": ["Cohere2VisionForConditionalGeneration"],
        "vision_config": {"image_size": 512, "patch_size": 16},
    },
    preprocessor={
        "crop_to_patches": True,
        "max_patches": 12,
        "min_patches": 1,
        "patch_size": 16,
        "size": {"height": 512, "width": 512},
    },
)


def test_from_the_published_files():
    assert CommandAVision.matches(FILES)
    assert CommandAVision.from_files(FILES) == {
        "image_size": 512,
        "patch_size": 16,
        "max_patches": 12,
        "crop_to_patches": True,
    }
    assert CommandAVision.from_files(ModelFiles(config=FILES.config)) == {"image_size": 512, "patch_size": 16}


def test_from_a_request():
    assert CommandAVision.from_kwargs({"images_kwargs": {"max_patches": 6}}) == {"max_patches": 6}
    assert CommandAVision.from_kwargs({"max_patches": 0, "crop_to_patches": None}) == {}


def test_each_tile_ends_with_a_line_break():
    assert CommandAVision().image(512, 512) == Count(num_tokens=259, num_embeds=256)
    assert CommandAVision().image(513, 512) == Count(num_tokens=3 * 257 + 2, num_embeds=3 * 256)
    assert CommandAVision(crop_to_patches=False).image(5000, 512) == Count(num_tokens=259, num_embeds=256)
    assert isinstance(CommandAVision().image(1, 0), Refused)
