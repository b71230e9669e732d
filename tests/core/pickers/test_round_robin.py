from tessera.core.pickers.round_robin import RoundRobinPicker
from tessera.core.rng import SeededRng


def turn(build, picker, num_candidates, *, is_made=True):
    candidates = [build.candidate(number + 1) for number in range(num_candidates)]
    (index,) = picker.pick(build.priced(), candidates, [9.0] + [0.0] * (num_candidates - 1), SeededRng(0, "r"))
    if is_made:
        picker.record(build.decision())
    return index


def test_each_in_turn_whatever_the_totals(build):
    picker = RoundRobinPicker()
    assert [turn(build, picker, 3) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]


def test_a_dry_run_takes_no_turn(build):
    picker = RoundRobinPicker()
    assert [turn(build, picker, 3, is_made=False) for _ in range(3)] == [0, 0, 0]
    assert turn(build, picker, 3) == 0
    assert turn(build, picker, 3) == 1


def test_a_smaller_fleet_goes_on_from_its_own_number(build):
    picker = RoundRobinPicker()
    assert [turn(build, picker, number) for number in (3, 3, 3, 2, 2)] == [0, 1, 2, 1, 0]
