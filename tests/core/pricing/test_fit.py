"""Is the rule that is recommended the one that the engine follows, whatever sizes are popular?"""

import pytest

from tessera.core.family import Count
from tessera.core.pricing.fit import best_fit, rule_error
from tessera.core.pricing.gemma3 import Gemma3
from tessera.core.pricing.learning import SizeSample
from tessera.core.pricing.qwen_vl import Qwen3VL

SIZES = [(1280, 720), (640, 480), (1920, 1080)]


def sample(size, num_tokens, priced=280):
    return SizeSample(*size, num_images=1, num_tokens=num_tokens, priced=priced)


def counted(family, size, extra=7):
    """What an engine reports: roles and markers pass for the picture's."""
    count = family.image(*size)
    assert isinstance(count, Count)
    return count.num_tokens + count.num_wrapper_tokens + extra


@pytest.mark.parametrize("model", ["Qwen/Qwen3-VL-8B-Instruct", "m"])
@pytest.mark.parametrize("times", [1, 6, 60])
def test_a_popular_size_is_no_fixed_price(model, times) -> None:
    samples = [sample(size, counted(Qwen3VL(), size)) for size in SIZES]
    samples += [samples[0]] * times
    fit = best_fit(samples, model)
    assert fit is not None
    assert fit.family == "qwen3-vl"
    assert fit.error <= 0.01
    assert rule_error(samples) == pytest.approx(609 / 889)


@pytest.mark.parametrize("num_sizes", [1, 2])
def test_one_or_two_sizes_recommend_no_fixed_price(num_sizes) -> None:
    sizes = [(1117, 713), (713, 1117)][:num_sizes]
    assert best_fit([sample(size, 1_234_567) for size in sizes] * 20) is None
    fit = best_fit([sample(size, counted(Qwen3VL(), size)) for size in sizes], "Qwen3-VL")
    assert fit is not None
    assert fit.family == "qwen3-vl"


def test_a_fixed_price_that_no_family_has() -> None:
    fit = best_fit([sample(size, 333) for size in SIZES], "m")
    assert fit is not None
    assert (fit.family, fit.static_tokens, fit.error) == (None, 333, 0.0)
    assert fit.yaml == "{estimate: {image: {mode: static, static: {staticToken: 333}}}}"


def test_a_fixed_price_that_a_family_has_is_the_familys() -> None:
    fit = best_fit([sample(size, counted(Gemma3(), size, extra=0)) for size in SIZES], "google/gemma-3-27b-it")
    assert fit is not None
    assert fit.family == "gemma3"


def test_wild_reports_of_a_size_do_not_hide_the_rule() -> None:
    samples = [sample(size, counted(Qwen3VL(), size)) for size in SIZES for _ in range(3)]
    fit = best_fit([*samples, *(sample(size, 99_999) for size in SIZES)], "m")
    assert fit is not None
    assert fit.family == "qwen3-vl"


def test_of_nothing_nothing_fits() -> None:
    assert best_fit([]) is None
    assert rule_error([]) == 0.0
