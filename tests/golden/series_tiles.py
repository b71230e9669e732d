"""Which golden series do the families that cut a picture into tiles meet, and with which settings?

What mistral_common counts (``mistral_common_tokens``) is checked in
tests/core/pricing/test_pixtral.py: the errors of these files are not its own.
"""

from .series import Series

SERIES = [
    Series(file="aya_vision", key="cases", family_type="aya-vision"),
    Series(file="command_a_vision", key="cases", family_type="command-a-vision"),
    Series(file="deepseek_ocr", key="cases", family_type="deepseek-ocr"),
    Series(file="deepseek_vl2", key="cases", family_type="deepseek-vl2"),
    Series(file="deepseek_vl2", key="cases_no_crop", family_type="deepseek-vl2", num_images=3),
    Series(file="idefics3", key="cases", family_type="idefics3"),
    Series(file="internvl_hf", key="cases", family_type="internvl-hf"),
    Series(file="internvl_remote", key="cases", family_type="internvl"),
    Series(file="llama4", key="cases", family_type="llama4"),
    Series(file="llava_1_5", key="cases", family_type="llava-1.5"),
    Series(file="llava_next", key="cases", family_type="llava-next"),
    Series(file="llava_onevision", key="cases", family_type="llava-onevision"),
    Series(file="llava_onevision", key="video_cases", family_type="llava-onevision", kind="video"),
    Series(file="minicpmv4_6", key="cases", family_type="minicpm-v-4.6"),
    Series(
        file="minicpmv4_6",
        key="cases",
        family_type="minicpm-v-4.6",
        overrides={"use_image_id": False},
        tokens="tokens_no_id",
    ),
    *(
        Series(file=file, key=key, family_type=family_type)
        for file, family_type in (("pixtral", "pixtral"), ("mistral_small_3", "mistral-small-3"))
        for key in ("cases", "cases_discriminating")
    ),
    Series(file="mllama", key="cases", family_type="mllama", embeds="cross_attention_states"),
    Series(file="molmo", key="cases", family_type="molmo"),
    Series(file="phi4_multimodal", key="cases", family_type="phi4-multimodal", tokens="vllm_tokens"),
    Series(file="phi4_multimodal", key="audio_cases", family_type="phi4-multimodal", kind="audio"),
    *(
        Series(file=file, key="cases", family_type=family_type)
        for file, family_type in (
            ("smolvlm", "smolvlm"),
            ("smolvlm2", "smolvlm"),
            ("smolvlm2_256m_500m", "smolvlm-500m"),
        )
    ),
]
