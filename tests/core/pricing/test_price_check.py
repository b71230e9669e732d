"""Is a wrong estimator noticed, named and mended, and a right one left alone?"""

import random

import pytest

from tessera.core.family import Count
from tessera.core.parts import TextPart
from tessera.core.pricing.estimate import ImageEstimate, StaticImage
from tessera.core.pricing.gemma4 import Gemma4
from tessera.core.pricing.learning import MAX_MODELS
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.pricing.token import Estimate, LearningMode, TokenProducer
from tessera.core.types import Basis, Ending, Outcome, Usage

SIZES = [(640, 480), (1280, 720), (1920, 1080), (300, 900), (1024, 1024)]
STATIC = Estimate(image=ImageEstimate(mode="static", static=StaticImage(static_token=280)))


def truth(family, width, height):
    count = family.image(width, height)
    assert isinstance(count, Count)
    return count.num_tokens + count.num_wrapper_tokens


def run(build, producer, family, *, num=200, seed=0, wild=None, model="m"):
    """Send pictures and report what ``family`` counts; the number of the request that first warned, and the words."""
    draw = random.Random(seed)
    warned, words = None, []
    for number in range(num):
        width, height = draw.choice(SIZES)
        media = build.media(identifier=f"i{number}", width=width, height=height)
        request = build.request(f"r{number}", model=model, prompts=((TextPart(num_bytes=40), media),))
        priced = producer.price(request)
        counted = 10 + truth(family, width, height)
        if wild is not None and draw.random() < 0.1:
            counted *= wild
        findings = settle(build, producer, priced, counted)
        words += [finding.message for finding in findings]
        if findings and warned is None:
            warned = number + 1
    return warned, words


def settle(build, producer, priced, counted):
    outcome = Outcome(
        request_id=priced.request.request_id,
        ending=Ending.FINISHED,
        decision=build.decision(priced),
        usage=Usage(prompt_tokens=counted),
        finished_at=1.0,
    )
    return producer.settle(outcome)


def price_of(build, producer, width, height, model="m"):
    media = build.media(width=width, height=height)
    priced = producer.price(build.request(model=model, prompts=((media,),)))
    return priced.items[0]


def test_a_fixed_price_for_a_model_that_counts_pixels_is_named_with_the_yaml_that_mends_it(build) -> None:
    producer = TokenProducer(estimate=STATIC)
    warned, words = run(build, producer, Qwen3VL())
    assert warned is not None
    assert warned <= 200
    assert len(words) == 1, "it speaks once"
    assert "'m'" in words[0]
    assert "was priced 280 tokens" in words[0]
    assert "{estimate: {model: {family: qwen3-vl}}}" in words[0]
    row = next(row for row in producer.table() if row["modality"] == "image")
    assert row["is_wrong"]
    assert row["fits_better"] == "family qwen3-vl"


def test_llm_ds_pixels_for_gemma_are_found_wrong_though_the_median_may_hide_it(build) -> None:
    producer = TokenProducer(estimate=Estimate())
    warned, words = run(build, producer, Gemma4())
    assert warned is not None
    assert "family gemma" in words[0]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("wild", [None, 100, 0])
def test_with_apply_the_price_follows_the_engine(build, seed, wild) -> None:
    producer = TokenProducer(estimate=STATIC, learning=LearningMode(mode="apply"))
    run(build, producer, Qwen3VL(), seed=seed, wild=wild)
    for width, height in SIZES:
        item = price_of(build, producer, width, height)
        assert item.num_tokens + item.num_wrapper_tokens == pytest.approx(truth(Qwen3VL(), width, height), rel=0.05)
        assert (item.rule_basis, item.reason) == (Basis.LEARNED, "learned-size")


def test_observe_changes_nothing_but_links(build) -> None:
    producer = TokenProducer(estimate=STATIC)
    run(build, producer, Qwen3VL())
    assert price_of(build, producer, 1280, 720).num_tokens == 280
    link = build.media(has_content=False, url_key="u", reason="link")
    for number in range(10):
        priced = producer.price(build.request(f"l{number}", model="m", prompts=((link,),)))
        settle(build, producer, priced, 882)
    item = producer.price(build.request(model="m", prompts=((link,),))).items[0]
    assert (item.num_tokens, item.size_basis, item.reason) == (882, Basis.LEARNED, "learned-url")


def test_a_right_price_is_not_warned_about(build) -> None:
    for wild in (None, 100, 0):
        producer = TokenProducer(estimate=Estimate(model={"family": "qwen3-vl"}))
        assert run(build, producer, Qwen3VL(), wild=wild) == (None, [])


def test_a_model_that_changes_is_warned_about_anew(build) -> None:
    producer = TokenProducer(estimate=Estimate(model={"family": "qwen3-vl"}))
    assert run(build, producer, Qwen3VL())[0] is None
    warned, words = run(build, producer, Gemma4(), seed=1)
    assert warned is not None
    assert "family gemma4" in words[0]


def test_disabled_learns_nothing(build) -> None:
    producer = TokenProducer(estimate=STATIC, learning=LearningMode(mode="disabled"))
    assert run(build, producer, Qwen3VL()) == (None, [])
    assert producer.table() == []


def test_with_nothing_configured_the_models_name_says_the_family(build) -> None:
    producer = TokenProducer()
    item = price_of(build, producer, 1280, 720, model="Qwen/Qwen3-VL-8B-Instruct")
    assert (item.num_tokens, item.num_wrapper_tokens) == (880, 2)
    assert (item.rule_basis, item.reason) == (Basis.DEFAULT, "family-guessed")
    assert price_of(build, producer, 1280, 720, model="something").num_tokens == 900
    media = build.media(width=1280, height=720)
    aliased = build.request(model="alias", engine_model="google/gemma-4-31B-it", prompts=((media,),))
    assert producer.price(aliased).items[0].num_tokens == 266


def test_request_kwargs_go_before_everything(build) -> None:
    producer = TokenProducer(estimate=Estimate(model={"family": "qwen3-vl"}))
    media = build.media(width=1280, height=720)
    asked = build.request(prompts=((media,),), mm_processor_kwargs={"max_pixels": 300 * 1024})
    assert producer.price(asked).items[0].num_tokens <= 300
    absurd = build.request(prompts=((media,),), mm_processor_kwargs={"max_pixels": -5, "min_pixels": "x"})
    assert producer.price(absurd).items[0].num_tokens == 880


def test_what_was_warned_about_is_forgotten_with_its_model(build) -> None:
    producer = TokenProducer(estimate=STATIC, learning=LearningMode(min_samples=5))
    for number in range(MAX_MODELS + 5):
        assert run(build, producer, Qwen3VL(), num=20, model=f"m{number}")[1]
    assert len(producer._check._warned) <= MAX_MODELS
    assert run(build, producer, Qwen3VL(), num=20, model="m0")[1], "it comes back as a new one"


def test_errors_both_ways_are_told_as_a_factor(build) -> None:
    producer = TokenProducer(estimate=Estimate(model={"family": "qwen3-vl"}), learning=LearningMode(min_samples=20))
    media = [build.media(identifier=f"i{side}", width=side, height=side) for side in (640, 1280, 960)]
    words = []
    for number in range(40):
        item = media[number % 3]
        priced = producer.price(build.request(f"r{number}", prompts=((item,),)))
        own = truth(Qwen3VL(), item.width, item.height)
        words += settle(build, producer, priced, (own * 2, own // 2, own)[number % 3])
    assert "image items are priced off by a factor of 2.00 either way by family qwen3-vl" in words[0].message


def test_settings_of_one_request_teach_nothing_of_the_others(build) -> None:
    producer = TokenProducer(
        estimate=Estimate(model={"family": "qwen3-vl"}), learning=LearningMode(mode="apply", min_samples=1)
    )
    media = build.media(width=1280, height=720)
    for number in range(8):
        kwargs = {"max_pixels": 300 * 1024}
        small = producer.price(build.request(f"r{number}", prompts=((media,),), mm_processor_kwargs=kwargs))
        settle(build, producer, small, 280)
    assert price_of(build, producer, 1280, 720, model="model").num_tokens == pytest.approx(880, rel=0.05)
