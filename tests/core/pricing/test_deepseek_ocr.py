"""Is DeepSeek-OCR priced in the mode that vLLM serves?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.deepseek_ocr import DeepseekOCR


def test_the_files_say_nothing():
    files = ModelFiles(
        config={"architectures": ["DeepseekOCRForCausalLM"], "candidate_resolutions": [[1024, 1024]]},
        processor={"candidate_resolutions": [[1024, 1024]], "patch_size": 16, "downsample_ratio": 4},
    )
    assert DeepseekOCR.matches(files)
    assert DeepseekOCR.from_files(files) == {}


def test_a_request_may_turn_the_tiles_off():
    assert DeepseekOCR.from_kwargs({"crop_mode": False}) == {"crop_mode": False}
    assert DeepseekOCR.from_kwargs({"crop_mode": 0}) == {}
    assert DeepseekOCR(crop_mode=False).image(2000, 2000) == Count(num_tokens=273, num_embeds=273)


def test_an_image_that_fits_into_a_tile_is_not_cut():
    assert DeepseekOCR().image(640, 640) == Count(num_tokens=273, num_embeds=273)
    assert DeepseekOCR().image(641, 640) == Count(num_tokens=273 + 20 * 21, num_embeds=273 + 20 * 21)
    assert isinstance(DeepseekOCR().image(641, 0), Refused)


def test_rows_end_with_a_token():
    assert DeepseekOCR().image(2000, 1000) == Count(num_tokens=273 + 10 * 21, num_embeds=273 + 10 * 21)
    assert DeepseekOCR().image(1000, 2000) == Count(num_tokens=273 + 20 * 11, num_embeds=273 + 20 * 11)
