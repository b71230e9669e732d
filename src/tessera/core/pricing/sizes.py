"""Which sizes are sound: of a picture, and of a setting in a model's files or in a request?"""

from collections.abc import Mapping
from typing import Any, Final

from tessera.core.family import Refused, number, section

NO_AREA: Final = Refused("an image without area")
"""What every family answers to an image with a side below one pixel."""

MAX_SIDE: Final = 65_536
"""Pixels a side that a setting may ask for."""
MAX_TILES: Final = 128
"""Tiles that a setting may ask for; the published models ask for 4 to 36."""
MAX_CANVASES: Final = 64
"""Canvas sizes that a setting may list; the longest published list has 36."""


def side(mapping: Mapping[str, Any], *path: str) -> int | None:
    """The pixels at the end of ``path``, a number or a pair of equal ones; nothing unless it is of 1..65,536.

    >>> side({"vision_config": {"image_size": 336}}, "vision_config", "image_size"), side({"a": [448, 448]}, "a")
    (336, 448)
    """
    for key in path[:-1]:
        mapping = section(mapping, key)
    value = mapping.get(path[-1])
    if isinstance(value, list | tuple):
        value = value[0] if len(value) == 2 and value[0] == value[1] else None
    pixels = number({"side": value}, "side")
    return pixels if pixels is not None and pixels <= MAX_SIDE else None


def num_tiles(mapping: Mapping[str, Any], *path: str) -> int | None:
    """The tiles at the end of ``path``; nothing where that is no whole number of 1..128."""
    value = number(mapping, *path)
    return value if value is not None and value <= MAX_TILES else None


def square(mapping: Mapping[str, Any], key: str) -> int | None:
    """The side of a square ``size``, however the file writes it; nothing for a rectangle or nonsense.

    >>> square({"size": {"height": 448, "width": 448}}, "size"), square({"size": {"longest_edge": 1540}}, "size")
    (448, 1540)
    >>> square({"size": 336}, "size"), square({"size": {"height": 448, "width": 224}}, "size")
    (336, None)
    """
    size = section(mapping, key)
    if "height" in size or "width" in size:
        height = side(size, "height")
        return height if height == side(size, "width") else None
    return side(size, "longest_edge") or side(size, "shortest_edge") or side(mapping, key)


def canvases(mapping: Mapping[str, Any], key: str) -> tuple[tuple[int, int], ...] | None:
    """The list of canvas sizes under ``key``; nothing unless it is 1..64 pairs of sides of 1..65,536 pixels.

    >>> canvases({"image_grid_pinpoints": [[336, 672], [672, 336]]}, "image_grid_pinpoints")
    ((336, 672), (672, 336))
    """
    listed = mapping.get(key)
    if not isinstance(listed, list | tuple) or not 0 < len(listed) <= MAX_CANVASES:
        return None
    pairs = []
    for each in listed:
        if not isinstance(each, list | tuple) or len(each) != 2:
            return None
        first, second = (side({key: value}, key) for value in each)
        if first is None or second is None:
            return None
        pairs.append((first, second))
    return tuple(pairs)


def flag(mapping: Mapping[str, Any], key: str) -> bool | None:
    """The truth value under ``key``; nothing for anything else."""
    value = mapping.get(key)
    return value if isinstance(value, bool) else None


def fraction(mapping: Mapping[str, Any], key: str) -> float | None:
    """The number in 0.01..1 under ``key``; nothing for anything else."""
    value = mapping.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.01 <= value <= 1:
        return None
    return float(value)
