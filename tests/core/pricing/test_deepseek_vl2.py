"""Do DeepSeek-VL2's settings come from its files?"""

import json
from pathlib import Path

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.deepseek_ocr import DeepseekOCR
from tessera.core.pricing.deepseek_vl2 import CANDIDATES, DeepseekVL2

GOLDEN_DIR = Path(__file__).parents[2] / "golden"
PUBLISHED = json.loads((GOLDEN_DIR / "deepseek_vl2.json").read_text())["config"]
FILES = ModelFiles(
    config={"model_type": "deepseek_vl_v2", "candidate_resolutions": PUBLISHED["candidate_resolutions"]},
    processor={
        "candidate_resolutions": PUBLISHED["candidate_resolutions"],
        "patch_size": 14,
        "downsample_ratio": 2,
    },
)
OCR = ModelFiles(config={"architectures": ["DeepseekOCRForCausalLM"], "model_type": "deepseek_vl_v2"})


def test_from_the_published_files():
    assert DeepseekVL2.from_files(FILES) == {
        "candidate_resolutions": CANDIDATES,
        "patch_size": 14,
        "downsample_ratio": 2,
    }
    assert DeepseekVL2.from_files(ModelFiles(config=FILES.config)) == {"candidate_resolutions": CANDIDATES}
    assert DeepseekVL2.from_files(ModelFiles(processor={"candidate_resolutions": [[384, 384]] * 1000})) == {}


def test_the_published_files_name_no_class():
    assert DeepseekVL2.matches(FILES)
    assert DeepseekVL2.matches(ModelFiles(config={"architectures": ["DeepseekVLV2ForCausalLM"]}))
    assert not DeepseekVL2.matches(OCR)
    assert DeepseekOCR.matches(OCR)
    assert not DeepseekVL2.matches(ModelFiles())


def test_a_request_cannot_change_it():
    assert DeepseekVL2.from_kwargs({"candidate_resolutions": [[384, 384]]}) == {}


def test_more_than_two_images_are_not_cut():
    one_tile = Count(num_tokens=2 * 14 * 15 + 1, num_embeds=2 * 14 * 15 + 1)
    assert DeepseekVL2().image(2000, 2000, num_images=3) == one_tile
    assert DeepseekVL2().image(2000, 2000, num_images=2) == DeepseekVL2().image(2000, 2000) != one_tile
    assert isinstance(DeepseekVL2().image(0, 2000), Refused)


def test_rows_end_with_a_token():
    wide = 14 * 15 + 1 + 14 * (2 * 14 + 1)
    assert DeepseekVL2().image(768, 384) == Count(num_tokens=wide, num_embeds=wide)
    tall = 14 * 15 + 1 + 2 * 14 * (14 + 1)
    assert DeepseekVL2().image(384, 768) == Count(num_tokens=tall, num_embeds=tall)
