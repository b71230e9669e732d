"""Is LLaVA 1.5's constant the one of the model's files?"""

import pytest

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.llava_1_5 import Llava15

CLIP = ModelFiles(
    config={
        "architectures": ["LlavaForConditionalGeneration"],
        "image_seq_length": 576,
        "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        "vision_feature_select_strategy": "default",
    },
    preprocessor={"crop_size": {"height": 336, "width": 336}, "size": {"shortest_edge": 336}},
    processor={"num_additional_image_tokens": 1, "patch_size": 14, "vision_feature_select_strategy": "default"},
)
SIGLIP = ModelFiles(
    config={
        "architectures": ["LlavaForConditionalGeneration"],
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
        "vision_feature_select_strategy": "full",
    }
)


def test_from_the_published_files():
    assert Llava15.matches(CLIP)
    assert Llava15.from_files(CLIP) == {
        "image_size": 336,
        "patch_size": 14,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }


@pytest.mark.parametrize(("files", "tokens"), [(CLIP, 576), (SIGLIP, 729), (ModelFiles(), 576)])
def test_the_constant(files, tokens):
    assert Llava15(**Llava15.from_files(files)).image(123, 4567) == Count(num_tokens=tokens, num_embeds=tokens)


def test_the_processors_file_alone():
    files = ModelFiles(processor={"num_additional_image_tokens": 0, "vision_feature_select_strategy": "full"})
    assert Llava15.from_files(files) == {"num_additional_image_tokens": 0, "vision_feature_select_strategy": "full"}
    nonsense = ModelFiles(processor={"num_additional_image_tokens": 7, "vision_feature_select_strategy": ["full"]})
    assert Llava15.from_files(nonsense) == {}


def test_the_class_token_counts_where_all_rows_are_used():
    assert Llava15(vision_feature_select_strategy="full").image(1, 1) == Count(num_tokens=577, num_embeds=577)
    assert isinstance(Llava15().image(0, 1), Refused)
