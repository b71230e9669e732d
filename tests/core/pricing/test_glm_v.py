"""Are GLM's two processors told apart, and are its limits those of a whole clip?"""

import json
from pathlib import Path

import pytest

from tessera.core.family import Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.glm_v import Glm45V, Glm46V

GOLDEN_DIR = Path(__file__).parents[2] / "golden"
VISION = {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}
PREPROCESSOR = {"size": {"shortest_edge": 12_544, "longest_edge": 9_633_792}, "patch_size": 14, "merge_size": 2}
VIDEO = {"size": {"shortest_edge": 12_544, "longest_edge": 47_040_000}, "fps": 2}


def files(architecture, **processor):
    config = {"architectures": [architecture], "vision_config": VISION}
    return ModelFiles(config=config, preprocessor={**PREPROCESSOR, **processor}, video_preprocessor=VIDEO)


def clip(num_frames, fps=30.0, width=1_280, height=720):
    return VideoInfo(width=width, height=height, num_frames=num_frames, fps=fps)


@pytest.mark.parametrize(("file", "family"), [("glm4v", Glm45V()), ("glm46v", Glm46V())])
def test_defaults_are_the_published_settings(file, family):
    published = json.loads((GOLDEN_DIR / f"{file}.json").read_text())["config"]
    size, video_size = published["size"], published["video_size"]
    assert (family.min_pixels, family.max_pixels) == (size["shortest_edge"], size["longest_edge"])
    assert (family.video_min_pixels, family.video_max_pixels) == (
        video_size["shortest_edge"],
        video_size["longest_edge"],
    )
    assert (family.patch_size, family.merge_size) == (published["patch_size"], published["merge_size"])


@pytest.mark.parametrize(
    ("model", "family"),
    [
        (files("Glm4vForConditionalGeneration", image_processor_type="Glm4vImageProcessor"), Glm45V),
        (files("Glm4vMoeForConditionalGeneration", processor_class="Glm4vProcessor"), Glm45V),
        (files("Glm4vMoeForConditionalGeneration", processor_class="Glm46VProcessor"), Glm46V),
        (files("Glm4vForConditionalGeneration", image_processor_type="Glm46VImageProcessor"), Glm46V),
        (files("GlmOcrForConditionalGeneration"), Glm46V),
        (files("Glm46VForConditionalGeneration"), Glm46V),
    ],
)
def test_one_architecture_two_processors(model, family):
    assert [each for each in (Glm45V, Glm46V) if each.matches(model)] == [family]
    made, default = family(**family.from_files(model)), family()
    assert all(getattr(made, name) == getattr(default, name) for name in family.parameters())


def test_another_model_with_this_processor_is_neither():
    other = ModelFiles(config={"architectures": ["LlamaForCausalLM"]}, processor={"processor_class": "Glm46VProcessor"})
    assert not Glm45V.matches(other)
    assert not Glm46V.matches(other)


def test_a_file_that_says_nothing_means_the_class_default():
    assert Glm45V.from_files(ModelFiles(preprocessor={"do_resize": True})) == {
        "min_pixels": 12_544,
        "max_pixels": 11_760_000,
    }
    assert Glm45V.from_files(ModelFiles()) == {}


def test_kwargs_of_a_request():
    found = Glm46V.from_kwargs({"size": {"longest_edge": 9}, "videos_kwargs": {"size": {"longest_edge": 8}}})
    assert found == {"max_pixels": 9, "video_max_pixels": 8}
    assert Glm46V.from_kwargs({"max_pixels": 9}) == {}


def test_media_io_kwargs_of_the_server():
    found = Glm45V.from_media_io_kwargs({"video": {"fps": 1, "max_duration": 60}})
    assert found == {"fps": 1.0, "max_duration_s": 60.0}
    assert Glm45V(**found).video(clip(300)).num_embeds == 5 * 1_196
    assert Glm46V.from_media_io_kwargs({"video": {"fps": 1}}) == {}


def test_a_picture_has_the_limits_of_two_frames():
    assert Glm45V().image(10_000, 10_000) == Count(num_tokens=78**2, num_embeds=78**2, num_wrapper_tokens=2)
    assert isinstance(Glm45V().image(30, 6_001), Refused)


def test_the_second_behind_each_pair_of_frames():
    """GLM-4.5V writes ``0``, GLM-4.6V ``0.0 seconds``; both put two marks around the pair."""
    assert Glm45V().video(clip(60)) == Count(num_tokens=2 * (1_196 + 2 + 1), num_embeds=2_392, num_wrapper_tokens=2)
    assert Glm46V().video(clip(60)) == Count(num_tokens=6 * (1_196 + 2 + 4), num_embeds=7_176, num_wrapper_tokens=2)


def test_seconds_of_four_digits_are_two_tokens():
    """300 pairs over 2,000 seconds: half of them from second 1,000 on."""
    count = Glm45V().video(clip(60_000, width=64, height=64))
    assert count.num_tokens - count.num_embeds == 300 * (2 + 1) + 150


def test_a_short_clip_is_priced_as_two_frames():
    assert Glm45V().video(clip(6, 15.0, 320, 240)).num_embeds == 99
    assert Glm45V().video(clip(20)).num_embeds == 1_196


def test_clips_that_are_refused():
    assert isinstance(Glm45V().video(clip(0)), Refused)
    assert isinstance(Glm46V().video(clip(30, 0.0)), Refused)
    assert isinstance(Glm45V().video(clip(30, width=6_001, height=30)), Refused)


def test_swapped_limits_are_a_problem():
    [(path, _)] = Glm45V(min_pixels=10, max_pixels=9).check()
    assert path == "minPixels"
