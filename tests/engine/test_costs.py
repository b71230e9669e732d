"""Seconds of the fitted profile, worked by hand."""

import pytest

from tessera.engine.costs import Costs, num_prefill_pairs
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import MediaSegment

COSTS = Costs(PROFILES["h200-tp2-qwen3-vl-32b"])


def picture(width: int, height: int, num_embeds: int, num_frames: int = 1) -> MediaSegment:
    return MediaSegment("p", num_embeds + 2, num_embeds, width, height, num_frames=num_frames)


def test_a_step_of_one_token_reads_the_weights() -> None:
    # 9.2 ms + 66.7 GB / (0.85 x 9.6 TB/s) = 8.17 ms.
    assert COSTS.fixed_s(1) == pytest.approx(0.01737, abs=0.00001)


def test_a_step_of_a_whole_budget_multiplies() -> None:
    # 9.2 ms + 2 x 31.2e9 x 8192 / 1.22e15 = 419.0 ms; the weights are read meanwhile.
    assert COSTS.fixed_s(8192) == pytest.approx(0.4282, abs=0.0001)


def test_where_reading_and_multiplying_take_the_same_both_count_a_little() -> None:
    # 8.17 ms either way with 160 tokens: 8.17 x 2^(1/3).
    assert COSTS.fixed_s(160) == pytest.approx(0.0092 + 0.00817 * 2 ** (1 / 3), abs=0.00002)


def test_prefill_attention() -> None:
    # 4 x 8192 wide x 64 layers x 1e6 pairs / 1.22e15.
    assert COSTS.fixed_s(1, num_pairs=1e6) - COSTS.fixed_s(1) == pytest.approx(0.001719, abs=0.000001)


def test_encoder_time_adds_to_the_step() -> None:
    assert COSTS.fixed_s(1, encode_s=0.5) - COSTS.fixed_s(1) == pytest.approx(0.5)


def test_kv_read() -> None:
    # 262,144 bytes / (0.805 x 9.6 TB/s).
    assert COSTS.kv_s == pytest.approx(3.3921e-8, rel=1e-4)


@pytest.mark.parametrize(
    ("item", "milliseconds"),
    [
        (picture(1280, 720, 880), 13.2),
        (picture(1920, 1080, 2040), 43.6),
        (picture(3840, 2160, 8160), 450.9),
    ],
)
def test_encoding_a_picture(item: MediaSegment, milliseconds: float) -> None:
    # 8 ms for the call and 3 ms for the item beside the arithmetic.
    assert COSTS.encode_s([item]) == pytest.approx((milliseconds + 11) / 1000, abs=0.0002)


def test_a_call_is_paid_once_a_step() -> None:
    one, three = COSTS.encode_s([picture(1280, 720, 880)]), COSTS.encode_s([picture(1280, 720, 880)] * 3)
    assert three - 0.008 == pytest.approx(3 * (one - 0.008))
    assert COSTS.encode_s([]) == 0.0


def test_frames_of_a_clip_do_not_attend_to_each_other() -> None:
    # Eight sampled frames are four for the encoder: four times a picture of a quarter of the embeddings.
    clip, frame = picture(640, 640, 1600, num_frames=8), picture(640, 640, 400)
    assert COSTS.encode_s([clip]) - 0.011 == pytest.approx(4 * (COSTS.encode_s([frame]) - 0.011))


def test_processing_goes_with_pixels() -> None:
    assert COSTS.processing_s(picture(1280, 720, 880)) == pytest.approx(0.027)
    assert COSTS.processing_s(picture(1920, 1080, 2040)) == pytest.approx(0.06075)
    assert COSTS.processing_s(picture(1280, 720, 880, num_frames=4)) == pytest.approx(0.108)
    assert COSTS.processing_s(MediaSegment("sound", 10, 10)) == 0.0


def test_processed_bytes() -> None:
    # 880 embeddings of 4 patches of 3 x 2 x 16 x 16 values of 2 bytes.
    assert COSTS.processed_bytes(picture(1280, 720, 880)) == 10_813_440
    assert COSTS.processed_bytes(MediaSegment("p", 2, 2, num_bytes=7)) == 7


@pytest.mark.parametrize(("num_cached", "num_new", "num_pairs"), [(0, 4, 8.0), (10, 4, 48.0), (10, 1, 10.5)])
def test_pairs(num_cached: int, num_new: int, num_pairs: float) -> None:
    assert num_prefill_pairs(num_cached, num_new) == num_pairs
