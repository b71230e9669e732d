"""Does any picture, clip or sound get a bounded price from the families without tiles, and nonsense a refusal?"""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tessera.core.family import AudioInfo, Count, Family, ModelFiles, Refused, VideoInfo
from tessera.core.plugin import registered
from tessera.core.pricing import (
    gemma3,
    gemma4,
    glm_v,
    kimi_vl,
    paligemma,
    qwen_audio,
    qwen_omni,
    qwen_vl,
    voxtral,
    whisper,
)

MOST_EMBEDS_OF_AN_IMAGE = {
    qwen_vl.Qwen2VL: 16_384,
    qwen_vl.Qwen3VL: 16_384,
    qwen_omni.Qwen25Omni: 16_384,
    qwen_omni.Qwen3Omni: 12_544,
    gemma3.Gemma3: 256,
    gemma3.Gemma3n: 256,
    gemma4.Gemma4: 280,
    gemma4.Gemma4Unified: 280,
    paligemma.PaliGemma: 256,
    glm_v.Glm45V: 6_144,
    glm_v.Glm46V: 6_144,
    kimi_vl.KimiVL: 3_572,  # 100,000 x 13 is never scaled down
    kimi_vl.KimiK25: 4_700,  # a limit of 4,096, before both sides are padded
}
MOST_EMBEDS_OF_A_CLIP = {
    qwen_vl.Qwen2VL: 385 * 16_384,
    qwen_vl.Qwen3VL: 384 * 81,  # 12,288 but for needles, whose frames stay one cell wide
    qwen_omni.Qwen25Omni: 385 * 768,
    qwen_omni.Qwen3Omni: 385 * 768,
    gemma4.Gemma4: 32 * 70,
    gemma4.Gemma4Unified: 32 * 70,
    glm_v.Glm45V: 300 * 142,
    glm_v.Glm46V: 320 * 138,
}
MOST_EMBEDS_OF_A_SOUND = {
    qwen_audio.Qwen2Audio: 750,
    qwen_audio.Qwen3ASR: 13_000_000,
    qwen_omni.Qwen25Omni: 7_500,
    qwen_omni.Qwen3Omni: 13_000_000,
    gemma3.Gemma3n: 188,
    gemma4.Gemma4: 750,
    gemma4.Gemma4Unified: 25_000_000,
    voxtral.Voxtral: 12_500_250,
    whisper.Whisper: 1_500,
}
FAMILIES = MOST_EMBEDS_OF_AN_IMAGE | MOST_EMBEDS_OF_A_CLIP | MOST_EMBEDS_OF_A_SOUND
SIDES = st.one_of(st.integers(1, 2_000), st.integers(1, 100_000))
JUNK = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(1 << 64), 1 << 64), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=8), inner, max_size=3)),
    max_leaves=6,
)
KEYS = (
    "size", "shortest_edge", "longest_edge", "min_pixels", "max_pixels", "images_kwargs", "videos_kwargs", "fps",
    "num_frames", "max_soft_tokens", "do_pan_and_scan", "pan_and_scan_max_num_crops", "pan_and_scan_min_crop_size",
    "pan_and_scan_min_ratio_to_activate", "video", "max_duration", "vision_config", "patch_size", "audio_config",
    "spatial_merge_size", "temporal_patch_size", "merge_kernel_size", "in_token_limit", "media_proc_cfg",
    "feature_extractor", "chunk_length", "image_seq_length", "default_output_length", "cap_pixels_per_frame",
    "max_video_tokens", "min_frames", "max_frames", "architectures", "whisper_model_args", "multimodal",
    "image_processor", "video_processor", "processor_class", "pooling_kernel_size", "image_size",
)  # fmt: skip
NUMBERS = st.one_of(st.integers(-1, 1 << 41), st.sampled_from([1, 2, 14, 1 << 39, 0.5, 1e-30, 1e12]))
SETTINGS = st.recursive(
    st.dictionaries(st.sampled_from(KEYS), st.one_of(NUMBERS, JUNK), max_size=5),
    lambda inner: st.dictionaries(st.sampled_from(KEYS), st.one_of(NUMBERS, JUNK, inner), max_size=5),
    max_leaves=4,
)


def test_no_family_of_ours_is_forgotten():
    ours = {cls for cls in registered(Family).values() if cls.__module__ in {each.__module__ for each in FAMILIES}}
    assert ours == set(FAMILIES)


@pytest.mark.parametrize("family", MOST_EMBEDS_OF_AN_IMAGE)
@given(SIDES, SIDES)
@settings(deadline=None)
@example(100_000, 13)
@example(1, 1)
def test_an_image_of_any_size(family, width, height):
    counted = family().image(width, height)
    assert counted == family().image(height, width)
    assert counted == family().image(width, height, num_images=7)
    if isinstance(counted, Refused):
        assert max(width, height) > 100 * min(width, height)
        return
    assert 1 <= counted.num_embeds <= MOST_EMBEDS_OF_AN_IMAGE[family]
    assert counted.num_embeds <= counted.num_tokens <= counted.num_embeds + 4


@pytest.mark.parametrize("family", MOST_EMBEDS_OF_AN_IMAGE)
@pytest.mark.parametrize("sides", [(0, 10), (10, 0), (-5, 10), (0, 0)])
def test_an_image_without_area_is_refused(family, sides):
    assert isinstance(family().image(*sides), Refused)


@pytest.mark.parametrize("family", MOST_EMBEDS_OF_A_CLIP)
@given(SIDES, SIDES, st.integers(0, 200_000), st.one_of(st.just(0.0), st.floats(0.01, 240)))
@settings(deadline=None)
@example(1_280, 720, 1, 30.0)
@example(400, 80_000, 100_000, 30.0)
@example(368, 10_928, 60, 0.0)
@example(1_280, 720, 1 << 60, 1e-300)
@example(1_280, 720, 1 << 60, float("inf"))
def test_a_clip_of_any_size_and_length(family, width, height, num_frames, fps):
    counted = family().video(VideoInfo(width=width, height=height, num_frames=num_frames, fps=fps))
    if isinstance(counted, Count):
        assert 1 <= counted.num_embeds <= MOST_EMBEDS_OF_A_CLIP[family]
        assert counted.num_embeds <= counted.num_tokens <= counted.num_embeds + 384 * 32


@pytest.mark.parametrize("family", MOST_EMBEDS_OF_A_SOUND)
@given(st.one_of(st.floats(0, 1_000), st.floats()))
@settings(deadline=None)
def test_a_sound_of_any_length(family, seconds):
    counted = family().audio(AudioInfo(duration_s=seconds))
    if isinstance(counted, Count):
        assert 0 <= counted.num_embeds <= MOST_EMBEDS_OF_A_SOUND[family]
    else:
        assert not seconds > 0.03


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_does_not_take_it_refuses(family):
    made = family()
    if family not in MOST_EMBEDS_OF_AN_IMAGE:
        assert isinstance(made.image(64, 64), Refused)
    if family not in MOST_EMBEDS_OF_A_CLIP:
        assert isinstance(made.video(VideoInfo(width=64, height=64, num_frames=30, fps=30.0)), Refused)
    if family not in MOST_EMBEDS_OF_A_SOUND:
        assert isinstance(made.audio(AudioInfo(duration_s=1.0)), Refused)


@given(st.sampled_from(list(FAMILIES)), SETTINGS, SETTINGS, SETTINGS)
@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_settings_of_any_kind_make_a_family_that_answers(family, config, processor, kwargs):
    files = ModelFiles(
        config=config, preprocessor=processor, processor=processor, video_preprocessor=kwargs, params=config
    )
    family.matches(files)
    media_io = getattr(family, "from_media_io_kwargs", lambda kwargs: {})
    made = family(**{**family.from_files(files), **family.from_kwargs(kwargs), **media_io(kwargs)})
    list(made.check())
    for answer in (
        made.image(1_280, 720),
        made.image(1 << 40, 1 << 40),
        made.video(VideoInfo(width=1_280, height=720, num_frames=1 << 40, fps=30.0)),
        made.audio(AudioInfo(duration_s=1_000.0)),
    ):
        assert isinstance(answer, Count | Refused)
