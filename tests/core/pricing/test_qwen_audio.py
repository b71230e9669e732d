"""Do Qwen's audio encoders make as many rows as they should?"""

import pytest

from tessera.core.family import AudioInfo, ModelFiles, Refused
from tessera.core.pricing.qwen_audio import Qwen2Audio, Qwen3ASR, quarter, thirteen_a_second


@pytest.mark.parametrize(
    ("frames", "rows"),
    [(0, 0), (1, 0), (2, 0), (3, 1), (4, 1), (5, 1), (6, 1), (7, 2), (8, 2), (100, 25), (3_000, 750)],
)
def test_a_quarter_of_the_frames(frames, rows):
    assert quarter(frames) == rows


@pytest.mark.parametrize(
    ("frames", "rows"), [(0, 0), (1, 1), (8, 1), (9, 2), (96, 12), (97, 13), (100, 13), (101, 14), (3_000, 390)]
)
def test_thirteen_rows_a_second(frames, rows):
    assert thirteen_a_second(frames) == rows


def test_thirty_seconds_are_heard_whatever_the_file_says():
    minute = AudioInfo(duration_s=60.0)
    long = Qwen2Audio(**Qwen2Audio.from_files(ModelFiles(preprocessor={"chunk_length": 300})))
    short = Qwen2Audio(**Qwen2Audio.from_files(ModelFiles(processor={"feature_extractor": {"chunk_length": 15}})))
    assert [each.audio(minute).num_tokens for each in (Qwen2Audio(), long, short)] == [750, 750, 375]
    assert Qwen3ASR().audio(minute).num_tokens == 780


def test_the_models_files():
    assert Qwen2Audio.matches(ModelFiles(config={"architectures": ["Qwen2AudioForConditionalGeneration"]}))
    assert Qwen3ASR.matches(ModelFiles(config={"architectures": ["Qwen3ASRForConditionalGeneration"]}))


def test_too_short_a_sound_is_refused():
    assert isinstance(Qwen2Audio().audio(AudioInfo(duration_s=0.02)), Refused)
    assert Qwen2Audio().audio(AudioInfo(duration_s=0.021)).num_tokens == 1
