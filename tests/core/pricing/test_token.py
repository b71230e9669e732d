"""Whose rule prices an item, and what the price says of itself."""

import pytest

from tessera.core.parts import Modality, TextPart
from tessera.core.pricing.estimate import ImageEstimate, Resolution, StaticImage
from tessera.core.pricing.token import Estimate, TokenProducer
from tessera.core.types import Basis


def price(build, *parts, estimate=None, **fields):
    return TokenProducer(estimate=estimate).price(build.request(prompts=(tuple(parts),), **fields))


def only(priced):
    (item,) = priced.items
    return item


def test_without_estimate_llmds_defaults(build):
    item = only(price(build, build.media(width=1280, height=720)))
    assert (item.num_tokens, item.num_embeds, item.num_wrapper_tokens) == (900, 900, 0)
    assert (item.rule_basis, item.size_basis, item.reason) == (Basis.DEFAULT, Basis.EXACT, None)


def test_with_estimate_the_rule_is_declared(build):
    estimate = Estimate(image=ImageEstimate(mode="static", static=StaticImage(static_token=280)))
    item = only(price(build, build.media(width=1280, height=720), estimate=estimate))
    assert (item.num_tokens, item.rule_basis) == (280, Basis.DECLARED)


def test_a_family_goes_before_the_estimate(build):
    estimate = Estimate(model={"family": "qwen3-vl"})
    item = only(price(build, build.media(width=1280, height=720), estimate=estimate))
    assert (item.num_tokens, item.num_embeds, item.num_wrapper_tokens) == (880, 880, 2)
    assert (item.rule_basis, item.size_basis, item.reason) == (Basis.DECLARED, Basis.EXACT, None)


@pytest.mark.parametrize("key", ["max_pixels", "maxPixels"])
def test_a_familys_parameters_in_both_spellings(build, key):
    estimate = Estimate(model={"family": "qwen3-vl", key: 65_536})
    assert only(price(build, build.media(width=1280, height=720), estimate=estimate)).num_tokens < 65


def test_a_family_prices_an_unseen_image_at_the_default_resolution(build):
    rule = ImageEstimate(default_resolution=Resolution(width=1280, height=720))
    estimate = Estimate(image=rule, model={"family": "qwen3-vl"})
    item = only(price(build, build.media(reason="link"), estimate=estimate))
    assert (item.num_tokens, item.size_basis, item.reason) == (880, Basis.DEFAULT, "link")


def test_what_a_family_refuses_is_priced_by_llmd_and_marked(build):
    estimate = Estimate(model={"family": "qwen3-vl"})
    item = only(price(build, build.media(width=1, height=5000), estimate=estimate))
    assert item.num_tokens == 4
    assert item.reason.startswith("refused: aspect ratio")


def test_a_clip_says_what_its_headers_were_worth(build):
    clip = build.media(Modality.VIDEO, reason="no-duration")
    huge = only(price(build, clip, headers={"x-llm-d-video-duration-seconds": "1e12"}))
    assert (huge.num_tokens, huge.size_basis, huge.reason) == (4_500, Basis.DEFAULT, "invalid-header")
    assert only(price(build, clip)).reason == "default-video"
    headers = {"x-llm-d-video-duration-seconds": "5", "x-llm-d-video-resolution": "640x360"}
    declared = only(price(build, clip, headers=headers))
    assert (declared.num_tokens, declared.size_basis, declared.reason) == (2_250, Basis.DECLARED, "header")


def test_a_picture_says_why_its_size_is_not_known(build):
    assert only(price(build, build.media(reason="truncated-header"))).reason == "truncated-header"


def test_the_whole_prompt(build):
    priced = price(
        build, TextPart(num_bytes=5), build.media(width=1280, height=720), TextPart(num_bytes=4), build.media()
    )
    assert priced.num_text_tokens == 2 + 1
    assert priced.num_prompt_tokens == 3 + 900 + 225
    assert [item.index for item in priced.items] == [0, 1]


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ({"family": "nonsense"}, "estimate.model.family"),
        ({}, "estimate.model"),
        ({"family": "qwen3-vl", "maxPixel": 3}, "estimate.model.maxPixel"),
    ],
)
def test_a_wrong_model_is_a_problem_with_a_path(model, path):
    problems = list(TokenProducer(estimate=Estimate(model=model)).check())
    assert [where for where, _ in problems] == [path]
