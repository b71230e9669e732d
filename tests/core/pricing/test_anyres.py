"""Which canvas, and what is left of it?"""

from tessera.core.pricing.anyres import best_resolution, unpadded

NEXT = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]


def test_the_most_pixels_win_then_the_least_waste_then_the_first():
    assert best_resolution(720, 1280, NEXT) == (672, 672)
    assert best_resolution(300, 600, NEXT) == (336, 672)
    assert best_resolution(300, 300, NEXT) == (336, 672)  # (672, 336) is as good, and later
    assert best_resolution(100, 1000, NEXT) == (336, 1008)


def test_a_needle_that_keeps_no_pixel_takes_the_first_of_the_smallest():
    assert best_resolution(10_000, 1, NEXT) == (336, 672)
    assert best_resolution(10_000, 1, [(672, 672), (384, 384), (384, 384)]) == (384, 384)


def test_padding_is_cut_at_both_ends_alike():
    assert unpadded(1280, 720, 48, 48) == (48, 28)  # 27 rows are filled, 20 of 21 are cut
    assert unpadded(720, 1280, 48, 48) == (28, 48)
    assert unpadded(100, 100, 48, 48) == (48, 48)
    assert unpadded(10_000, 1, 48, 24) == (48, 0)


def test_a_division_that_falls_short_of_a_whole_number_is_forgiven():
    assert 49 * (1 / 49) < 1
    assert unpadded(49, 49, 1, 50) == (1, 2)
