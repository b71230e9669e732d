"""Does learning converge, forget, stay bounded, and withstand wild reports?"""

import random

import pytest

from tessera.core.family import Count
from tessera.core.parts import MediaItem, Modality
from tessera.core.pricing.learning import MAX_LINKS, MAX_MODELS, MAX_SIZES, Learning, Report
from tessera.core.pricing.qwen_vl import Qwen3VL
from tessera.core.types import Basis, PricedItem

SIZES = [(640, 480), (1280, 720), (1920, 1080), (300, 900), (1024, 1024)]


def item(width, height, tokens, *, link=None):
    media = MediaItem(
        modality=Modality.IMAGE,
        format=None,
        identifier="m",
        width=width,
        height=height,
        has_content=link is None,
        url_key=link,
    )
    return PricedItem(
        index=0, item=media, num_tokens=tokens, num_embeds=tokens, rule_basis=Basis.DECLARED, size_basis=Basis.EXACT
    )


def truth(width, height):
    count = Qwen3VL().image(width, height)
    assert isinstance(count, Count)
    return count.num_tokens + count.num_wrapper_tokens


def report(items, counted, *, model="m", text=20):
    return Report(
        model=model,
        num_prompt_tokens=counted,
        num_text_bytes=4 * text,
        num_text_tokens=text,
        is_text_exact=True,
        items=tuple(items),
    )


def traffic(learning, *, seed, num=200, factor=3.0, wild=None, sizes=SIZES):
    """Pictures of one or two sizes a request, priced ``factor`` times too high."""
    draw = random.Random(seed)
    for _ in range(num):
        width, height = draw.choice(sizes)
        several = draw.choice((1, 1, 2))
        counted = 20 + several * truth(width, height)
        if wild is not None and draw.random() < 0.1:
            counted = int(counted * wild)
        learning.add(report([item(width, height, int(factor * truth(width, height)))] * several, counted))


@pytest.mark.parametrize("factor", [3.0, 1 / 3])
@pytest.mark.parametrize("wild", [None, 100, 0])
def test_a_price_three_times_wrong_is_corrected_whatever_one_report_in_ten_says(factor, wild) -> None:
    for seed in range(5):
        learning = Learning()
        traffic(learning, seed=seed, factor=factor, wild=wild)
        for width, height in SIZES:
            learned = learning.item_tokens("m", item(width, height, int(factor * truth(width, height))))
            assert learned is not None
            assert learned.num_tokens == pytest.approx(truth(width, height), rel=0.05)
        unseen = learning.item_tokens("m", item(800, 600, int(factor * truth(800, 600))))
        assert unseen is not None
        assert unseen.reason == "learned-scale"
        assert unseen.num_tokens == pytest.approx(truth(800, 600), rel=0.05)


def test_a_model_that_changes_under_its_name_is_unlearned() -> None:
    learning = Learning()
    traffic(learning, seed=1, factor=1.0)
    draw = random.Random(2)
    for _ in range(60):
        width, height = draw.choice(SIZES)
        learning.add(report([item(width, height, truth(width, height))], 20 + 266))
    assert learning.num_resets("m") == 1
    learned = learning.item_tokens("m", item(1280, 720, truth(1280, 720)))
    assert learned is not None
    assert learned.num_tokens == 266


def test_a_right_price_stays_as_it_is_under_wild_reports() -> None:
    for wild in (100, 0):
        learning = Learning()
        traffic(learning, seed=3, factor=1.0, wild=wild, num=400)
        ratios = [ratio for _, _, ratio, _, _ in learning.modalities()]
        assert ratios == pytest.approx([1.0], rel=0.05)
        assert learning.num_resets("m") == 0


def test_a_link_is_priced_by_what_it_was_then_by_what_links_are() -> None:
    learning = Learning()
    assert learning.link_tokens("m", "u0") is None
    for index in range(20):
        tokens = 882 if index % 2 else 302
        learning.add(report([item(None, None, 225, link=f"u{index}")], 20 + tokens))
    seen = learning.link_tokens("m", "u1")
    assert seen is not None
    assert (seen.num_tokens, seen.reason) == (882, "learned-url")
    unseen = learning.link_tokens("m", "new")
    assert unseen is not None
    assert (unseen.num_tokens, unseen.reason) == (302, "learned-model")
    assert learning.link_tokens("other", "u1") is None


def test_text_is_learned_as_a_line() -> None:
    learning = Learning()
    draw = random.Random(4)
    for _ in range(100):
        num_bytes = draw.randrange(100, 5000)
        counted = 9 + round(num_bytes / 3.1)
        if draw.random() < 0.1:
            counted *= draw.choice((0, 100))
        learning.add(
            Report(
                model="m",
                num_prompt_tokens=counted,
                num_text_bytes=num_bytes,
                num_text_tokens=num_bytes // 4,
                is_text_exact=False,
                items=(),
            )
        )
    assert learning.text_tokens("m", 3100) == pytest.approx(1009, rel=0.02)
    assert learning.text_tokens("unknown", 3100) is None


def test_memory_is_bounded() -> None:
    learning = Learning()
    for index in range(MAX_MODELS + 20):
        learning.add(report([item(640, 480, 300)], 320, model=f"m{index}"))
    for index in range(MAX_SIZES + 500):
        learning.add(report([item(100 + index, 400, 300)], 320, model="one"))
    for index in range(MAX_LINKS + 500):
        learning.add(report([item(None, None, 300, link=f"u{index}")], 320, model="one"))
    assert len(learning._models) == MAX_MODELS
    assert len(learning._models["one"].sizes) <= MAX_SIZES
    assert len(learning._links) == MAX_LINKS


def test_a_report_that_is_mostly_text_or_empty_teaches_nothing() -> None:
    learning = Learning()
    learning.add(report([item(640, 480, 300)], 0))
    learning.add(report([item(64, 64, 64)], 1064, text=1000))
    assert list(learning.modalities()) == []
