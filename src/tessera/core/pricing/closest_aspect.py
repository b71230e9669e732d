"""Which grid of tiles has the aspect ratio closest to the image's?

InternVL's rule, which Aya Vision, Phi-4-multimodal and DeepSeek-OCR share. The
grids are sorted once, so that a choice is a binary search.
Source: transformers 5.18.0, GotOcr2ImageProcessor; vLLM 0.32.0, processors/internvl.py.
"""

from bisect import bisect_left
from functools import lru_cache

Grid = tuple[int, int]
"""Columns and rows."""


def closest_aspect(width: int, height: int, *, tile: int, least: int, most: int) -> Grid:
    """The columns and rows, ``least`` to ``most`` tiles together, whose ratio is closest to ``width / height``.

    Of grids that are equally close, the larger one wins while it is less than
    twice the area of the image; 1 x 1 where no grid is allowed.

    >>> closest_aspect(640, 480, tile=448, least=1, most=12), closest_aspect(896, 896, tile=448, least=1, most=12)
    ((4, 3), (2, 2))
    """
    ratios, groups = _grids_by_ratio(least, most)
    aspect = width / height
    right = bisect_left(ratios, aspect)
    if right == len(ratios):
        group = groups[-1] if groups else ((1, 1),)
    elif not right or ratios[right] - aspect < aspect - ratios[right - 1]:
        group = groups[right]
    elif ratios[right] - aspect > aspect - ratios[right - 1]:
        group = groups[right - 1]
    else:
        group = tuple(sorted(groups[right - 1] + groups[right], key=_area))
    best = group[0]
    for grid in group[1:]:
        if width * height > 0.5 * tile * tile * grid[0] * grid[1]:
            best = grid
    return best


def _area(grid: Grid) -> int:
    return grid[0] * grid[1]


@lru_cache(maxsize=32)
def _grids_by_ratio(least: int, most: int) -> tuple[tuple[float, ...], tuple[tuple[Grid, ...], ...]]:
    """The ratios that there are, ascending, and the grids of each, smallest first."""
    groups: dict[float, list[Grid]] = {}
    for columns in range(1, most + 1):
        for rows in range(max(1, -(-least // columns)), most // columns + 1):
            groups.setdefault(columns / rows, []).append((columns, rows))
    ratios = sorted(groups)
    return tuple(ratios), tuple(tuple(sorted(groups[ratio], key=_area)) for ratio in ratios)
