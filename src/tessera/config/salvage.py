"""What can still be read of a section that has faults, so that the rest of the file is checked too?"""

import dataclasses
from typing import Any, TypeVar, cast

from tessera.config.blocks import block_of, decode, element_of, fields_of

B = TypeVar("B")
_HOLE = object()


def salvage(block: type[B], data: Any) -> B:
    """The block with what is sound of ``data``: defaults elsewhere, ``""`` where text is required.

    Names and references that are ``""`` mean nothing to the steps that follow.
    """
    kept = _sound(block, data)
    return cast(B, kept)


def _sound(hint: Any, data: Any) -> Any:
    value, problems = decode(hint, data, "")
    if not problems:
        return value
    block, element = block_of(hint), element_of(hint)
    if block is None:
        if element is None or not isinstance(data, list):
            return _HOLE
        return tuple("" if (each := _sound(element, one)) is _HOLE else each for one in data)
    given = data if isinstance(data, dict) else {}
    fields = [field for field in dataclasses.fields(block) if field.init]
    kept = {}
    for field, (key, inner) in zip(fields, fields_of(block).items(), strict=True):
        value = _sound(inner, given[key]) if given.get(key) is not None else _HOLE
        if value is _HOLE and field.default is field.default_factory is dataclasses.MISSING:
            value = ""
        if value is not _HOLE:
            kept[field.name] = value
    return block(**kept)
