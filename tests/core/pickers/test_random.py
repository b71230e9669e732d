from collections import Counter
from itertools import permutations

from tessera.core.pickers.random import RandomPicker, shuffled
from tessera.core.rng import SeededRng


def test_totals_do_not_count(build):
    candidates = [build.candidate(number) for number in (1, 2, 3)]
    wins = Counter(
        RandomPicker().pick(build.priced(), candidates, [9.0, 0.0, 0.0], SeededRng(seed, "r"))[0]
        for seed in range(3000)
    )
    assert all(870 < wins[index] < 1130 for index in range(3))


def test_every_order_is_equally_likely():
    orders = Counter(tuple(shuffled(3, SeededRng(seed, "r"))) for seed in range(6000))
    assert set(orders) == set(permutations(range(3)))
    assert all(850 < count < 1150 for count in orders.values())
    assert shuffled(0, SeededRng(0, "r")) == []
