"""Does the Qwen rule count what the real processors count?"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tessera.core.family import Count, Family, Refused
from tessera.core.plugin import registered
from tessera.core.pricing.qwen_vl import Qwen2VL, Qwen3VL

GOLDEN_DIR = Path(os.environ.get("TESSERA_GOLDEN_DIR", Path(__file__).parents[2] / "golden"))

SERIES = [
    ("qwen2_vl", "cases", "qwen2-vl", {}),
    ("qwen2_vl", "cases_class_default", "qwen2-vl", {"max_pixels": 1_003_520}),
    ("qwen2_5_vl", "cases", "qwen2.5-vl", {}),
    ("qwen2_5_vl", "cases_class_default", "qwen2.5-vl", {"max_pixels": 1_003_520}),
    ("qwen3_vl", "cases", "qwen3-vl", {}),
]


def golden_cases() -> list[Any]:
    cases = []
    for file, series, type_name, settings in SERIES:
        for case in json.loads((GOLDEN_DIR / f"{file}.json").read_text())[series]:
            name = f"{file}-{series}-{case['w']}x{case['h']}"
            cases.append(pytest.param(type_name, settings, case, id=name))
    return cases


@pytest.mark.parametrize(("type_name", "settings", "case"), golden_cases())
def test_equals_the_real_processor(type_name: str, settings: dict[str, int], case: dict[str, Any]) -> None:
    family = registered(Family)[type_name](**settings)
    count = family.image(case["w"], case["h"])
    if "error" in case:
        assert isinstance(count, Refused)
    else:
        assert count == Count(num_tokens=case["tokens"], num_embeds=case["tokens"], num_wrapper_tokens=2)


@pytest.mark.parametrize("file", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_defaults_are_the_published_settings(file: str) -> None:
    published = json.loads((GOLDEN_DIR / f"{file}.json").read_text())["config"]
    family = Qwen3VL() if file == "qwen3_vl" else Qwen2VL()
    assert (family.patch_size, family.merge_size) == (published["patch_size"], published["merge_size"])
    assert (family.min_pixels, family.max_pixels) == (published["shortest_edge"], published["longest_edge"])


def tokens(family: Qwen3VL, width: int, height: int) -> int:
    count = family.image(width, height)
    assert isinstance(count, Count)
    return count.num_tokens


def test_a_half_cell_rounds_to_the_even_number() -> None:
    assert tokens(Qwen3VL(), 1280, 720) == 40 * 22  # 22.5 rows
    assert tokens(Qwen3VL(), 1280, 752) == 40 * 24  # 23.5 rows


def test_the_limits() -> None:
    assert tokens(Qwen3VL(), 1, 1) == 64
    assert tokens(Qwen3VL(), 2**32, 2**32) == 16_384
    assert tokens(Qwen3VL(min_pixels=1), 1, 1) == 1


def test_the_longest_accepted_shape() -> None:
    assert isinstance(Qwen3VL().image(2000, 10), Count)
    assert isinstance(Qwen3VL().image(2001, 10), Refused)
    assert isinstance(Qwen3VL().image(10, 2001), Refused)
    assert isinstance(Qwen3VL().image(0, 10), Refused)


def test_turning_the_picture_and_other_pictures_change_nothing() -> None:
    family = Qwen3VL()
    assert family.image(333, 777) == family.image(777, 333) == family.image(333, 777, num_images=9)


def test_swapped_limits_are_a_problem() -> None:
    assert list(Qwen3VL().check()) == []
    [(path, message)] = Qwen3VL(min_pixels=10, max_pixels=9).check()
    assert path == "minPixels"
    assert "maxPixels 9" in message
