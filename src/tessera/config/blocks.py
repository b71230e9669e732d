"""How does plain data become a block of parameters, and what is wrong with it, where?

A block is a dataclass whose fields are YAML keys (``core.plugin``). pydantic decodes
it strictly, through JSON, because only there does its strict mode take a mapping
for a dataclass; its errors are told again as what was seen, what was expected and
at which path.
"""

import dataclasses
import difflib
import json
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from tessera.config.document import MAX_PROBLEMS
from tessera.config.paths import join
from tessera.core.errors import Problem
from tessera.core.plugin import STRICT

B = TypeVar("B")

_EXPECTED = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "dataclass_type": "a mapping",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "string_too_short": "text of at least {min_length} characters",
    "none_required": "null",
}
"""What pydantic's error types ask for, filled in from the error's context."""


def decode(block: type[B], data: Any, path: str) -> tuple[B | None, list[Problem]]:
    """The block that ``data`` at ``path`` means, or every problem of it.

    A known key whose value is null is as good as absent, as in Go.
    """
    try:
        return cast(B, _adapter(cast(Any, block)).validate_json(json.dumps(_without_nulls(block, data)))), []
    except ValidationError as error:
        return None, _problems(error.errors(include_url=False), block, path)


@cache
def fields_of(block: type) -> Mapping[str, Any]:
    """The YAML keys of a block and the type hints of their values."""
    hints = get_type_hints(block, include_extras=True)
    spelled = getattr(block, "__pydantic_config__", STRICT).get("alias_generator", str)
    return {
        key_of(field.name, hints[field.name], spelled): hints[field.name]
        for field in dataclasses.fields(block)
        if field.init
    }


def key_of(name: str, hint: Any, spelled: Callable[[str], str]) -> str:
    """The YAML key of a field: its alias where it has one, else its name as its block spells names."""
    aliases = [each.alias for each in getattr(hint, "__metadata__", ()) if isinstance(each, FieldInfo) and each.alias]
    return aliases[0] if aliases else spelled(name)


def block_of(hint: Any) -> type | None:
    """The nested block that a type hint means, if it means one, optional or not."""
    plain = plain_hint(hint)
    return plain if isinstance(plain, type) and dataclasses.is_dataclass(plain) else None


def plain_hint(hint: Any) -> Any:
    """A type hint without ``Annotated`` and without ``| None``."""
    while get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in {Union, types.UnionType}:
        inner = [each for each in get_args(hint) if each is not type(None)]
        return plain_hint(inner[0]) if len(inner) == 1 else hint
    return hint


def element_of(hint: Any) -> Any:
    """The type hint of a list's elements or a mapping's values; nothing for anything else."""
    plain = plain_hint(hint)
    origin, arguments = get_origin(plain), get_args(plain)
    if origin in {list, tuple, Sequence, set, frozenset} and arguments:
        return arguments[0]
    return arguments[1] if origin in {dict, Mapping} and arguments else None


def nearest(word: str, words: Sequence[str]) -> str:
    """``; did you mean 'x'?`` where something in ``words`` is near ``word``, else nothing.

    >>> nearest("queue-score", ["queue-scorer", "max-score-picker"])
    "; did you mean 'queue-scorer'?"
    """
    by_lower = {each[:80].lower(): each for each in words[:500]}
    found = difflib.get_close_matches(word[:80].lower(), by_lower, n=2, cutoff=0.65)
    return f"; did you mean {' or '.join(repr(by_lower[each]) for each in found)}?" if found else ""


def seen(value: Any) -> str:
    """A value as a message shows it, at most 60 characters.

    >>> seen("abc"), seen(True), seen(None), seen({})
    ("'abc'", 'true', 'null', 'a mapping')
    """
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return repr(value if len(value) <= 60 else value[:57] + "...")
    return json.dumps(value)


@cache
def _adapter(block: type) -> TypeAdapter[Any]:
    return TypeAdapter(block)


def _without_nulls(hint: Any, data: Any) -> Any:
    if isinstance(data, dict) and (block := block_of(hint)) is not None:
        known = fields_of(block)
        kept = {key: value for key, value in data.items() if value is not None or key not in known}
        return {key: _without_nulls(known.get(key), value) for key, value in kept.items()}
    element = element_of(hint) if isinstance(data, (dict, list)) else None
    if element is None:
        return data
    if isinstance(data, dict):
        return {key: _without_nulls(element, value) for key, value in data.items()}
    return [_without_nulls(element, value) for value in data]


def _problems(errors: Sequence[ErrorDetails], block: type, path: str) -> list[Problem]:
    """One problem for each place; the branches of a union that all failed are told together."""
    told: dict[str, list[str]] = {}
    for error in errors[:MAX_PROBLEMS]:
        where, hint, parent = _locate(error["loc"], block, path)
        message = _message(error, hint, parent)
        before = told.setdefault(where, [])
        got = f"got {seen(error['input'])}, expected "
        if before and before[-1].startswith(got) and message.startswith(got):
            before[-1] += f" or {message.removeprefix(got)}"
        else:
            before.append(message)
    return [Problem(where, message) for where, messages in told.items() for message in messages]


def _locate(loc: tuple[int | str, ...], block: type, path: str) -> tuple[str, Any, type]:
    """(path, the type hint there, the block that holds it) of an error; what follows is pydantic's own tags."""
    hint: Any = block
    parent = block
    for step in loc:
        inner = block_of(hint)
        element = element_of(hint)
        if inner is not None:
            parent, hint = inner, fields_of(inner).get(str(step))
        elif element is not None:
            hint = element
        else:
            break
        path = f"{path}[{step}]" if isinstance(step, int) else join(path, step)
    return path, hint, parent


def _message(error: ErrorDetails, hint: Any, parent: type) -> str:
    context = error.get("ctx", {})
    match error["type"]:
        case "unexpected_keyword_argument" | "extra_forbidden":
            known = sorted(fields_of(parent))
            hint_at = nearest(str(error["loc"][-1]), known)
            return f"unknown key{hint_at or ';'} {_list_of(known)}"
        case "missing" | "missing_argument" | "missing_keyword_only_argument":
            return f"missing, expected {_word_for(hint)}"
        case "value_error" | "assertion_error":
            return str(context.get("error", error["msg"]))
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return f"got {seen(error['input'])}: {error['msg']}"
    shown = {
        name: int(each) if isinstance(each, float) and each.is_integer() else each for name, each in context.items()
    }
    return f"got {seen(error['input'])}, expected {expected.format(**shown)}"


def _list_of(known: Sequence[str]) -> str:
    return f"keys here: {', '.join(known)}" if known else "no keys are known here"


def _word_for(hint: Any) -> str:
    plain = plain_hint(hint)
    if block_of(hint) is not None or get_origin(plain) in {dict, Mapping}:
        return "a mapping"
    if element_of(hint) is not None:
        return "a list"
    if isinstance(plain, type):
        return {"int": "an integer", "float": "a number", "str": "text", "bool": "true or false"}.get(
            plain.__name__, "a value"
        )
    return " or ".join(repr(each) for each in get_args(plain)) or "a value"
