"""What is typical of these numbers, whatever one in ten of them says?

Medians over short memories: no sample moves them by more than its neighbours'
distance, however wild it is, and what is old is forgotten.
"""

from collections import deque
from collections.abc import Iterable

LINE_SAMPLES = 128


def median(values: Iterable[float]) -> float:
    """The middle value, the lower of two; 0 for none.

    >>> median([5.0, 1.0, 100.0]), median([])
    (5.0, 0.0)
    """
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else 0.0


def weighted_median(pairs: Iterable[tuple[float, float]]) -> float:
    """The value at which half of the weight is reached, of (value, weight) pairs; 0 for none.

    Of ratios ``y / x`` weighed by ``x`` it is the slope of the line through the origin from
    which the points lie least far in sum.

    >>> weighted_median([(1.0, 1.0), (2.0, 1.0), (9.0, 3.0)]), weighted_median([])
    (9.0, 0.0)
    """
    ordered = sorted(pairs)
    half = sum(weight for _, weight in ordered) / 2
    reached = 0.0
    for value, weight in ordered:
        reached += weight
        if reached >= half:
            return value
    return 0.0


class Ring:
    """The last ``size`` numbers."""

    __slots__ = ("values",)

    def __init__(self, size: int) -> None:
        self.values: deque[float] = deque(maxlen=size)

    def __len__(self) -> int:
        return len(self.values)

    def add(self, value: float) -> None:
        """Remember a number, and forget the oldest where there is no room."""
        self.values.append(value)

    def median(self) -> float:
        """The middle of what is remembered; 0 where nothing is."""
        return median(self.values)


class Line:
    """``y = intercept + slope * x`` through the last 128 points, by medians.

    The slope is the median over pairs of points that lie half the memory apart in
    x; the intercept is the median of what it leaves. Points that share one x give
    the slope 0 an intercept that is right for that x.

    Source: P. Sen, "Estimates of the regression coefficient based on Kendall's
    tau", 1968, with the pairs of H. Theil's incomplete method.
    """

    __slots__ = ("_points", "intercept", "slope")

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque(maxlen=LINE_SAMPLES)
        self.slope = 0.0
        self.intercept = 0.0

    def __len__(self) -> int:
        return len(self._points)

    def add(self, x: float, y: float) -> None:
        """Remember a point and draw the line anew; about 60 us."""
        self._points.append((x, y))
        ordered = sorted(self._points)
        half = (len(ordered) + 1) // 2
        pairs = zip(ordered, ordered[half:], strict=False)
        self.slope = median((y2 - y1) / (x2 - x1) for (x1, y1), (x2, y2) in pairs if x2 > x1)
        self.intercept = median(y - self.slope * x for x, y in ordered)

    def at(self, x: float) -> float:
        """The line's y."""
        return self.intercept + self.slope * x

    def spread(self) -> float:
        """Median distance of the points from the line, as a share of y."""
        return median(abs(y - self.at(x)) / y for x, y in self._points if y > 0)
