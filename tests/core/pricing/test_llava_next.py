"""Do LLaVA-NeXT's settings come from its files?"""

from tessera.core.family import Count, ModelFiles, Refused
from tessera.core.pricing.llava_next import LlavaNext

PINPOINTS = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
FILES = ModelFiles(
    config={
        "architectures": ["LlavaNextForConditionalGeneration"],
        "image_grid_pinpoints": PINPOINTS,
        "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14},
        "vision_feature_select_strategy": "default",
    },
    preprocessor={"image_grid_pinpoints": PINPOINTS, "size": {"shortest_edge": 336}},
)


def test_from_the_published_files():
    assert LlavaNext.matches(FILES)
    assert LlavaNext.from_files(FILES) == {
        "image_size": 336,
        "patch_size": 14,
        "image_grid_pinpoints": tuple(tuple(pair) for pair in PINPOINTS),
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
    }
    only_processor = LlavaNext.from_files(ModelFiles(preprocessor=FILES.preprocessor))
    assert only_processor == {"image_size": 336, "image_grid_pinpoints": tuple(tuple(pair) for pair in PINPOINTS)}


def test_a_siglip_encoder_has_no_class_token():
    config = {
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
        "vision_feature_select_strategy": "full",
        "image_grid_pinpoints": [[384, 384]],
    }
    family = LlavaNext(**LlavaNext.from_files(ModelFiles(config=config)))
    assert family.image(384, 384) == Count(num_tokens=729 + 27 * 27 + 27, num_embeds=729 + 27 * 27 + 27)


def test_from_a_request():
    assert LlavaNext.from_kwargs({"image_grid_pinpoints": [[336, 336]]}) == {"image_grid_pinpoints": ((336, 336),)}
    assert LlavaNext.from_kwargs({"image_grid_pinpoints": [[336, 336]] * 100_000}) == {}
    assert LlavaNext.from_kwargs({"image_grid_pinpoints": "(1x1),...,(6x6)"}) == {}


def test_padding_costs_nothing():
    assert LlavaNext().image(672, 672) == Count(num_tokens=576 + 48 * 48 + 48, num_embeds=576 + 48 * 48 + 48)
    assert LlavaNext().image(10_000, 1) == Count(num_tokens=576, num_embeds=576)
    assert isinstance(LlavaNext().image(10, -1), Refused)


def test_a_canvas_smaller_than_a_tile_adds_nothing():
    assert LlavaNext(image_grid_pinpoints=((100, 100),)).image(50, 50) == Count(num_tokens=576, num_embeds=576)
