from collections import Counter

from tessera.core.pickers.power_of_two import PowerOfTwoPicker
from tessera.core.rng import SeededRng


def wins(build, totals, num_draws=6000):
    candidates = [build.candidate(number + 1) for number in range(len(totals))]
    picked = (
        PowerOfTwoPicker().pick(build.priced(), candidates, totals, SeededRng(seed, "r")) for seed in range(num_draws)
    )
    return Counter(index for (index,) in picked)


def test_the_better_of_two_different_ones_wins(build):
    counted = wins(build, [3.0, 2.0, 1.0])
    # Of the three pairs two have the first in them and one has only the second to win: 4,000 and 2,000 +- 37.
    assert 3815 < counted[0] < 4185
    assert counted[0] + counted[1] == 6000
    assert counted[2] == 0


def test_equal_ones_win_alike(build):
    counted = wins(build, [1.0, 1.0, 1.0])
    assert all(1815 < counted[index] < 2185 for index in range(3))


def test_of_two_the_better_always_wins(build):
    assert wins(build, [0.0, 0.1], 100) == {1: 100}
