"""Are only sound sizes believed, whoever wrote them?"""

import pytest

from tessera.core.pricing.sizes import (
    MAX_CANVASES,
    MAX_SIDE,
    MAX_TILES,
    canvases,
    flag,
    fraction,
    num_tiles,
    side,
    square,
)

NONSENSE = [None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**400, 2**40, "336", [], {}, [1], [1, 2, 3]]


@pytest.mark.parametrize("value", NONSENSE)
def test_nonsense_is_not_believed(value):
    mapping = {"key": value}
    assert side(mapping, "key") is None
    assert num_tiles(mapping, "key") is None
    assert square(mapping, "key") is None
    assert square({"key": {"longest_edge": value}}, "key") is None
    assert square({"key": {"height": value, "width": value}}, "key") is None
    assert canvases(mapping, "key") is None
    assert canvases({"key": [[336, value]]}, "key") is None


def test_a_key_that_is_not_there():
    assert side({}, "a", "b") is None
    assert side({"a": 3}, "a", "b") is None
    assert num_tiles({}, "a") is None
    assert square({}, "a") is None
    assert canvases({}, "a") is None
    assert flag({}, "a") is None
    assert fraction({}, "a") is None


def test_the_limits():
    assert side({"a": MAX_SIDE}, "a") == MAX_SIDE
    assert side({"a": MAX_SIDE + 1}, "a") is None
    assert num_tiles({"a": MAX_TILES}, "a") == MAX_TILES
    assert num_tiles({"a": MAX_TILES + 1}, "a") is None
    assert canvases({"a": [[1, 2]] * MAX_CANVASES}, "a") == ((1, 2),) * MAX_CANVASES
    assert canvases({"a": [[1, 2]] * (MAX_CANVASES + 1)}, "a") is None
    assert fraction({"a": 0.01}, "a") == 0.01
    assert fraction({"a": 0.0099}, "a") is None
    assert fraction({"a": 1}, "a") == 1.0
    assert fraction({"a": 1.01}, "a") is None
    assert fraction({"a": True}, "a") is None


def test_every_spelling_of_a_square():
    for size in ({"height": 8, "width": 8}, {"longest_edge": 8}, {"shortest_edge": 8}, 8, 8.0, [8, 8]):
        assert square({"size": size}, "size") == 8
    for size in ({"height": 8}, {"width": 8}, {"height": 8, "width": 9}, [8, 9]):
        assert square({"size": size}, "size") is None


def test_only_truth_values_are_flags():
    assert flag({"a": False}, "a") is False
    assert flag({"a": True}, "a") is True
    assert flag({"a": 1}, "a") is None
    assert flag({"a": "true"}, "a") is None
