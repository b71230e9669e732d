"""Do our closed forms take as many frames as vLLM's loaders, and the same ones?"""

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tessera.core.family import VideoInfo
from tessera.core.pricing import frames

OWN_DIR = Path(__file__).parents[2] / "golden"
GOLDEN_DIR = Path(os.environ.get("TESSERA_GOLDEN_DIR", OWN_DIR))
LOADERS = {
    "opencv_default_num_frames_32": frames.opencv,
    "qwen3_vl": frames.qwen3_vl,
    "qwen2_vl": frames.qwen2_vl,
    "opencv_dynamic_glm4v": frames.glm4v,
    "glm46v": frames.glm46v,
}
RATES = st.one_of(
    st.sampled_from([0.5, 1, 1.5, 2, 3, 5, 6, 7, 8, 12, 15, 23.976, 24, 25, 29.97, 30, 50, 60]), st.floats(0.1, 70)
)
TOTALS = st.one_of(st.integers(1, 200), st.integers(1, 30_000))


def golden(file):
    """A golden file: the one put in from outside, where there is one of that name."""
    folder = GOLDEN_DIR if (GOLDEN_DIR / file).exists() else OWN_DIR
    return json.loads((folder / file).read_text())


def clip(total, fps=30.0):
    return VideoInfo(width=64, height=64, num_frames=total, fps=fps)


def golden_cases():
    cases = golden("vllm_video_sampling.json")["cases"]
    return [pytest.param(loader, case, id=f"{loader}-{n}") for n, case in enumerate(cases) for loader in LOADERS]


@pytest.mark.parametrize(("loader", "case"), golden_cases())
def test_equals_the_real_loader(loader, case):
    assert LOADERS[loader](clip(case["total_frames"], case["fps"])) == case[loader]


def test_the_golden_file_has_no_loader_that_we_lack():
    [columns] = {frozenset(case) for case in golden("vllm_video_sampling.json")["cases"]}
    assert columns - {"fps", "duration", "total_frames"} == LOADERS.keys()


def spread(first, last, count):
    """``count`` points from ``first`` to ``last``, both included."""
    if count < 2:
        return [float(first)] * count
    step = (last - first) / (count - 1)
    return [first + index * step for index in range(count - 1)] + [float(last)]


def glm4v_one_by_one(total, rate, fps, max_duration_s):
    duration = total / rate
    if duration <= max_duration_s:
        taken = [index * rate / fps for index in range(math.floor(duration * fps))]
    elif (count := int(max_duration_s * fps)) >= total:
        return total
    else:
        taken = [second * rate for second in spread(0, duration, count)]
    return len({min(total - 1, math.ceil(each)) for each in taken})


def glm46v_one_by_one(total, rate):
    duration = min(total / rate, 2_400)
    groups_a_second = 3.0 if duration <= 30 else 1.0 if duration <= 300 else 0.5
    wanted = min(int(duration * groups_a_second * 2), 640)
    taken, due = [], 0.0
    for index in range(total):
        if index * (1 / rate) >= due:
            taken.append(index)
            due += 1 / (2 * groups_a_second)
            if due >= int(total / rate):
                break
    if total < wanted or len(taken) > wanted:
        taken = spread(0, total - 1, wanted)
    elif len(taken) < wanted:
        taken = spread(taken[0], taken[-1], wanted)
    count = len({math.floor(each) for each in taken})
    return count + count % 2


@given(TOTALS, RATES, st.sampled_from([2.0, 0.5, 1.0, 4.7, 30.0]), st.sampled_from([300, 10, 3]))
@settings(deadline=None)
@example(230, 29.97, 2.0, 300)
@example(1_198, 3.99, 2.0, 300)
def test_glm4v_counts_as_if_one_by_one(total, rate, fps, max_duration_s):
    counted = frames.glm4v(clip(total, rate), fps=fps, max_duration_s=max_duration_s)
    assert counted == glm4v_one_by_one(total, rate, fps, max_duration_s)


@given(TOTALS, RATES)
@settings(deadline=None)
@example(13, 7.0)
@example(6, 30.0)
def test_glm46v_counts_as_if_one_by_one(total, rate):
    assert frames.glm46v(clip(total, rate)) == glm46v_one_by_one(total, rate)


def test_a_step_that_rounds_up_takes_one_frame_more():
    """Counted with torch 2.13: ``len(torch.arange(0, 230, 230 / 14)) == 15``."""
    assert frames.qwen2_vl(clip(230, 30.0)) == 15
    assert frames.qwen2_vl(clip(231, 30.0)) == 14


def test_options_of_the_loaders():
    minute = clip(1_800)
    assert frames.opencv(minute, num_frames=8) == 8
    assert frames.opencv(minute, num_frames=frames.MAX_TOTAL_FRAMES) == 1_800
    assert frames.opencv(minute, fps=0.1) == 6
    assert frames.opencv(clip(10, 0.0), fps=2.0) == 1
    assert frames.qwen3_vl(minute, fps=1.0) == 60
    assert frames.qwen3_vl(minute, fps=99.0, max_frames=9_999) == 768
    assert frames.qwen3_vl(minute, fps=0.01) == 4
    assert frames.qwen3_vl(minute, fps=0.01, min_frames=10) == 10
    assert frames.qwen2_vl(minute, max_frames=51) == 50
    assert frames.qwen2_vl(minute, group=7) == 119
    assert frames.glm4v(minute, fps=4.0) == 240


def test_a_clip_without_a_rate():
    assert frames.qwen3_vl(clip(240, 0.0)) == 20  # as if 24 frames a second
    assert [each(clip(240, 0.0)) for each in (frames.qwen2_vl, frames.glm4v, frames.glm46v)] == [0, 0, 0]
    assert frames.opencv(clip(240, 0.0)) == 32


@pytest.mark.parametrize("fps", [0.0, -1.0, float("nan"), float("inf"), 1e-300, 1e300])
@pytest.mark.parametrize("total", [-1, 0, 1, 1 << 40, 1 << 200])
def test_headers_of_any_kind_give_at_most_the_loaders_limit(total, fps):
    hostile = clip(total, fps)
    limits = {"qwen3_vl": 768, "qwen2_vl": 769, "opencv_dynamic_glm4v": 600, "glm46v": 640}
    for loader, limit in limits.items():
        assert 0 <= LOADERS[loader](hostile) <= limit
    assert 1 <= frames.opencv(hostile) <= 32


def test_positions_are_spread_from_first_to_last():
    assert [frames.position(index, 5, 101) for index in range(5)] == [0, 25, 50, 75, 100]
    assert frames.position(7, 5, 101) == 100
    assert frames.position(0, 1, 101) == 0


@given(st.lists(st.integers(0, 12), min_size=0, max_size=300).map(sorted))
@settings(deadline=None)
def test_the_sum_of_rising_values(values):
    assert frames.sum_of_rising(values.__getitem__, len(values)) == sum(values)


def test_the_sum_of_many_values_asks_for_few():
    asked = []

    def digits(index):
        asked.append(index)
        return len(str(index))

    count = frames.MAX_TOTAL_FRAMES
    ends = [10**power for power in range(1, 14) if 10**power < count] + [count]
    expected = sum(
        (end - start) * length for length, (start, end) in enumerate(zip([0, *ends], ends, strict=False), start=1)
    )
    assert frames.sum_of_rising(digits, count) == expected
    assert len(asked) < 600
