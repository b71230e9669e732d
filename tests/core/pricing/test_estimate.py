"""llm-d's two rules, with the values that its own documents give."""

import math
from base64 import b64encode

import pytest

from tessera.core.parts import Modality
from tessera.core.pricing.estimate import (
    Dynamic,
    FrameCount,
    FrameTokens,
    ImageEstimate,
    Resolution,
    SampledFrames,
    StaticFrame,
    StaticImage,
    StridedFrames,
    VideoEstimate,
    estimate,
    estimate_image,
    estimate_video,
    parse_resolution,
)
from tessera.core.types import Basis

DURATION, RESOLUTION, FPS = "x-llm-d-video-duration-seconds", "x-llm-d-video-resolution", "x-llm-d-video-fps"

QWEN = VideoEstimate(
    default_resolution=Resolution(width=1280, height=720),
    frames=FrameCount(
        min_frames=4, max_frames=768, sampled=SampledFrames(sample_fps=2, temporal_patch_size=2), mode="sampled"
    ),
    max_video_tokens=12288,
)
GEMMA = VideoEstimate(
    tokens_per_frame=FrameTokens(mode="static", static=StaticFrame(num_tokens_per_frame=280)),
    frames=FrameCount(mode="strided", min_frames=1, max_frames=8, strided=StridedFrames(frame_stride=4)),
    max_video_tokens=12288,
)


def tokens(rule, **headers):
    names = {"duration": DURATION, "resolution": RESOLUTION, "fps": FPS}
    return estimate_video(rule, {names[key]: value for key, value in headers.items()}).num_tokens


class TestImage:
    @pytest.mark.parametrize(
        ("width", "height", "expected"),
        [(1280, 720, 900), (640, 360, 225), (1920, 1080, 2025), (20, 20, 1), (32, 64, 2), (32, 63, 1), (31, 33, 1)],
    )
    def test_area_over_factor_rounded_down_and_at_least_one(self, build, width, height, expected):
        priced = estimate_image(build.media(width=width, height=height), ImageEstimate())
        assert (priced.num_tokens, priced.size_basis, priced.reason) == (expected, Basis.EXACT, None)

    @pytest.mark.parametrize("sides", [{}, {"width": 1280}, {"height": 720}])
    def test_an_unknown_size_is_the_default_resolution(self, build, sides):
        priced = estimate_image(build.media(**sides), ImageEstimate())
        assert (priced.num_tokens, priced.size_basis, priced.reason) == (225, Basis.DEFAULT, "default-resolution")
        rule = ImageEstimate(default_resolution=Resolution(width=1280, height=720))
        assert estimate_image(build.media(**sides), rule).num_tokens == 900
        assert estimate_image(build.media(reason="link", **sides), rule).reason == "link"

    @pytest.mark.parametrize(("default", "expected"), [({"width": 1280}, 450), ({"height": 720}, 450)])
    def test_each_side_of_the_default_falls_back_alone(self, build, default, expected):
        rule = ImageEstimate(default_resolution=Resolution(**default))
        assert estimate_image(build.media(), rule).num_tokens == expected

    def test_another_factor(self, build):
        rule = ImageEstimate(dynamic=Dynamic(factor=784))
        assert estimate_image(build.media(width=1280, height=720), rule).num_tokens == 1175

    def test_static_needs_no_size(self, build):
        rule = ImageEstimate(mode="static", static=StaticImage(static_token=280))
        for item in (build.media(), build.media(width=9, height=9)):
            assert estimate_image(item, rule).num_tokens == 280
        assert estimate_image(build.media(), ImageEstimate(mode="static")).num_tokens == 1


class TestVideo:
    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ({}, 9_000),
            ({"duration": "10"}, 9_000),
            ({"duration": "60"}, 12_288),
            ({"duration": "12.9"}, 10_800),
            ({"duration": "10", "resolution": "640x360"}, 2_250),
            ({"duration": "10", "fps": "60"}, 9_000),
        ],
    )
    def test_sampled_as_in_the_qwen_guide(self, headers, expected):
        assert tokens(QWEN, **headers) == expected

    def test_the_clamp_comes_before_the_division(self):
        # 1 s -> 2 frames -> clamped to 4 -> 2 patches, not 1 -> 4.
        assert tokens(QWEN, duration="1") == 2 * 900
        # 400 s -> 800 frames -> clamped to 768 -> 384 patches, not 400.
        uncapped = VideoEstimate(default_resolution=Resolution(width=1280, height=720), frames=QWEN.frames)
        assert tokens(uncapped, duration="400") == 384 * 900

    @pytest.mark.parametrize(
        ("headers", "expected"),
        [
            ({}, 2_240),
            ({"duration": "1"}, 6 * 280),
            ({"duration": "1", "fps": "8"}, 2 * 280),
            ({"duration": "0.1"}, 280),
            ({"duration": "1", "resolution": "9999x9999"}, 6 * 280),
        ],
    )
    def test_strided_as_in_the_gemma_guide(self, headers, expected):
        assert tokens(GEMMA, **headers) == expected

    def test_strided_counts_before_it_strides(self):
        rule = VideoEstimate(
            tokens_per_frame=FrameTokens(mode="static", static=StaticFrame(num_tokens_per_frame=1)),
            frames=FrameCount(mode="strided", strided=StridedFrames(frame_stride=4, default_source_fps=30)),
        )
        assert tokens(rule, duration="0.5") == 3  # 15 // 4
        assert tokens(rule) == 75  # 300 // 4

    def test_llmds_defaults(self):
        assert tokens(VideoEstimate()) == 20 * 225
        assert tokens(VideoEstimate(), duration="0.1") == 1

    def test_nothing_is_ever_free(self):
        rule = VideoEstimate(frames=FrameCount(sampled=SampledFrames(temporal_patch_size=9)))
        assert tokens(rule, duration="1") == 1


class TestHeaders:
    @pytest.mark.parametrize(
        "headers",
        [
            {DURATION: "1e12"},
            {DURATION: "86401"},
            {DURATION: "-5", RESOLUTION: "1280x720"},
            {DURATION: "inf"},
            {DURATION: "nan"},
            {DURATION: "ten"},
            {DURATION: "10", RESOLUTION: "1280*720"},
            {DURATION: "10", RESOLUTION: "65537x1"},
            {DURATION: "10", RESOLUTION: "1e3x10"},
        ],
    )
    def test_a_value_out_of_bounds_costs_nothing_and_is_marked(self, headers):
        without = {DURATION: "10"} if headers[DURATION] == "10" else {}
        priced = estimate_video(QWEN, headers)
        assert priced.num_tokens == estimate_video(QWEN, without).num_tokens == 9_000
        assert (priced.size_basis, priced.reason) == (Basis.DEFAULT, "invalid-header")

    def test_what_the_client_declares_is_declared(self):
        priced = estimate_video(QWEN, {DURATION: "10", RESOLUTION: "1280x720"})
        assert (priced.size_basis, priced.reason) == (Basis.DECLARED, "header")
        assert estimate_video(GEMMA, {DURATION: "10"}).size_basis is Basis.DECLARED

    @pytest.mark.parametrize("headers", [{}, {DURATION: "10"}, {RESOLUTION: "1280x720"}, {DURATION: ""}])
    def test_what_is_missing_is_a_default(self, headers):
        priced = estimate_video(QWEN, headers)
        assert (priced.size_basis, priced.reason) == (Basis.DEFAULT, "default-video")

    def test_a_frame_rate_counts_only_where_the_rule_asks_for_it(self):
        headers = {DURATION: "10", RESOLUTION: "1280x720", FPS: "1e9"}
        assert estimate_video(QWEN, headers).reason == "header"
        assert estimate_video(GEMMA, headers).reason == "invalid-header"
        assert estimate_video(GEMMA, {DURATION: "10", RESOLUTION: "junk"}).reason == "header"

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("1280x720", (1280, 720)), ("1280X720", (1280, 720)), (" 1280 x 720 ", (1280, 720)),
            ("65536x1", (65536, 1)), ("1x65536", (1, 65536)), ("1x65537", None),
            ("0x720", None), ("1280x0", None), ("-1x5", None), ("65537x1", None), ("1x2x3", None), ("1280", None),
            ("1.5x2", None), ("x", None), ("", None), (None, None), ("٣x٣", None), ("1" * 5000 + "x1", None),
        ],
    )  # fmt: skip
    def test_a_resolution(self, text, expected):
        assert parse_resolution(text) == expected


def test_defaults_are_llmds():
    image, video = ImageEstimate(), VideoEstimate()
    for rule in (image, video):
        assert (rule.default_resolution.width, rule.default_resolution.height) == (640, 360)
    assert (image.mode, image.dynamic.factor, image.static.static_token) == ("dynamic", 1024, 1)
    assert (video.default_duration, video.max_video_tokens, video.tokens_per_frame.mode) == (10.0, 0, "dynamic")
    assert (video.tokens_per_frame.dynamic.factor, video.tokens_per_frame.static.num_tokens_per_frame) == (1024, 1)
    frames = video.frames
    assert (frames.mode, frames.min_frames, frames.max_frames) == ("sampled", 0, 0)
    assert (frames.sampled.sample_fps, frames.sampled.temporal_patch_size) == (2.0, 1)
    assert (frames.strided.frame_stride, frames.strided.default_source_fps) == (1, 24.0)


def test_each_modality_by_its_rule(build):
    headers = {DURATION: "60"}
    assert estimate(build.media(width=64, height=64), ImageEstimate(), QWEN, headers).num_tokens == 4
    clip = build.media(Modality.VIDEO, width=64, height=64)
    assert estimate(clip, ImageEstimate(), QWEN, headers).num_tokens == 12_288
    assert estimate(build.media(Modality.AUDIO, num_bytes=30), ImageEstimate(), QWEN, headers).num_tokens == 10


@pytest.mark.parametrize(
    ("num_bytes", "form", "expected"),
    [
        (320_044, "wav", 106_683),
        (320_044, None, 106_682),
        (3, "wav", 2),
        (4, "opus", 3),
        (0, None, 1),
        (0, "wav", 1),
    ],
)
def test_a_sound_is_a_quarter_of_its_text_for_llmd(build, num_bytes, form, expected):
    # The text is base64 with padding, and the format's name behind it.
    sound = build.media(Modality.AUDIO, num_bytes=num_bytes, format=form, duration_s=10.0)
    assert estimate(sound, ImageEstimate(), QWEN, {}).num_tokens == expected
    assert expected == max(1, math.ceil((len(b64encode(bytes(num_bytes))) + len(form or "")) / 4))
