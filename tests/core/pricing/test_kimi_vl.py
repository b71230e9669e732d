"""Does Kimi only ever scale down, and read its limits from its files?"""

import pytest

from tessera.core.family import Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.kimi_vl import KimiK25, KimiVL


def test_from_the_published_files():
    files = ModelFiles(
        config={"architectures": ["KimiVLForConditionalGeneration"]},
        preprocessor={
            "in_token_limit": 4_096,
            "patch_size": 14,
            "merge_kernel_size": [2, 2],
            "num_pooled_tokens": 1_024,
        },
    )
    assert KimiVL.matches(files)
    assert KimiVL.from_files(files) == {"patch_size": 14, "merge_size": 2, "in_token_limit": 4_096}


@pytest.mark.parametrize(
    "preprocessor",
    [
        {
            "media_proc_cfg": {
                "in_patch_limit": 1_000,
                "patch_size": 14,
                "merge_kernel_size": 2,
                "patch_limit_on_one_side": 100,
                "fixed_output_tokens": None,
            }
        },
        {"max_patches": 1_000, "patch_size": 14, "merge_size": 2, "size": {"max_height": 100, "max_width": 100}},
    ],
)
def test_k25_in_either_format(preprocessor):
    files = ModelFiles(config={"architectures": ["KimiK25ForConditionalGeneration"]}, preprocessor=preprocessor)
    assert KimiK25.matches(files)
    assert KimiK25.from_files(files) == {
        "patch_size": 14,
        "merge_size": 2,
        "in_token_limit": 1_000,
        "side_limit": 100,
    }


def test_nothing_is_scaled_up():
    assert KimiVL().image(1, 1) == Count(num_tokens=1, num_embeds=1, num_wrapper_tokens=4)
    assert KimiK25().image(1, 1) == Count(num_tokens=1, num_embeds=1, num_wrapper_tokens=4)


def test_limits():
    assert KimiVL().image(10_000, 10_000).num_embeds == 32**2
    assert KimiK25().image(10_000, 10_000).num_embeds == 64**2
    assert KimiK25().image(100_000, 100).num_embeds == 256
    assert KimiK25(in_token_limit=100).image(10, 1_400).num_embeds == 50
    assert KimiK25(side_limit=100).image(10_000, 10_000).num_embeds == 50**2
    assert KimiVL(in_token_limit=16_384).image(10_000, 10_000).num_embeds == 64**2


def test_a_stripe_under_a_patch_is_never_scaled_down():
    assert KimiVL().image(1 << 20, 13).num_embeds == 37_450


def test_clips_are_refused():
    info = VideoInfo(width=64, height=64, num_frames=10, fps=2.0)
    assert KimiVL().video(info) == Refused("kimi-vl takes no video")
    assert KimiK25().video(info) == Refused("the rule for clips comes with the model's own code")
    assert KimiK25.from_kwargs({"size": {"longest_edge": 9}}) == {}


@pytest.mark.parametrize("family", [KimiVL(), KimiK25()])
def test_sides_that_no_processor_takes(family):
    assert isinstance(family.image(10**400, 10**400), Refused)
