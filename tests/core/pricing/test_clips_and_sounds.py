"""Is a clip or a sound priced by what its own headers tell, and by the client's only where they do not?"""

from base64 import b64encode
from pathlib import Path

import pytest

from tessera.core.draft import DraftMedia
from tessera.core.media.probe import probe
from tessera.core.parts import Modality
from tessera.core.pricing.token import Estimate, TokenProducer
from tessera.core.types import Basis

MEDIA = Path(__file__).parents[2] / "media"
DURATION, RESOLUTION, FPS = "x-llm-d-video-duration-seconds", "x-llm-d-video-resolution", "x-llm-d-video-fps"


def price(build, item, *, family=None, **headers):
    """One item's price, by a family or by llm-d's rules."""
    names = {"duration": DURATION, "resolution": RESOLUTION, "fps": FPS}
    producer = TokenProducer(estimate=Estimate(model={"family": family}) if family else None)
    headers = {names[key]: value for key, value in headers.items()}
    (priced,) = producer.price(build.request(prompts=((item,),), headers=headers)).items
    return priced


def wav(seconds, rate=16_000):
    num_bytes = int(seconds * rate) * 2
    form = b"fmt \x10\0\0\0\1\0\1\0" + rate.to_bytes(4, "little") + (rate * 2).to_bytes(4, "little") + b"\2\0\x10\0"
    body = b"WAVE" + form + b"data" + num_bytes.to_bytes(4, "little") + bytes(num_bytes)
    return b"RIFF" + len(body).to_bytes(4, "little") + body


def inline(modality, content):
    return probe(DraftMedia(modality=modality, base64=b64encode(content).decode(), format="wav"))


@pytest.mark.parametrize(("family", "expected"), [("qwen3-omni", 130), ("qwen2.5-omni", 250), ("qwen2-audio", 250)])
def test_ten_seconds_of_sound_inline(build, family, expected):
    priced = price(build, inline(Modality.AUDIO, wav(10)), family=family)
    assert priced.num_tokens == expected
    assert (priced.rule_basis, priced.size_basis, priced.reason) == (Basis.DECLARED, Basis.EXACT, None)


@pytest.mark.parametrize(("seconds", "expected"), [(10, 250), (2, 50), (0.01, 1)])
def test_a_sound_without_a_rule_costs_25_tokens_a_second(build, seconds, expected):
    priced = price(build, inline(Modality.AUDIO, wav(seconds)))
    assert (priced.num_tokens, priced.num_embeds) == (expected, expected)
    assert (priced.rule_basis, priced.size_basis, priced.reason) == (Basis.DEFAULT, Basis.EXACT, "no-audio-rule")


def test_a_sound_of_unknown_length_counts_as_ten_seconds(build):
    link = build.media(Modality.AUDIO, has_content=False, reason="link")
    by_default = price(build, link)
    assert (by_default.num_tokens, by_default.size_basis, by_default.reason) == (250, Basis.DEFAULT, "no-audio-rule")
    by_family = price(build, link, family="qwen3-omni")
    assert (by_family.num_tokens, by_family.size_basis, by_family.reason) == (130, Basis.DEFAULT, "link")
    assert price(build, inline(Modality.AUDIO, b"no sound"), family="qwen3-omni").reason == "unknown-format"


def test_what_a_family_cannot_hear_has_no_rule(build):
    assert price(build, inline(Modality.AUDIO, wav(2)), family="qwen3-vl").reason == "no-audio-rule"


def test_a_container_goes_before_the_clients_headers(build):
    clip = inline(Modality.VIDEO, (MEDIA / "mp4_moov_last.mp4").read_bytes())
    alone = price(build, clip, family="qwen3-vl")
    assert (alone.size_basis, alone.reason) == (Basis.EXACT, None)
    assert alone == price(build, clip, family="qwen3-vl", duration="600", resolution="1920x1080", fps="60")


def test_headers_go_before_defaults(build):
    link = build.media(Modality.VIDEO, has_content=False, reason="link")
    declared = price(build, link, family="qwen3-vl", duration="10", resolution="1280x720")
    told = build.media(Modality.VIDEO, width=1280, height=720, num_frames=240, duration_s=10.0)
    assert declared.num_tokens == price(build, told, family="qwen3-vl").num_tokens == 8_880
    assert (declared.size_basis, declared.reason) == (Basis.DECLARED, "header")
    by_default = price(build, link, family="qwen3-vl", duration="10")
    assert (by_default.size_basis, by_default.reason) == (Basis.DEFAULT, "link")
    invalid = price(build, link, family="qwen3-vl", duration="1e12", resolution="1280x720")
    assert (invalid.size_basis, invalid.reason) == (Basis.DEFAULT, "invalid-header")


def test_what_a_container_leaves_open_is_filled_in(build):
    size_only = build.media(Modality.VIDEO, width=1280, height=720, reason="header-limit")
    declared = price(build, size_only, family="qwen3-vl", duration="10", resolution="64x64")
    assert (declared.num_tokens, declared.size_basis, declared.reason) == (8_880, Basis.DECLARED, "header")
    by_default = price(build, size_only, family="qwen3-vl")
    assert (by_default.num_tokens, by_default.size_basis, by_default.reason) == (8_880, Basis.DEFAULT, "header-limit")
    no_frames = build.media(Modality.VIDEO, width=1280, height=720, duration_s=10.0, reason="truncated-header")
    guessed = price(build, no_frames, family="qwen3-vl", duration="600")
    assert (guessed.num_tokens, guessed.size_basis, guessed.reason) == (8_880, Basis.DECLARED, "truncated-header")


def test_without_a_family_a_clip_is_llmds_alone(build):
    clip = inline(Modality.VIDEO, (MEDIA / "mp4_moov_last.mp4").read_bytes())
    priced = price(build, clip)
    assert (priced.num_tokens, priced.size_basis, priced.reason) == (4_500, Basis.DEFAULT, "default-video")
    assert price(build, clip, duration="5", resolution="640x360").num_tokens == 2_250
