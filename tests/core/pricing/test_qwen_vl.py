"""Are Qwen's published settings ours, do the files and kwargs change them, and is the time between frames counted?"""

import json
import os
from pathlib import Path

import pytest

from tessera.core.family import Count, Family, ModelFiles, Refused, VideoInfo
from tessera.core.plugin import registered
from tessera.core.pricing.qwen_vl import NUM_TIMESTAMP_MARKS, Qwen2VL, Qwen3VL

OWN_DIR = Path(__file__).parents[2] / "golden"
GOLDEN_DIR = Path(os.environ.get("TESSERA_GOLDEN_DIR", OWN_DIR))

QWEN3_FILES = ModelFiles(
    config={
        "architectures": ["Qwen3VLMoeForConditionalGeneration"],
        "vision_config": {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2},
    },
    preprocessor={
        "size": {"longest_edge": 16_777_216, "shortest_edge": 65_536},
        "patch_size": 16,
        "merge_size": 2,
        "image_processor_type": "Qwen2VLImageProcessorFast",
    },
    video_preprocessor={
        "size": {"longest_edge": 25_165_824, "shortest_edge": 4_096},
        "fps": 2,
        "min_frames": 4,
        "max_frames": 768,
        "video_processor_type": "Qwen3VLVideoProcessor",
    },
)
QWEN25_FILES = ModelFiles(
    config={
        "architectures": ["Qwen2_5_VLForConditionalGeneration"],
        "vision_config": {"patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2},
    },
    preprocessor={"min_pixels": 3_136, "max_pixels": 12_845_056, "patch_size": 14, "merge_size": 2},
)


def golden(file):
    """A golden file: the one put in from outside, where there is one of that name."""
    folder = GOLDEN_DIR if (GOLDEN_DIR / file).exists() else OWN_DIR
    return json.loads((folder / file).read_text())


def clip(width=1_280, height=720, num_frames=300, fps=30.0):
    return VideoInfo(width=width, height=height, num_frames=num_frames, fps=fps)


def tokens(count):
    assert isinstance(count, Count), count
    return count.num_tokens


@pytest.mark.parametrize("file", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5"])
def test_defaults_are_the_published_settings(file):
    published = json.loads((OWN_DIR / f"{file}.json").read_text())["config"]
    family = Qwen3VL() if file.startswith("qwen3") else Qwen2VL()
    assert (family.patch_size, family.merge_size) == (published["patch_size"], published["merge_size"])
    assert family.temporal_patch_size == published["temporal_patch_size"]
    assert (family.min_pixels, family.max_pixels) == (published["shortest_edge"], published["longest_edge"])
    if "video" in published:
        size = published["video"]["size"]
        assert (family.video_min_pixels, family.video_max_pixels) == (size["shortest_edge"], size["longest_edge"])
        assert (family.fps, family.min_frames, family.max_frames) == (
            published["video"]["fps"],
            published["video"]["min_frames"],
            published["video"]["max_frames"],
        )


def test_the_numbers_of_the_article():
    assert Qwen3VL().image(1_280, 720) == Count(num_tokens=880, num_embeds=880, num_wrapper_tokens=2)
    assert tokens(Qwen3VL().image(100, 100)) == 64
    hour = Qwen3VL().video(clip(num_frames=108_000))
    assert hour == Count(num_tokens=14_857, num_embeds=10_752, num_wrapper_tokens=2)


def test_the_limits():
    assert tokens(Qwen3VL().image(1, 1)) == 64
    assert tokens(Qwen3VL().image(2**32, 2**32)) == 16_384
    assert tokens(Qwen3VL(min_pixels=1).image(1, 1)) == 1


def test_the_longest_accepted_shape():
    assert isinstance(Qwen3VL().image(2_000, 10), Count)
    assert isinstance(Qwen3VL().image(2_001, 10), Refused)
    assert isinstance(Qwen3VL().image(10, 2_001), Refused)


def test_swapped_limits_are_a_problem():
    assert list(Qwen3VL().check()) == []
    [(path, message)] = Qwen3VL(min_pixels=10, max_pixels=9).check()
    assert path == "minPixels"
    assert "maxPixels 9" in message
    [(path, message)] = Qwen3VL(video_min_pixels=10, video_max_pixels=9).check()
    assert path == "videoMinPixels"


def test_from_the_published_files():
    assert Qwen3VL.matches(QWEN3_FILES)
    assert not Qwen2VL.matches(QWEN3_FILES)
    made, default = Qwen3VL(**Qwen3VL.from_files(QWEN3_FILES)), Qwen3VL()
    assert all(getattr(made, name) == getattr(default, name) for name in Qwen3VL.parameters())
    assert Qwen2VL.matches(QWEN25_FILES)
    made, default = Qwen2VL(**Qwen2VL.from_files(QWEN25_FILES)), Qwen2VL()
    assert all(getattr(made, name) == getattr(default, name) for name in Qwen2VL.parameters())


@pytest.mark.parametrize(
    "architecture",
    ["Qwen3VLForConditionalGeneration", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"],
)
def test_every_architecture_with_this_rule(architecture):
    files = ModelFiles(config={"architectures": [architecture]})
    assert [cls for cls in set(registered(Family).values()) if cls.matches(files)] == [Qwen3VL]


def test_config_json_goes_before_the_processor_in_patches():
    files = ModelFiles(config={"vision_config": {"patch_size": 16}}, preprocessor={"patch_size": 14, "merge_size": 4})
    found = Qwen3VL.from_files(files)
    assert (found["patch_size"], found["merge_size"]) == (16, 4)


def test_one_file_for_all_processors():
    """A v5-style repository has only processor_config.json."""
    files = ModelFiles(
        processor={
            "image_processor": {"size": {"longest_edge": 1_000, "shortest_edge": 100}},
            "video_processor": {"size": {"longest_edge": 3_000, "shortest_edge": 300}, "fps": 1},
        }
    )
    assert Qwen3VL.from_files(files) == {
        "min_pixels": 100,
        "max_pixels": 1_000,
        "video_min_pixels": 300,
        "video_max_pixels": 3_000,
        "processor_fps": 1.0,
    }


def test_a_missing_file_leaves_what_is_published():
    assert Qwen3VL.from_files(ModelFiles()) == Qwen2VL.from_files(ModelFiles()) == {}
    only_images = ModelFiles(preprocessor=QWEN3_FILES.preprocessor)
    assert "video_max_pixels" not in Qwen3VL.from_files(only_images)


def test_a_file_that_says_nothing_means_the_class_default():
    found = Qwen2VL.from_files(ModelFiles(preprocessor={"image_processor_type": "Qwen2VLImageProcessor"}))
    assert found == {
        "min_pixels": 3_136,
        "max_pixels": 1_003_520,
        "video_min_pixels": 100_352,
        "video_max_pixels": 602_112,
    }


def test_kwargs_of_a_request():
    assert Qwen3VL.from_kwargs({}) == {}
    assert Qwen3VL.from_kwargs({"size": {"longest_edge": 50_176}, "min_pixels": 1}) == {
        "min_pixels": 1,
        "max_pixels": 50_176,
        "video_min_pixels": 1,
        "video_max_pixels": 50_176,
    }
    scoped = {"images_kwargs": {"max_pixels": 5}, "videos_kwargs": {"size": {"shortest_edge": 6}, "fps": 1}}
    assert Qwen3VL.from_kwargs(scoped) == {"max_pixels": 5, "video_min_pixels": 6, "processor_fps": 1.0}
    assert Qwen2VL.from_kwargs({"fps": 1, "num_frames": 8, "cap_pixels_per_frame": True}) == {
        "cap_pixels_per_frame": True
    }


def test_media_io_kwargs_of_the_server():
    found = Qwen3VL.from_media_io_kwargs({"video": {"fps": 1, "max_frames": 100, "num_frames": 8}, "image": 3})
    assert found == {"fps": 1.0, "max_frames": 100}
    assert Qwen3VL.from_media_io_kwargs({"video": [1]}) == {}


def timestamp_cases():
    return golden("qwen_timestamp_tokens.json")["cases"]


@pytest.mark.parametrize("case", timestamp_cases(), ids=lambda case: case["text"])
def test_the_time_is_its_digits_and_four_marks(case):
    assert sum(sign.isdigit() for sign in case["text"]) + NUM_TIMESTAMP_MARKS == case["tokens"]


def test_the_time_before_each_pair_of_frames():
    """Frames 0 and 99 of 100, at 0.1 a second, meet at ``<495.0 seconds>``: four digits."""
    family = Qwen3VL(max_frames=2)
    count = family.video(clip(64, 64, 100, 0.1))
    assert count == Count(num_tokens=4 + 8 + 2, num_embeds=4, num_wrapper_tokens=2)


def test_an_odd_frame_is_paired_with_itself():
    """Three frames at 8, 16 and 24 s would give ``<4.0 seconds>`` and ``<16.0 seconds>``."""
    count = Qwen3VL().video(clip(64, 64, 3, 0.125))
    assert count == Count(num_tokens=2 * 4 + 6 + 7 + 2 * 2, num_embeds=8, num_wrapper_tokens=2)


def test_the_processor_samples_again_what_the_loader_kept_whole():
    slow = clip(num_frames=12, fps=1.0)
    assert tokens(Qwen3VL().video(slow)) == 5_329
    assert Qwen3VL(processor_fps=0.5).video(slow).num_embeds == 3 * 880
    assert Qwen3VL(processor_fps=0.5).video(clip()).num_embeds == 8_800


def test_the_loader_samples_as_it_is_told():
    assert Qwen3VL(fps=1.0).video(clip()).num_embeds == 5 * 880
    assert Qwen2VL(fps=1.0).video(clip()).num_embeds == 5 * 1_196


def test_a_cap_on_the_whole_clip():
    """Transformers 5.22 caps a frame at 768 tokens, and a Qwen2-VL clip at nine tenths of 128,000."""
    assert Qwen3VL(cap_pixels_per_frame=True).video(clip(num_frames=60)).num_embeds == 2 * 720
    assert Qwen2VL(cap_pixels_per_frame=True).video(clip(1_920, 1_080, 2_880, 24.0)).num_embeds == 120 * 41 * 23


def test_clips_that_are_refused():
    assert isinstance(Qwen3VL().video(clip(num_frames=1)), Refused)
    assert isinstance(Qwen3VL().video(clip(num_frames=0)), Refused)
    assert isinstance(Qwen3VL().video(clip(num_frames=3, width=20_100, height=100)), Refused)
    assert isinstance(Qwen2VL().video(clip(num_frames=1)), Refused)
    assert isinstance(Qwen2VL().video(clip(fps=0.0)), Refused)
    assert isinstance(Qwen2VL().video(clip(width=20_100, height=100)), Refused)
