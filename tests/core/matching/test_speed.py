"""What first tokens teach of an endpoint's speed."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.matching.speed import (
    MAX_AGE,
    MAX_GROUPS,
    MIN_SAMPLES,
    NUM_SAMPLES,
    Sample,
    Speed,
    SpeedLearning,
    _Spread,
)

PREFILL_S = 1e-4
"""Configured: 10,000 tokens a second, and 0.1 s for every request."""


def learning():
    return SpeedLearning(PREFILL_S, 0.1)


def text(tokens, ttft_s, group=""):
    return Sample(group=group, num_tokens=tokens, media_s=0.0, ttft_s=ttft_s)


def media(tokens, media_s, ttft_s, group=""):
    return Sample(group=group, num_tokens=tokens, media_s=media_s, ttft_s=ttft_s)


def taught(rng, *, lies=0.0, number=600, prefill=0.5, of_media=3.0, fixed=0.05, kinds=("text", "media")):
    """A fleet whose prefill is twice as fast as configured and whose media work three times as slow."""
    learned = learning()
    for _ in range(number):
        tokens, noise = rng.randint(100, 8000), rng.uniform(-0.01, 0.01)
        media_s = rng.uniform(0.03, 0.4) if rng.choice(kinds) == "media" else 0.0
        ttft = fixed + tokens * PREFILL_S * prefill + media_s * of_media + noise
        if rng.random() < lies:
            ttft = rng.choice([1e-6, 0.01, 30.0, 59.0])
        learned.add(Sample(group="", num_tokens=tokens, media_s=media_s, ttft_s=ttft))
    return learned.of("")


def test_before_anything_is_known_the_configured_rates_hold():
    learned = learning()
    assert learned.of("") == Speed(prefill_factor=1.0, media_factor=1.0, fixed_s=0.1)
    for number in range(MIN_SAMPLES - 1):
        learned.add(text(1000 + 100 * number, 5.0))
        learned.add(media(1000, 0.5, 5.0))
    assert learned.of("") == Speed(fixed_s=0.1)


def test_exact_reports_teach_the_exact_rates():
    """0.02 s + 20 us a token, and media work 1.5 times as long as configured."""
    learned = learning()
    for number in range(64):
        tokens = 500 + 50 * number
        learned.add(text(tokens, 0.02 + 2e-5 * tokens))
    # Those after the text is known: 32 or more.
    for number in range(MIN_SAMPLES):
        learned.add(media(1000, 0.1 + 0.01 * number, 0.02 + 0.02 + 1.5 * (0.1 + 0.01 * number)))
    speed = learned.of("")
    assert (speed.prefill_factor, speed.media_factor, speed.fixed_s) == pytest.approx((0.2, 1.5, 0.02))
    assert [(group, known, number) for group, known, number in learned.groups()] == [("", speed, 96)]


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_it_converges_to_the_true_rates(seed):
    speed = taught(Random(seed))
    assert speed.prefill_factor == pytest.approx(0.5, rel=0.03)
    assert speed.media_factor == pytest.approx(3.0, rel=0.06)
    assert speed.fixed_s == pytest.approx(0.05, abs=0.01)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_one_liar_in_ten_moves_little(seed):
    speed = taught(Random(seed), lies=0.1)
    assert speed.prefill_factor == pytest.approx(0.5, rel=0.08)
    assert speed.media_factor == pytest.approx(3.0, rel=0.15)
    assert speed.fixed_s == pytest.approx(0.05, abs=0.02)


def test_prompts_that_are_all_alike_teach_the_fixed_part_only():
    """1,000 tokens always take 0.35 s: 0.1 s by the configured rate, 0.25 s are fixed."""
    learned = learning()
    for number in range(MIN_SAMPLES):
        learned.add(text(1000 + number % 10, 0.25 + (1000 + number % 10) * PREFILL_S))
    assert learned.of("").prefill_factor == 1.0
    assert learned.of("").fixed_s == pytest.approx(0.25)


def test_prefill_takes_no_longer_than_all_that_was_seen():
    """1,000 tokens always take 0.05 s, half of what prefill alone is configured to take."""
    learned = learning()
    for _ in range(MIN_SAMPLES):
        learned.add(text(1000, 0.05))
    assert learned.of("") == Speed(prefill_factor=0.5, media_factor=0.5, fixed_s=0.0)
    for _ in range(MIN_SAMPLES):
        learned.add(text(0, 0.05, group="repeats"))
    assert learned.of("repeats") == Speed(fixed_s=0.05)


def test_chats_of_300_to_1500_tokens_have_a_slope():
    """Uniform, so that 960 tokens lie between the outer tenths; prefill takes twice as long as configured."""
    learned, rng = learning(), Random(1)
    for _ in range(200):
        tokens = rng.randint(300, 1500)
        learned.add(text(tokens, 0.05 + tokens * PREFILL_S * 2 + rng.uniform(0, 0.02)))
    assert learned.of("").prefill_factor == pytest.approx(2.0, rel=0.1)
    assert learned.of("").fixed_s == pytest.approx(0.06, abs=0.01)


@settings(max_examples=20)
@given(seed=st.integers(0, 1000))
def test_who_asks_the_same_all_day_does_not_push_out_what_others_teach(seed):
    """95 of 100 requests have 1,200 uncached tokens; the others tell that prefill takes twice as long."""
    learned, rng = learning(), Random(seed)
    for _ in range(3000):
        tokens = 1200 if rng.random() < 0.95 else rng.randint(100, 8000)
        learned.add(text(tokens, 0.05 + tokens * PREFILL_S * 2 + rng.uniform(-0.005, 0.005)))
    assert learned.of("").prefill_factor == pytest.approx(2.0, rel=0.05)
    assert learned.of("").fixed_s == pytest.approx(0.05, abs=0.01)


def test_repeated_prompts_have_no_say_in_the_slope():
    """Half of the requests compute 1 to 15 tokens, whose differences are noise; prefill takes half as long."""
    learned, rng = learning(), Random(1)
    for number in range(400):
        tokens = rng.randint(1, 15) if number % 2 else rng.randint(500, 4000)
        learned.add(text(tokens, 0.05 + tokens * PREFILL_S / 2 + rng.uniform(0, 0.02)))
    assert learned.of("").prefill_factor == pytest.approx(0.5, rel=0.1)


def test_media_is_what_the_present_line_leaves_of_what_came_before_it():
    """Pictures were seen first, while prefill was taken to be half as dear as it is."""
    learned = learning()
    for number in range(MIN_SAMPLES):
        media_s = 0.1 + 0.01 * number
        learned.add(media(2000, media_s, 0.1 + 2000 * PREFILL_S * 2 + 1.5 * media_s))
    for number in range(MIN_SAMPLES):
        tokens = 500 + 100 * number
        learned.add(text(tokens, 0.1 + tokens * PREFILL_S * 2))
    speed = learned.of("")
    assert (speed.prefill_factor, speed.media_factor, speed.fixed_s) == pytest.approx((2.0, 1.5, 0.1))


def test_texts_all_alike_leave_one_factor_for_all_work_to_the_pictures():
    """Everything takes 2.5 times as long as configured: 1,000 tokens of text 0.25 s, beside the 0.1 s."""
    learned = learning()
    for number in range(MIN_SAMPLES):
        learned.add(text(1000, 0.1 + 0.25))
        learned.add(media(3000, 0.1 + 0.01 * number, 0.1 + 2.5 * (0.3 + 0.1 + 0.01 * number)))
    speed = learned.of("")
    assert (speed.prefill_factor, speed.media_factor, speed.fixed_s) == pytest.approx((2.5, 2.5, 0.1))


def test_what_is_rare_is_kept_and_what_is_old_is_forgotten():
    """128 samples at most; the sizes that come most often make room; nothing stays longer than 1,024 others."""
    spread = _Spread(64)
    rare = text(5000, 1.0)
    spread.add(5000, rare)
    for serial in range(MAX_AGE - 1):
        spread.add(100, text(100, serial + 1.0))
        assert len(spread) == min(NUM_SAMPLES, serial + 2)
        assert rare in list(spread)
    assert {each.ttft_s for each in spread if each is not rare} == {MAX_AGE - 1.0 - n for n in range(NUM_SAMPLES - 1)}
    spread.add(100, text(100, 1.0))
    assert rare not in list(spread)
    spread.add(1e300, text(0, 1.0))
    assert len(spread) == NUM_SAMPLES


def test_text_alone_speaks_for_media_and_media_alone_for_text():
    of_text = taught(Random(1), kinds=("text",))
    assert of_text.media_factor == of_text.prefill_factor == pytest.approx(0.5, rel=0.03)
    of_media = taught(Random(1), kinds=("media",), prefill=2.0, of_media=2.0, fixed=0.1)
    assert of_media.media_factor == of_media.prefill_factor == pytest.approx(2.0, rel=0.05)
    assert of_media.fixed_s == 0.1


def test_an_engine_that_is_replaced_is_learned_anew():
    learned = learning()
    for factor in (1.0, 0.25):
        for number in range(NUM_SAMPLES):
            tokens = 500 + 50 * number
            learned.add(text(tokens, 0.1 + tokens * PREFILL_S * factor))
        assert learned.of("").prefill_factor == pytest.approx(factor)


def test_groups_are_learned_apart_and_bounded():
    learned = learning()
    for number in range(MIN_SAMPLES):
        tokens = 500 + 100 * number
        learned.add(text(tokens, 0.1 + tokens * PREFILL_S * 2, group="slow"))
    assert learned.of("slow").prefill_factor == pytest.approx(2.0)
    assert learned.of("fast") == Speed(fixed_s=0.1)
    for number in range(MAX_GROUPS):
        learned.add(text(1000, 0.2, group=str(number)))
    assert learned.of("slow") == Speed(fixed_s=0.1)
    assert len(list(learned.groups())) == len(learned._groups) == MAX_GROUPS
    assert len(learned._speeds) == MAX_GROUPS


@given(
    samples=st.lists(
        st.tuples(st.integers(-5, 10**9), st.floats(0), st.floats(allow_nan=True, allow_infinity=True)),
        min_size=40,
        max_size=60,
    )
)
def test_whatever_is_reported_stays_within_a_factor_of_16(samples):
    learned = learning()
    for tokens, media_s, ttft_s in samples:
        learned.add(Sample(group="", num_tokens=tokens, media_s=media_s, ttft_s=ttft_s))
    speed = learned.of("")
    assert 1 / 16 <= speed.prefill_factor <= 16
    assert 1 / 16 <= speed.media_factor <= 16
    assert 0 <= speed.fixed_s <= 5
