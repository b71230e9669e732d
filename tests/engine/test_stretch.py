"""The closed form of a run of steps against adding them up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.engine.stretch import Stretch


def stretch(num_steps: int = 5) -> Stretch:
    """Steps of 10 s + 1 s for each of 2 sequences' context tokens, 7 at first: 17, 19, 21, 23, 25 s."""
    return Stretch(start_at=100.0, fixed_s=10.0, kv_s=1.0, num_decodes=2, num_context=7, num_steps=num_steps)


def test_ends() -> None:
    assert [stretch().end_at(number) for number in range(6)] == [100, 117, 136, 157, 180, 205]


@pytest.mark.parametrize(
    ("at", "number"), [(100.0, 0), (116.9, 0), (117.0, 1), (135.9, 1), (136.0, 2), (204.9, 4), (205.0, 5), (999.0, 5)]
)
def test_number_ended(at: float, number: int) -> None:
    assert stretch().num_ended(at) == number


@pytest.mark.parametrize(("at", "number"), [(100.0, 1), (116.0, 1), (117.0, 1), (117.1, 2), (180.1, 5), (205.0, 5)])
def test_cut(at: float, number: int) -> None:
    cut = stretch()
    cut.cut(at)
    assert cut.num_steps == number


@given(
    start_at=st.floats(0, 1e6),
    fixed_s=st.floats(1e-4, 1),
    kv_s=st.floats(0, 1e-6),
    num_decodes=st.integers(0, 1000),
    num_context=st.integers(0, 10_000_000),
    num_steps=st.integers(1, 100_000),
    passed=st.floats(0, 1.1),
)
def test_number_ended_is_the_inverse_of_ends(
    start_at: float, fixed_s: float, kv_s: float, num_decodes: int, num_context: int, num_steps: int, passed: float
) -> None:
    steps = Stretch(
        start_at=start_at,
        fixed_s=fixed_s,
        kv_s=kv_s,
        num_decodes=num_decodes,
        num_context=num_context,
        num_steps=num_steps,
    )
    at = start_at + passed * (steps.end_at(num_steps) - start_at)
    number = steps.num_ended(at)
    assert number == 0 or steps.end_at(number) <= at
    assert number == num_steps or steps.end_at(number + 1) > at
