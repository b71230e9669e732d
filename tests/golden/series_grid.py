"""Which golden series do the families without tiles meet, and with which settings?"""

from .series import Series

QWEN2_CLASS = {"max_pixels": 1_003_520}
QWEN3_VIDEO_CLASS = {"video_min_pixels": 131_072, "video_max_pixels": 786_432}
GLM_CLASS = {"min_pixels": 12_544, "max_pixels": 11_760_000}
SMALL_FRAMES = {"video_min_pixels": 128 * 28**2, "video_max_pixels": 768 * 28**2}

SERIES = [
    *(
        Series(file=file, key=key, family_type=family_type, overrides=overrides)
        for file, family_type in (("qwen2_vl", "qwen2-vl"), ("qwen2_5_vl", "qwen2.5-vl"))
        for key, overrides in (("cases", {}), ("cases_class_default", QWEN2_CLASS))
    ),
    *(
        Series(file=file, key=key, family_type=family_type, overrides=overrides, kind="video", embeds="tokens_embeds")
        for file, family_type in (("qwen2_vl", "qwen2-vl"), ("qwen2_5_vl", "qwen2.5-vl"))
        for key, overrides in (
            ("video_cases_size_published_image", {}),
            ("video_cases_size_128_768", SMALL_FRAMES),
        )
    ),
    Series(file="qwen3_vl", key="cases", family_type="qwen3-vl"),
    Series(file="qwen3_5", key="cases", family_type="qwen3.5"),
    *(
        Series(file=file, key=key, family_type=family_type, overrides=overrides, kind="video", embeds="tokens_embeds")
        for file, family_type in (("qwen3_vl", "qwen3-vl"), ("qwen3_5", "qwen3.6"))
        for key, overrides in (("video_cases", {}), ("video_cases_class_default_size", QWEN3_VIDEO_CLASS))
    ),
    *(
        series
        for file, family_type in (("qwen2_5_omni", "qwen2.5-omni"), ("qwen3_omni", "qwen3-omni"))
        for series in (
            Series(file=f"{file}_image", key="cases", family_type=family_type),
            Series(
                file=f"{file}_image", key="video_cases", family_type=family_type, kind="video", embeds="tokens_embeds"
            ),
            Series(file=f"{file}_audio", key="audio_cases", family_type=family_type, kind="audio"),
        )
    ),
    Series(file="qwen3_omni_audio", key="audio_cases", family_type="qwen3-asr", kind="audio"),
    Series(file="qwen2_audio", key="audio_cases", family_type="qwen2-audio", kind="audio"),
    Series(file="gemma3", key="cases", family_type="gemma3"),
    Series(file="gemma3", key="cases_pan_and_scan", family_type="gemma3", overrides={"do_pan_and_scan": True}),
    Series(file="gemma3n", key="cases", family_type="gemma3n"),
    Series(file="gemma3n", key="audio_cases", family_type="gemma3n", kind="audio"),
    Series(file="gemma4", key="cases", family_type="gemma4"),
    *(
        Series(file="gemma4", key=f"cases_budget_{budget}", family_type="gemma4", overrides={"max_soft_tokens": budget})
        for budget in (70, 140, 560, 1_120)
    ),
    Series(file="gemma4", key="video_cases", family_type="gemma4", kind="video", embeds="tokens_embeds"),
    Series(file="gemma4", key="audio_cases", family_type="gemma4", kind="audio"),
    Series(file="gemma4_unified", key="cases", family_type="gemma4-unified"),
    Series(file="gemma4_unified", key="audio_cases", family_type="gemma4-unified", kind="audio"),
    *(
        Series(file=f"paligemma_{size}", key="cases", family_type="paligemma", overrides={"image_seq_length": length})
        for size, length in ((224, 256), (448, 1_024), (896, 4_096))
    ),
    *(
        series
        for file, family_type in (("glm4v", "glm-4.5v"), ("glm46v", "glm-4.6v"))
        for series in (
            Series(file=file, key="cases", family_type=family_type),
            Series(file=file, key="cases_class_default", family_type=family_type, overrides=GLM_CLASS),
            Series(file=file, key="video_cases", family_type=family_type, kind="video", embeds="tokens_embeds"),
        )
    ),
    Series(file="kimi_vl", key="cases", family_type="kimi-vl"),
    Series(
        file="kimi_vl",
        key="cases_in_token_limit_16384",
        family_type="kimi-vl",
        overrides={"in_token_limit": 16_384},
    ),
    Series(file="kimi_k25", key="cases", family_type="kimi-k2.5"),
    Series(file="voxtral", key="audio_cases", family_type="voxtral", kind="audio"),
    Series(
        file="whisper",
        key="audio_cases",
        family_type="whisper",
        kind="audio",
        embeds="encoder_positions",
        constant_tokens=0,
    ),
]

ELSEWHERE = {
    ("vllm_video_sampling", "cases"): "tests/core/pricing/test_frames.py",
    ("qwen_timestamp_tokens", "cases"): "tests/core/pricing/test_qwen_vl.py",
}
"""Series that no family meets, and the test that reads them."""
