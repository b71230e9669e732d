"""How sure is the served model's rule, where kwargs may change it?"""

import pytest

from tessera.core.family import ModelFiles
from tessera.core.pricing.rules import Rules
from tessera.core.pricing.served_model import MAX_VARIANTS, UNHEARD, guess, served_model
from tessera.core.types import Basis

FILES = ModelFiles(
    config={"architectures": ["Qwen3VLForConditionalGeneration"]},
    preprocessor={"size": {"longest_edge": 16_777_216, "shortest_edge": 65_536}},
)
HEARD = {"max_pixels": 65_536, "images_kwargs": {"min_pixels": 4_096}, "size": {"shortest_edge": 1, "longest_edge": 2}}


def served(**kwargs):
    return served_model({"path": "x", "mmProcessorKwargs": kwargs}, FILES)


@pytest.mark.parametrize(
    "unheard",
    [
        {"merge_size": 1},
        {"do_resize": False},
        {"max_pixels": "65536"},
        {"images_kwargs": {"do_resize": False}},
        {"images_kwargs": {"max_pixels": 65_536, "do_resize": False}},
        {"size": {"longest_edge": 65_536, "height": 32}},
    ],
)
def test_kwargs_that_are_not_heard_leave_no_exact_rule(unheard):
    for model in (served().for_request(unheard, {}), served().for_request(HEARD | unheard, {}), served(**unheard)):
        assert (model.basis, model.reason) == (Basis.DECLARED, UNHEARD)


@pytest.mark.parametrize("heard", [HEARD, {}, {"videos_kwargs": {}}, {"fps": 2}])
def test_kwargs_that_are_heard_leave_it_as_it_is(heard):
    for model in (served().for_request(heard, {"image": {"image_mode": "RGBA"}}), served(**heard)):
        assert (model.basis, model.reason) == (Basis.EXACT, None)


def test_a_rule_that_was_not_sure_before_is_no_surer(build):
    guessed = guess("Qwen3-VL")
    model = guessed.for_request({"merge_size": 1}, {})
    assert (model.basis, model.reason) == (Basis.DEFAULT, guessed.reason)


def test_a_price_says_so(build):
    media = build.media(width=640, height=480)
    for kwargs, basis, num_tokens in (
        ({"max_pixels": 65_536}, Basis.EXACT, 9 * 6),
        ({"merge_size": 1}, Basis.DECLARED, 20 * 15),
    ):
        request = build.request(prompts=((media,),), mm_processor_kwargs=kwargs)
        item = Rules(None, None, Basis.DEFAULT).price(0, media, served(), 1, request)
        assert (item.rule_basis, item.num_tokens) == (basis, num_tokens)


def test_variants_are_bounded():
    model = served()
    for number in range(MAX_VARIANTS + 10):
        model.for_request({"max_pixels": 65_536 + number}, {})
    assert len(model._variants) <= MAX_VARIANTS
