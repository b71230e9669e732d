"""Do the cells of the smart resize round, shrink and grow as they should?"""

import pytest

from tessera.core.family import Refused
from tessera.core.pricing.smart_resize import LARGEST_SIDE, num_cells, num_cells_of_frames

PUBLISHED = {"unit": 32, "min_pixels": 65_536, "max_pixels": 16_777_216}


def test_a_half_cell_rounds_to_the_even_number():
    assert num_cells(1280, 720, **PUBLISHED) == 40 * 22  # 22.5 rows
    assert num_cells(1280, 752, **PUBLISHED) == 40 * 24  # 23.5 rows


def test_limits_shrink_and_grow():
    assert num_cells(1, 1, **PUBLISHED) == 64
    assert num_cells(2**32, 2**32, **PUBLISHED) == 16_384
    assert num_cells(100, 2000, 32, 1, 1) == 1
    assert num_cells(64, 64, 32, 1 << 39, 1 << 40) == 23_171**2  # 2^29 = 23170.5^2


@pytest.mark.parametrize("sides", [(0, 10), (10, 0), (-1, 10), (LARGEST_SIDE + 1, LARGEST_SIDE), (10**400, 10**400)])
def test_sides_that_no_processor_takes(sides):
    assert isinstance(num_cells(*sides, **PUBLISHED), Refused)
    assert isinstance(num_cells_of_frames(*sides, 28, 1, 1_000, num_frames=2, group=2), Refused)


def test_the_longest_accepted_shape():
    assert num_cells(2000, 10, **PUBLISHED) == 114 * 1
    assert num_cells(2001, 10, **PUBLISHED) == Refused("aspect ratio 200.1 is above 200")


def test_a_volume_counts_all_frames():
    assert num_cells_of_frames(1280, 720, 32, 4_096, 25_165_824, num_frames=4, group=2) == 880
    assert num_cells_of_frames(1280, 720, 32, 4_096, 25_165_824, num_frames=120, group=2) == 10 * 19
    assert num_cells_of_frames(64, 64, 32, 131_072, 786_432, num_frames=10, group=2) == 16


def test_a_narrow_frame_is_first_scaled_up_to_a_cell():
    assert num_cells_of_frames(2, 3, 28, 1, 1_000_000, num_frames=2, group=2) == 2  # 28x42: 1.5 rows
    long = num_cells_of_frames(5, 1_005, 28, 1, 1 << 40, num_frames=2, group=2)
    assert long == Refused("aspect ratio 201.0 is above 200")


def test_less_than_one_group_of_frames_is_refused():
    assert num_cells_of_frames(64, 64, 28, 1, 1_000, num_frames=1, group=2) == Refused(
        "a clip of 1 sampled frames is shorter than one group of 2"
    )
