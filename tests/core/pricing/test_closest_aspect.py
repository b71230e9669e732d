"""Does InternVL's choice of a grid come out as the processor's long way round?"""

from hypothesis import given
from hypothesis import strategies as st

from tessera.core.pricing.closest_aspect import closest_aspect

SIDES = st.integers(1, 100_000)


def long_way_round(width, height, tile, least, most):
    """Every grid by area, as the processor walks them."""
    grids = [(c, r) for c in range(1, most + 1) for r in range(1, most + 1) if least <= c * r <= most]
    best, best_difference = (1, 1), float("inf")
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        difference = abs(width / height - columns / rows)
        is_tie = difference == best_difference
        if difference < best_difference or (is_tie and width * height > 0.5 * tile * tile * columns * rows):
            best, best_difference = (columns, rows), difference
    return best


@given(
    width=SIDES, height=SIDES, tile=st.sampled_from([364, 448, 640]), least=st.integers(1, 4), most=st.integers(1, 40)
)
def test_equals_the_long_way_round(width, height, tile, least, most):
    assert closest_aspect(width, height, tile=tile, least=least, most=most) == long_way_round(
        width, height, tile, least, most
    )


def test_a_tie_between_two_ratios():
    # 1.5 lies between 1 and 2; what wins then depends on the area.
    chosen = {side: closest_aspect(3 * side, 2 * side, tile=448, least=1, most=2) for side in (1, 150, 260, 600)}
    assert chosen == {side: long_way_round(3 * side, 2 * side, 448, 1, 2) for side in chosen}
    assert chosen[1] == (1, 1)
    assert chosen[600] == (2, 1)


def test_a_larger_grid_of_the_same_ratio_needs_half_its_area():
    assert closest_aspect(448, 448, tile=448, least=1, most=12) == (1, 1)
    assert closest_aspect(633, 633, tile=448, least=1, most=12) == (1, 1)
    assert closest_aspect(634, 634, tile=448, least=1, most=12) == (2, 2)
    assert closest_aspect(950, 950, tile=448, least=1, most=12) == (2, 2)
    assert closest_aspect(951, 951, tile=448, least=1, most=12) == (3, 3)


def test_no_grid_allowed():
    assert closest_aspect(1000, 10, tile=448, least=13, most=12) == (1, 1)


def test_needles():
    assert closest_aspect(1 << 40, 1, tile=448, least=1, most=12) == (12, 1)
    assert closest_aspect(1, 1 << 40, tile=448, least=1, most=12) == (1, 12)
