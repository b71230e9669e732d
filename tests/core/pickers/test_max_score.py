from collections import Counter

import pytest

from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.rng import SeededRng


def pick(build, totals, seed=0, **parameters):
    candidates = [build.candidate(number + 1) for number in range(len(totals))]
    return MaxScorePicker(**parameters).pick(build.priced(), candidates, totals, SeededRng(seed, "r"))


@pytest.mark.parametrize("seed", range(20))
def test_the_highest_wins(build, seed):
    assert pick(build, [1.0, 3.0, 2.0], seed) == [1]
    assert pick(build, [1.0, 3.0, 2.0], seed, max_num_of_endpoints=2) == [1, 2]
    assert pick(build, [1.0, 3.0, 2.0], seed, max_num_of_endpoints=9) == [1, 2, 0]


@pytest.mark.parametrize("num_winners", [1, 2])
def test_ties_are_drawn_by_lot(build, num_winners):
    wins = Counter(pick(build, [2.0, 1.0, 2.0, 2.0], seed, max_num_of_endpoints=num_winners)[0] for seed in range(3000))
    assert set(wins) == {0, 2, 3}
    # 3,000 draws of one in three: 1,000 +- 26; five deviations.
    assert all(870 < count < 1130 for count in wins.values())
