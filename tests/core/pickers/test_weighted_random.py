from collections import Counter

from tessera.core.pickers.weighted_random import WeightedRandomPicker
from tessera.core.rng import SeededRng


def wins(build, totals, num_draws=4000):
    candidates = [build.candidate(number + 1) for number in range(len(totals))]
    picker = WeightedRandomPicker()
    return Counter(
        picker.pick(build.priced(), candidates, totals, SeededRng(seed, "r"))[0] for seed in range(num_draws)
    )


def test_chances_are_in_proportion_to_the_totals(build):
    counted = wins(build, [3.0, 1.0])
    # 4,000 draws at 3/4: 3,000 +- 27; five deviations.
    assert 2860 < counted[0] < 3140
    assert counted[0] + counted[1] == 4000


def test_a_total_of_nothing_never_wins_against_something(build):
    assert wins(build, [0.0, 0.001, -1.0], 200) == {1: 200}


def test_where_all_have_nothing_chance_decides(build):
    counted = wins(build, [0.0, 0.0])
    assert 1840 < counted[0] < 2160


def test_the_order_of_several_winners_follows_the_keys(build):
    candidates = [build.candidate(number) for number in (1, 2, 3)]
    picker = WeightedRandomPicker(max_num_of_endpoints=3)
    orders = [picker.pick(build.priced(), candidates, [5.0, 0.0, 5.0], SeededRng(seed, "r")) for seed in range(50)]
    assert all(order[2] == 1 for order in orders)
    assert {order[0] for order in orders} == {0, 2}
