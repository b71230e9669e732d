"""Do the Omni models price pictures, clips and sounds, with settings from their own files?"""

import json
from pathlib import Path

import pytest

from tessera.core.family import AudioInfo, Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.qwen_omni import Qwen3Omni, Qwen25Omni

GOLDEN_DIR = Path(__file__).parents[2] / "golden"
VISION = {"patch_size": 16, "spatial_merge_size": 2, "temporal_patch_size": 2}
QWEN3_OMNI_FILES = ModelFiles(
    config={
        "architectures": ["Qwen3OmniMoeForConditionalGeneration"],
        "thinker_config": {"vision_config": VISION, "audio_config": {"n_window": 50}},
    },
    preprocessor={"min_pixels": 3_136, "max_pixels": 12_845_056, "patch_size": 16, "chunk_length": 30},
)


@pytest.mark.parametrize(("file", "family"), [("qwen2_5_omni_image", Qwen25Omni()), ("qwen3_omni_image", Qwen3Omni())])
def test_defaults_are_the_published_settings(file, family):
    published = json.loads((GOLDEN_DIR / f"{file}.json").read_text())["config"]
    assert (family.patch_size, family.merge_size) == (published["patch_size"], published["merge_size"])
    assert (family.min_pixels, family.max_pixels) == (published["shortest_edge"], published["longest_edge"])
    unit = family.patch_size * family.merge_size
    assert (family.video_min_pixels, family.video_max_pixels) == (128 * unit**2, 768 * unit**2)


def test_from_the_published_files():
    assert Qwen3Omni.matches(QWEN3_OMNI_FILES)
    assert not Qwen25Omni.matches(QWEN3_OMNI_FILES)
    made, default = Qwen3Omni(**Qwen3Omni.from_files(QWEN3_OMNI_FILES)), Qwen3Omni()
    assert all(getattr(made, name) == getattr(default, name) for name in Qwen3Omni.parameters())


def test_no_file_changes_a_clip():
    files = ModelFiles(preprocessor={"max_pixels": 4}, video_preprocessor={"size": {"longest_edge": 5}})
    found = Qwen25Omni.from_files(files)
    assert found == {"min_pixels": 3_136, "max_pixels": 4}
    assert Qwen25Omni.from_kwargs({"max_pixels": 4}) == {"max_pixels": 4, "video_max_pixels": 4}


def test_the_length_that_is_heard():
    files = ModelFiles(preprocessor={"chunk_length": 30, "min_pixels": 3_136, "max_pixels": 12_845_056})
    short = Qwen25Omni(**Qwen25Omni.from_files(files))
    assert short.audio(AudioInfo(duration_s=100.0)).num_tokens == 750
    assert Qwen25Omni().audio(AudioInfo(duration_s=100.0)).num_tokens == 2_500
    assert Qwen3Omni().audio(AudioInfo(duration_s=3_600.0)).num_tokens == 46_800


def test_ten_seconds_of_sound():
    assert Qwen3Omni().audio(AudioInfo(duration_s=10.0)) == Count(num_tokens=130, num_embeds=130, num_wrapper_tokens=2)
    assert Qwen25Omni().audio(AudioInfo(duration_s=10.0)).num_tokens == 250


def test_a_sound_without_a_row_is_refused():
    assert isinstance(Qwen25Omni().audio(AudioInfo(duration_s=0.01)), Refused)
    assert isinstance(Qwen3Omni().audio(AudioInfo(duration_s=0.0)), Refused)


def test_a_clip_has_no_time_between_its_frames():
    hour = VideoInfo(width=1_280, height=720, num_frames=108_000, fps=30.0)
    assert Qwen3Omni().video(hour) == Count(num_tokens=276_480, num_embeds=276_480, num_wrapper_tokens=2)
