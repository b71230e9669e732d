"""What do a model's files and a request's kwargs say to its processors? Sound values only, whoever wrote them."""

from collections.abc import Mapping
from typing import Any

from tessera.core.family import ModelFiles, known, number, section


def pixel_limits(settings: Mapping[str, Any]) -> dict[str, int]:
    """``min_pixels`` and ``max_pixels``, however they are written; these names go before ``size``.

    >>> pixel_limits({"size": {"shortest_edge": 4, "longest_edge": 9}, "max_pixels": 16})
    {'min_pixels': 4, 'max_pixels': 16}
    """
    return known(
        min_pixels=number(settings, "min_pixels") or number(settings, "size", "shortest_edge"),
        max_pixels=number(settings, "max_pixels") or number(settings, "size", "longest_edge"),
    )


def size_limits(settings: Mapping[str, Any]) -> dict[str, int]:
    """The same from ``size`` alone, for processors that know no other name."""
    return known(
        min_pixels=number(settings, "size", "shortest_edge"), max_pixels=number(settings, "size", "longest_edge")
    )


def for_video(limits: Mapping[str, int]) -> dict[str, int]:
    """The limits under the names that a family's parameters for clips have."""
    return {f"video_{name}": value for name, value in limits.items()}


def scoped(kwargs: Mapping[str, Any], scope: str) -> dict[str, Any]:
    """Flat kwargs with those of ``images_kwargs`` or ``videos_kwargs`` over them, as vLLM merges them.

    >>> scoped({"max_pixels": 9, "videos_kwargs": {"max_pixels": 4}}, "videos_kwargs")["max_pixels"]
    4
    """
    return {**kwargs, **section(kwargs, scope)}


def positive(mapping: Mapping[str, Any], *path: str) -> float | None:
    """The number above zero and below 2^40 at the end of ``path``; nothing for anything else.

    >>> positive({"fps": 0.5}, "fps"), positive({"fps": float("nan")}, "fps"), positive({"fps": True}, "fps")
    (0.5, None, None)
    """
    for key in path[:-1]:
        mapping = section(mapping, key)
    value = mapping.get(path[-1])
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 40:
        return None
    return float(value)


def first_number(mapping: Mapping[str, Any], key: str) -> int | None:
    """The whole number under ``key``, or the first of a list of them.

    >>> first_number({"merge_kernel_size": [2, 2]}, "merge_kernel_size"), first_number({"a": []}, "a")
    (2, None)
    """
    value = mapping.get(key)
    return number({key: value[0]}, key) if isinstance(value, list | tuple) and value else number(mapping, key)


def feature_extractor(files: ModelFiles) -> dict[str, Any]:
    """The audio processor's settings: preprocessor_config.json goes before processor_config.json."""
    return {**section(files.processor, "feature_extractor"), **files.preprocessor}
