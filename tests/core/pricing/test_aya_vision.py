"""Do Aya Vision's settings come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.aya_vision import AyaVision

FILES = ModelFiles(
    config={
        "architectures": ["AyaVisionForConditionalGeneration"],
        "downsample_factor": 2,
        "vision_config": {"image_size": 364, "patch_size": 14},
    },
    preprocessor={
        "crop_to_patches": True,
        "min_patches": 1,
        "max_patches": 12,
        "size": {"height": 364, "width": 364},
    },
    processor={"img_size": 364, "patch_size": 14, "downsample_factor": 2},
)


def test_from_the_published_files():
    assert AyaVision.matches(FILES)
    published = {"img_size": 364, "patch_size": 14, "downsample_factor": 2, "min_patches": 1, "max_patches": 12}
    assert AyaVision.from_files(FILES) == published
    assert AyaVision.from_files(ModelFiles(config=FILES.config, preprocessor=FILES.preprocessor)) == published


def test_from_a_request():
    assert AyaVision.from_kwargs({"max_patches": 2, "crop_to_patches": False}) == {
        "max_patches": 2,
        "crop_to_patches": False,
    }
    assert AyaVision.from_kwargs({"max_patches": 2**40, "min_patches": "1"}) == {}


def test_each_tile_has_a_name():
    assert AyaVision().image(364, 364) == Count(num_tokens=172, num_embeds=169)
    assert AyaVision().image(728, 364) == Count(num_tokens=3 * 170 + 2, num_embeds=3 * 169)
    assert AyaVision(crop_to_patches=False).image(728, 364) == Count(num_tokens=172, num_embeds=169)
    assert isinstance(AyaVision().image(0, 1), Refused)
