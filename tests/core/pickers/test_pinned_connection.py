from collections import Counter

from tessera.core.pickers.pinned_connection import CONNECTION_HEADER, PinnedConnectionPicker
from tessera.core.rng import SeededRng


def pick(build, connection, numbers=range(1, 9), seed=0):
    headers = {} if connection is None else {CONNECTION_HEADER: connection}
    numbers = list(numbers)
    candidates = [build.candidate(number) for number in numbers]
    totals = [9.0] + [0.0] * (len(numbers) - 1)
    rng = SeededRng(seed, "r")
    (index,) = PinnedConnectionPicker().pick(build.priced(headers=headers), candidates, totals, rng)
    return numbers[index]


def test_a_connection_stays_where_it_is(build):
    assert len({pick(build, "7-3-12", seed=seed) for seed in range(20)}) == 1


def test_connections_are_spread_evenly(build):
    counted = Counter(pick(build, f"0-1-{n}") for n in range(4000))
    # 4,000 draws of one in eight: 500 +- 21; five deviations.
    assert all(395 < counted[number] < 605 for number in range(1, 9))


def test_an_endpoint_that_leaves_moves_only_its_own_connections(build):
    before = [pick(build, f"0-1-{n}") for n in range(300)]
    after = [pick(build, f"0-1-{n}", (1, 2, 3, 4, 5, 6, 7)) for n in range(300)]
    assert all(new == old for old, new in zip(before, after, strict=True) if old != 8)
    assert 8 not in after


def test_a_request_of_no_named_connection_is_drawn_by_lot(build):
    counted = Counter(pick(build, None, (1, 2), seed=seed) for seed in range(2000))
    # 2,000 draws of one in two: 1,000 +- 22; five deviations.
    assert 890 < counted[1] < 1110
