from collections import Counter

import pytest

from tessera.core.rng import SeededRng


def test_pinned_numbers():
    rng = SeededRng(7, "a")
    assert [rng.below(1000) for _ in range(4)] == [166, 677, 938, 409]
    assert SeededRng(7, "a").random() == SeededRng(7, "a").random()


@pytest.mark.parametrize("other", [(8, "a"), (7, "b"), (7, "\ud800")])
def test_another_seed_or_request_is_another_row(other):
    first, second = SeededRng(7, "a"), SeededRng(*other)
    assert [first.below(1 << 30) for _ in range(3)] != [second.below(1 << 30) for _ in range(3)]


def test_uniform_over_requests_and_within_bounds():
    draws = Counter(SeededRng(1, f"r{n}").below(5) for n in range(5000))
    assert set(draws) == set(range(5))
    assert all(850 < count < 1150 for count in draws.values())
    rng = SeededRng(1, "r")
    floats = [rng.random() for _ in range(5000)]
    assert all(0.0 <= number < 1.0 for number in floats)
    assert 0.48 < sum(floats) / len(floats) < 0.52
    assert {rng.below(1) for _ in range(10)} == {0}
