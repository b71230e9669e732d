"""Does the choice of a canvas come out as the processors' long way round?"""

from hypothesis import given
from hypothesis import strategies as st

from tessera.core.pricing.best_canvas import best_canvas

SIDES = st.integers(1, 100_000)


def long_way_round(width, height, tile, most, largest):
    """Every canvas: its scale, then the choice among those of the best scale."""
    canvases = [(c, r) for c in range(1, most + 1) for r in range(1, most + 1) if c * r <= most]
    scales = {(c, r): min(tile * c / width, tile * r / height) for c, r in canvases}
    enlarging = [scale for scale in scales.values() if scale >= 1]
    best = (max if largest or not enlarging else min)(enlarging or scales.values())
    ties = [canvas for canvas in canvases if scales[canvas] == best]
    return min(ties, key=lambda canvas: canvas[0] * canvas[1])


@given(
    width=SIDES,
    height=SIDES,
    tile=st.sampled_from([224, 336, 512, 560]),
    most=st.integers(1, 20),
    largest=st.booleans(),
)
def test_equals_the_long_way_round(width, height, tile, most, largest):
    columns, rows = best_canvas(width, height, tile=tile, most=most, largest=largest)
    expected = long_way_round(width, height, tile, most, largest)
    assert columns * rows == expected[0] * expected[1]
    assert min(tile * columns / width, tile * rows / height) == min(
        tile * expected[0] / width, tile * expected[1] / height
    )


def test_the_smallest_canvas_that_holds_the_image():
    assert best_canvas(336, 336, tile=336, most=16) == (1, 1)
    assert best_canvas(337, 336, tile=336, most=16) == (2, 1)
    assert best_canvas(1344, 1344, tile=336, most=16) == (4, 4)


def test_the_canvas_that_shrinks_least():
    assert best_canvas(1345, 1344, tile=336, most=16) == (4, 4)
    assert best_canvas(100_000, 10, tile=336, most=16) == (16, 1)
    assert best_canvas(10, 100_000, tile=336, most=16) == (1, 16)


def test_of_equals_the_one_with_the_fewest_tiles():
    # 2 x 2 and 2 x 3 hold a square alike, 3 x 3 is not allowed.
    assert best_canvas(1000, 1000, tile=336, most=7) == (2, 2)
    assert best_canvas(1000, 1000, tile=336, most=9) == (3, 3)


def test_enlarging_as_far_as_possible():
    assert best_canvas(100, 100, tile=336, most=16, largest=True) == (4, 4)
    assert best_canvas(200, 100, tile=336, most=16, largest=True) == (5, 3)
