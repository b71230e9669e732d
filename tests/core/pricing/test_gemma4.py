"""Does Gemma 4 price by a picture's shape, spread a clip's frames, and read its budget where vLLM reads it?"""

import pytest

from tessera.core.family import AudioInfo, Count, ModelFiles, Refused, VideoInfo
from tessera.core.pricing.gemma4 import Gemma4, Gemma4Unified

FILES = ModelFiles(
    config={
        "architectures": ["Gemma4ForConditionalGeneration"],
        "vision_config": {"patch_size": 16, "pooling_kernel_size": 3, "default_output_length": 280},
        "audio_config": {"hidden_size": 1_024},
    },
    processor={
        "audio_seq_length": 750,
        "image_processor": {"max_soft_tokens": 280, "patch_size": 16, "pooling_kernel_size": 3},
        "video_processor": {"max_soft_tokens": 70, "num_frames": 32},
    },
)


def clip(num_frames, fps=30.0):
    return VideoInfo(width=1_280, height=720, num_frames=num_frames, fps=fps)


def test_the_numbers_of_the_article():
    assert Gemma4().image(1_280, 720) == Count(num_tokens=266, num_embeds=264)
    assert Gemma4().image(3, 900).num_embeds == 280


def test_from_the_published_files():
    assert Gemma4.matches(FILES)
    assert not Gemma4Unified.matches(FILES)
    made, default = Gemma4(**Gemma4.from_files(FILES)), Gemma4()
    assert all(getattr(made, name) == getattr(default, name) for name in Gemma4.parameters())


def test_vllm_takes_the_budget_from_config_json():
    processor = {"image_processor": {"max_soft_tokens": 1_120}}
    both = ModelFiles(config={"vision_config": {"default_output_length": 560}}, processor=processor)
    assert Gemma4.from_files(both)["max_soft_tokens"] == 560
    assert Gemma4.from_files(ModelFiles(processor=processor)) == {"max_soft_tokens": 1_120}
    unified = ModelFiles(
        config={"vision_config": {"num_soft_tokens": 140}, "audio_config": {"hidden_size": 640}},
        processor={"feature_extractor": {"audio_samples_per_token": 320}},
    )
    assert Gemma4Unified.from_files(unified) == {
        "max_soft_tokens": 140,
        "takes_audio": True,
        "audio_samples_per_token": 320,
    }


def test_a_model_without_an_audio_encoder():
    deaf = Gemma4(**Gemma4.from_files(ModelFiles(config={"vision_config": {"patch_size": 16}, "audio_config": None})))
    assert deaf.audio(AudioInfo(duration_s=1.0)) == Refused("the model has no audio encoder")


def test_the_budget_of_a_request():
    assert Gemma4.from_kwargs({"max_soft_tokens": 1_120, "images_kwargs": {"max_soft_tokens": 70}}) == {
        "max_soft_tokens": 70
    }
    assert Gemma4(max_soft_tokens=1_120).image(1, 1).num_embeds == 1_089
    odd = Gemma4(max_soft_tokens=100)
    assert odd.image(1_280, 720) == Refused("max_soft_tokens 100 is none of 70, 140, 280, 560, 1120")
    [(path, message)] = odd.check()
    assert path == "maxSoftTokens"
    assert "70, 140" in message


def test_a_clip_is_frames_with_their_time():
    """16:9 has 66 cells a frame; ``00:00 `` has six tokens, ``  00:00 `` with the space before seven."""
    assert Gemma4().video(clip(1)) == Count(num_tokens=66 + 2 + 6, num_embeds=66)
    assert Gemma4().video(clip(2)) == Count(num_tokens=2 * 68 + 6 + 7, num_embeds=132)
    assert Gemma4(max_soft_tokens=1_120).video(clip(2)).num_embeds == 132


@pytest.mark.parametrize(("minutes", "longer"), [(99, 0), (100, 0), (101, 1), (200, 1), (10_000, 31 + 28)])
def test_minutes_of_three_digits(minutes, longer):
    """Of two frames only the last is so late; 32 frames of 10,000 minutes stand every 322.6: 31 and 28 of them."""
    num_frames = 2 if minutes < 10_000 else 32
    count = Gemma4(num_frames=num_frames).video(clip(minutes * 60 * 30))
    assert count.num_tokens == num_frames * 68 + 7 * num_frames - 1 + longer


def test_a_clip_of_unknown_rate_counts_as_24_a_second():
    assert Gemma4().video(clip(300, 0.0)) == Gemma4().video(clip(300, 24.0))


def test_media_io_kwargs_of_the_server():
    assert Gemma4.from_media_io_kwargs({"video": {"num_frames": 8, "fps": 1}}) == {"num_frames": 8, "fps": 1.0}
    everything = Gemma4(**Gemma4.from_media_io_kwargs({"video": {"num_frames": -1}}))
    assert everything.video(clip(300)).num_embeds == 300 * 66
    assert Gemma4(num_frames=8).video(clip(300)).num_embeds == 8 * 66
    assert Gemma4(fps=1.0).video(clip(300)).num_embeds == 10 * 66


def test_sounds():
    assert Gemma4().audio(AudioInfo(duration_s=0.01)) == Count(num_tokens=2, num_embeds=0)
    assert Gemma4Unified().audio(AudioInfo(duration_s=0.01)) == Count(num_tokens=3, num_embeds=1)
    assert Gemma4().audio(AudioInfo(duration_s=3_600.0)).num_embeds == 750
    assert Gemma4Unified().audio(AudioInfo(duration_s=3_600.0)).num_embeds == 90_000
    assert Gemma4(audio_seq_length=100).audio(AudioInfo(duration_s=10.0)).num_embeds == 100
    assert isinstance(Gemma4().audio(AudioInfo(duration_s=0.0)), Refused)


def test_what_is_no_picture_and_no_clip():
    assert isinstance(Gemma4().image(10**400, 10**400), Refused)
    assert isinstance(Gemma4().video(clip(0)), Refused)
    assert isinstance(Gemma4().video(VideoInfo(width=0, height=9, num_frames=9, fps=9.0)), Refused)
