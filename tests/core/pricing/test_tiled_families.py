"""Does every family that cuts images into tiles keep its bounds, whatever the image, the files and the request?"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo
from tessera.core.plugin import registered

discover()

MAX_EMBEDS = {
    "aya-vision": 13 * 169,
    "command-a-vision": 13 * 256,
    "deepseek-ocr": 273 + 60 * 11,
    "deepseek-vl2": 211 + 9 * 14 * 15,
    "idefics3": 17 * 169,
    "internvl": 13 * 256,
    "internvl-hf": 13 * 256,
    "llama4": 17 * 144,
    "llava-1.5": 576,
    "llava-next": 576 + 48 * 48 + 48,
    "llava-onevision": 729 + 7938 + 162,
    "minicpm-v-4.6": 3_990,
    "mistral-small-3": 55 * 55,
    "mllama": 4 * 1601,
    "molmo": 144 + 100 * 12,
    "phi4-multimodal": 273 + 36 * 256 + 36 * 16,
    "pixtral": 64 * 64,
    "smolvlm": 17 * 81,
    "smolvlm-500m": 17 * 64,
}
"""Embeddings that no image of 1 to 100,000 pixels a side exceeds, with the published settings."""

FAMILIES = registered(Family)
SIDES = st.integers(1, 100_000) | st.integers(1, 30)
HUGE_SIDES = st.integers(-1, 1 << 40) | st.integers(0, 3)

WORDS = [
    *("size", "height", "width", "longest_edge", "shortest_edge", "crop_size", "max_image_size", "image_size"),
    *("patch_size", "min_patches", "max_patches", "min_dynamic_patch", "max_dynamic_patch", "crop_to_patches"),
    *("dynamic_image_size", "use_thumbnail", "image_grid_pinpoints", "vision_aspect_ratio", "candidate_resolutions"),
    *("spatial_merge_size", "pixel_shuffle_ratio", "downsample_ratio", "downsample_factor", "resize_to_max_canvas"),
    *("max_image_tiles", "max_num_tiles", "image_seq_len", "do_image_splitting", "scale_factor", "dynamic_hd"),
    *("scale_resolution", "max_slice_nums", "downsample_mode", "slice_mode", "crop_mode", "overlap_margins"),
    *("base_image_input_size", "image_patch_size", "max_crops", "image_token_length_w", "img_size", "vision_config"),
    *("images_kwargs", "vision_encoder", "video", "num_frames", "fps", "model_type", "image_processor"),
    *("force_image_size", "num_additional_image_tokens", "vision_feature_select_strategy", "compression_rate"),
]
NUMBERS = st.sampled_from([0, 1, 2, 13, 14, 336, 448, 65_536, 65_537, 2**40, -1, 0.5, 1e-9, float("nan"), float("inf")])
LEAVES = NUMBERS | st.sampled_from([None, True, False, "", "4x", "full", "anyres_max_9", "pixtral", [448, 448]])
SETTINGS = st.recursive(
    st.dictionaries(st.sampled_from(WORDS), LEAVES | st.lists(st.lists(NUMBERS, max_size=3), max_size=3), max_size=8),
    lambda inner: st.dictionaries(st.sampled_from(WORDS), inner | LEAVES, max_size=8),
    max_leaves=5,
)


@given(width=SIDES, height=SIDES, num_images=st.integers(1, 5))
def test_an_image_costs_something_and_not_too_much(width, height, num_images):
    for type_name, max_embeds in MAX_EMBEDS.items():
        count = FAMILIES[type_name]().image(width, height, num_images=num_images)
        if isinstance(count, Refused):
            assert type_name in {"pixtral", "mistral-small-3"}
            continue
        assert 1 <= count.num_embeds <= max_embeds, type_name
        assert count.num_wrapper_tokens == 0
        if type_name == "mllama":
            assert count.num_tokens == 1
        else:
            assert count.num_embeds <= count.num_tokens <= 2 * count.num_embeds, type_name


@given(width=HUGE_SIDES, height=HUGE_SIDES, settings=SETTINGS)
def test_no_setting_of_a_request_harms(width, height, settings):
    for type_name in MAX_EMBEDS:
        family = FAMILIES[type_name]
        harmless(family(**family.from_kwargs(settings)), width, height)
        from_media_io_kwargs = getattr(family, "from_media_io_kwargs", None)
        if from_media_io_kwargs is not None:
            harmless(family(**from_media_io_kwargs(settings)), width, height)


@given(width=HUGE_SIDES, height=HUGE_SIDES, config=SETTINGS, preprocessor=SETTINGS, processor=SETTINGS, params=SETTINGS)
def test_no_file_harms(width, height, config, preprocessor, processor, params):
    files = ModelFiles(config=config, preprocessor=preprocessor, processor=processor, params=params)
    for type_name in MAX_EMBEDS:
        family = FAMILIES[type_name]
        assert family.matches(files) in (True, False)
        found = family.from_files(files)
        assert found.keys() <= family.parameters()
        harmless(family(**found), width, height)


@pytest.mark.parametrize("type_name", MAX_EMBEDS)
def test_names_are_spelled_as_a_served_models_name_is_compared(type_name):
    names = FAMILIES[type_name].model_names
    assert names
    assert all(name == name.lower().replace("_", "-") for name in names)


def harmless(family, width, height):
    """The family answers, whatever it is asked."""
    for answer in (
        family.image(width, height),
        family.video(VideoInfo(width=width, height=height, num_frames=width, fps=height)),
    ):
        assert isinstance(answer, Count | Refused)
        if isinstance(answer, Count):
            assert answer.num_tokens >= 1
            assert answer.num_embeds >= 1
