"""Do Pixtral's settings come from either kind of file, and does each kind round its own way?"""

import json
import os
from pathlib import Path

import pytest

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.llava_1_5 import Llava15
from tessera.core.pricing.mistral_small_3 import MistralSmall3
from tessera.core.pricing.pixtral import Pixtral

OWN_DIR = Path(__file__).parents[2] / "golden"
GOLDEN_DIR = Path(os.environ.get("TESSERA_GOLDEN_DIR", OWN_DIR))
PIXTRAL_PARAMS = {
    "dim": 5120,
    "vision_encoder": {"hidden_size": 1024, "image_size": 1024, "patch_size": 16, "image_token_id": 10},
}
SMALL_PARAMS = {
    "vision_encoder": {"image_size": 1540, "patch_size": 14, "spatial_merge_size": 2, "max_image_size": 1540},
}
PIXTRAL_HF = ModelFiles(
    config={
        "architectures": ["LlavaForConditionalGeneration"],
        "vision_config": {"model_type": "pixtral", "image_size": 1024, "patch_size": 16},
    },
    preprocessor={"patch_size": {"height": 16, "width": 16}, "size": {"longest_edge": 1024}},
)
SMALL_HF = ModelFiles(
    config={
        "architectures": ["Mistral3ForConditionalGeneration"],
        "spatial_merge_size": 2,
        "vision_config": {"model_type": "pixtral", "image_size": 1540, "patch_size": 14},
    },
    preprocessor={"patch_size": 14, "size": {"longest_edge": 1540}},
    processor={"patch_size": 14, "spatial_merge_size": 2},
)


def golden(file):
    """A golden file: the one put in from outside, where there is one of that name."""
    folder = GOLDEN_DIR if (GOLDEN_DIR / file).exists() else OWN_DIR
    return json.loads((folder / file).read_text())


def test_params_json_rounds():
    found = Pixtral.from_files(ModelFiles(params=PIXTRAL_PARAMS))
    assert found == {"patch_size": 16, "longest_edge": 1024, "rounding": "round"}
    found = MistralSmall3.from_files(ModelFiles(params=SMALL_PARAMS))
    assert found == {"patch_size": 14, "spatial_merge_size": 2, "longest_edge": 1540, "rounding": "round"}


def mistral_common_cases():
    """Every golden case that says what mistral_common counts."""
    return [
        pytest.param(family, case, id=f"{file}-{key}-{case['w']}x{case['h']}")
        for file, family in (("pixtral", Pixtral), ("mistral_small_3", MistralSmall3))
        for key, cases in golden(f"{file}.json").items()
        if key.startswith("cases")
        for case in cases
        if "mistral_common_tokens" in case
    ]


@pytest.mark.parametrize(("family", "case"), mistral_common_cases())
def test_rounding_equals_mistral_common(family, case):
    count = family(rounding="round").image(case["w"], case["h"])
    assert isinstance(count, Count)
    assert count.num_tokens == case["mistral_common_tokens"]


def test_params_json_goes_before_config_json_as_in_vllm():
    both = ModelFiles(config=SMALL_HF.config, params=SMALL_PARAMS)
    assert MistralSmall3.from_files(both)["rounding"] == "round"


def test_hugging_face_files():
    assert Pixtral.from_files(PIXTRAL_HF) == {"patch_size": 16, "longest_edge": 1024}
    found = MistralSmall3.from_files(SMALL_HF)
    assert found == {"patch_size": 14, "spatial_merge_size": 2, "longest_edge": 1540}


@pytest.mark.parametrize(
    ("files", "family"),
    [
        (PIXTRAL_HF, Pixtral),
        (ModelFiles(config={"architectures": ["PixtralForConditionalGeneration"]}), Pixtral),
        (ModelFiles(params=PIXTRAL_PARAMS), Pixtral),
        (SMALL_HF, MistralSmall3),
        (ModelFiles(params=SMALL_PARAMS), MistralSmall3),
        (ModelFiles(config=SMALL_HF.config, params=SMALL_PARAMS), MistralSmall3),
    ],
)
def test_exactly_one_family_matches(files, family):
    assert [each for each in (Pixtral, MistralSmall3, Llava15) if each.matches(files)] == [family]


def test_text_only_params_json_is_neither():
    files = ModelFiles(params={"dim": 5120})
    assert not Pixtral.matches(files)
    assert not MistralSmall3.matches(files)


def test_a_request_may_ask_for_another_size():
    assert Pixtral.from_kwargs({"size": {"longest_edge": 512}}) == {"longest_edge": 512}
    assert Pixtral.from_kwargs({"images_kwargs": {"size": {"longest_edge": 512}}}) == {"longest_edge": 512}
    assert Pixtral.from_kwargs({"size": {"longest_edge": 2**39}}) == {}


def test_what_is_shrunk_to_nothing():
    assert isinstance(Pixtral().image(1, 10_000), Refused)
    assert Pixtral(rounding="round").image(1, 10_000) == Count(num_tokens=128, num_embeds=64)
    assert isinstance(Pixtral().image(0, 10), Refused)


def test_a_side_of_whole_patches_needs_no_more():
    assert Pixtral().image(1024, 16) == Count(num_tokens=65, num_embeds=64)
    assert Pixtral().image(1024, 17) == Count(num_tokens=130, num_embeds=128)
