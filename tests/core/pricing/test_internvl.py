"""Do InternVL's settings come from either kind of repository, and what do clips cost?"""

import pytest

from tessera.core.family import Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.internvl import InternVL
from tessera.core.pricing.internvl_hf import InternVLHF

REMOTE = ModelFiles(
    config={
        "architectures": ["InternVLChatModel"],
        "force_image_size": 448,
        "downsample_ratio": 0.5,
        "dynamic_image_size": True,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "use_thumbnail": True,
        "vision_config": {"image_size": 448, "patch_size": 14},
    },
    preprocessor={"crop_size": 448, "size": 448},
)
HUGGING_FACE = ModelFiles(
    config={
        "architectures": ["InternVLForConditionalGeneration"],
        "downsample_ratio": 0.5,
        "image_seq_length": 256,
        "vision_config": {"image_size": [448, 448], "patch_size": [14, 14]},
    },
    preprocessor={
        "crop_to_patches": False,
        "min_patches": 1,
        "max_patches": 12,
        "size": {"height": 448, "width": 448},
    },
)


def test_from_the_published_files():
    assert InternVL.from_files(REMOTE) == {
        "image_size": 448,
        "patch_size": 14,
        "downsample_ratio": 0.5,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
        "dynamic_image_size": True,
        "use_thumbnail": True,
    }
    assert InternVLHF.from_files(HUGGING_FACE) == {
        "image_size": 448,
        "patch_size": 14,
        "downsample_ratio": 0.5,
        "min_dynamic_patch": 1,
        "max_dynamic_patch": 12,
    }
    assert InternVL.from_files(ModelFiles(config={"force_image_size": 224})) == {"image_size": 224}


@pytest.mark.parametrize(("files", "family"), [(REMOTE, InternVL), (HUGGING_FACE, InternVLHF)])
def test_exactly_one_family_matches(files, family):
    assert [each for each in (InternVL, InternVLHF) if each.matches(files)] == [family]


def test_from_a_request():
    assert InternVL.from_kwargs({"max_dynamic_patch": 4, "use_thumbnail": False}) == {
        "max_dynamic_patch": 4,
        "use_thumbnail": False,
    }
    assert InternVL.from_kwargs({"max_dynamic_patch": 10**9, "dynamic_image_size": 1}) == {}
    assert InternVLHF.from_kwargs({"images_kwargs": {"max_patches": 4}, "crop_to_patches": False}) == {
        "max_dynamic_patch": 4,
        "dynamic_image_size": False,
    }
    assert InternVLHF.from_kwargs({"max_dynamic_patch": 4}) == {}


def test_tiles_and_thumbnail():
    assert InternVL(use_thumbnail=False).image(896, 448) == Count(num_tokens=514, num_embeds=512)
    assert InternVL().image(896, 448) == Count(num_tokens=770, num_embeds=768)
    assert InternVL(dynamic_image_size=False).image(896, 448) == Count(num_tokens=258, num_embeds=256)
    assert InternVL(min_dynamic_patch=13).image(896, 448) == Count(num_tokens=258, num_embeds=256)
    assert isinstance(InternVL().image(0, 448), Refused)


def test_clips_have_a_text_before_each_frame():
    twelve = VideoInfo(width=640, height=480, num_frames=12, fps=24.0)
    digits = 9 + 3 * 2
    assert InternVL().video(twelve) == Count(num_tokens=12 * (256 + 2 + 3) + digits, num_embeds=12 * 256)
    assert InternVLHF().video(twelve) == Count(num_tokens=12 * (256 + 2 + 3) + digits + 11, num_embeds=12 * 256)
    assert InternVL.from_media_io_kwargs({"video": {"num_frames": 4, "fps": 1.5}}) == {"num_frames": 4, "fps": 1.5}
    assert InternVL(num_frames=4).video(twelve) == Count(num_tokens=4 * (256 + 2 + 3) + 4, num_embeds=4 * 256)
