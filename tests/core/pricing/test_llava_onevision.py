"""Do LLaVA-OneVision's settings come from its files, and what do clips cost?"""

import pytest

from tessera.core.family import Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.llava_onevision import SIX_BY_SIX, LlavaOnevision

PINPOINTS = [[384 * rows, 384 * columns] for rows in range(1, 7) for columns in range(1, 7)]
FILES = ModelFiles(
    config={
        "architectures": ["LlavaOnevisionForConditionalGeneration"],
        "image_grid_pinpoints": PINPOINTS,
        "vision_aspect_ratio": "anyres_max_9",
        "vision_config": {"model_type": "siglip_vision_model", "image_size": 384, "patch_size": 14},
    },
    preprocessor={"image_grid_pinpoints": PINPOINTS, "size": {"height": 384, "width": 384}},
    processor={"num_image_tokens": 729, "vision_feature_select_strategy": "full"},
)


def test_from_the_published_files():
    assert LlavaOnevision.matches(FILES)
    assert LlavaOnevision.from_files(FILES) == {
        "image_size": 384,
        "patch_size": 14,
        "image_grid_pinpoints": SIX_BY_SIX,
        "max_tiles": 9,
    }


@pytest.mark.parametrize(
    "said", ["anyres", "anyres_max_", "anyres_max_0", "anyres_max_999", "anyres_max_²", "pad", 9, None]
)
def test_another_aspect_ratio_is_not_believed(said):
    assert LlavaOnevision.from_files(ModelFiles(config={"vision_aspect_ratio": said})) == {}


def test_from_a_request_and_a_loader():
    assert LlavaOnevision.from_kwargs({"image_grid_pinpoints": [[384, 384]]}) == {"image_grid_pinpoints": ((384, 384),)}
    assert LlavaOnevision.from_media_io_kwargs({"video": {"num_frames": 8, "fps": 1}}) == {"num_frames": 8, "fps": 1.0}
    assert LlavaOnevision.from_media_io_kwargs({"video": 8}) == {}


def test_features_are_shrunk_to_those_of_nine_tiles():
    # 9 x 27 x 27 features may be exceeded by 1.1 x 1.1, to 7,938.
    for size, columns, rows in [((683, 2304), 48, 162), ((726, 2304), 45, 142), ((2304, 2304), 81, 81)]:
        tokens = 729 + columns * rows + rows
        assert LlavaOnevision().image(*size) == Count(num_tokens=tokens, num_embeds=tokens)


def test_several_images_cost_what_one_does():
    assert LlavaOnevision().image(640, 480, num_images=5) == LlavaOnevision().image(640, 480)
    assert isinstance(LlavaOnevision().image(-1, 480), Refused)


def test_clips():
    clip = VideoInfo(width=640, height=480, num_frames=300, fps=30.0)
    assert LlavaOnevision(num_frames=8).video(clip) == Count(num_tokens=8 * 196 + 1, num_embeds=8 * 196 + 1)
    assert LlavaOnevision(fps=1.0).video(clip) == Count(num_tokens=10 * 196 + 1, num_embeds=10 * 196 + 1)
