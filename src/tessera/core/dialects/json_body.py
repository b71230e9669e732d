"""What does a JSON body hold, as far as any engine could read it?

msgspec reads the body; what it refuses but Python's ``json`` accepts (NaN, lone
surrogates, other encodings) is read again with ``json`` and marked
``body-reread``. What both refuse is a RequestError.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from tessera.core.errors import RequestError
from tessera.core.types import ModelProfile

S = TypeVar("S", bound=msgspec.Struct)

SMALL_BODY_BYTES = 1 << 20
"""Below this the number of JSON values cannot hurt, so it is not counted."""


def read_json(body: bytes, shape: type[S], profile: ModelProfile) -> tuple[S, list[str]]:
    """The body as ``shape`` (every field optional) and the guesses that reading it took.

    Raises:
        RequestError: not JSON, not UTF-8, not an object, nested too deeply, or
            more values than ``profile`` allows.
    """
    _bound_structure(body, profile)
    try:
        if not body.isascii():
            body.decode()
        return msgspec.json.decode(body, type=shape), []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _reread(body, shape), ["body-reread"]


def _bound_structure(body: bytes, profile: ModelProfile) -> None:
    if len(body) <= SMALL_BODY_BYTES:
        return
    num_nested = body.count(b"{") + body.count(b"[")
    num_commas = body.count(b",")
    if num_nested > profile.max_structure or num_commas > profile.max_values:
        raise RequestError(
            f"the body holds {num_nested} objects and arrays and {num_commas} commas, "
            f"at most {profile.max_structure} and {profile.max_values} are read; send fewer values in one request",
            status=413,
            code="request_too_large",
        )


def _reread(body: bytes, shape: type[S]) -> S:
    try:
        value = json.loads(body)
    except RecursionError:
        raise RequestError("the body is nested too deeply to be read as JSON") from None
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from None
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise RequestError(f"the body is a JSON {_json_word(value)}, expected an object")
    fields = shape.__struct_fields__
    known = {name: value[name] for name in fields if name in value}
    return shape(**{name: _raw(item) if name in _raw_fields(shape) else item for name, item in known.items()})


def _raw_fields(shape: type[msgspec.Struct]) -> frozenset[str]:
    return frozenset(name for name, kind in shape.__annotations__.items() if kind is msgspec.Raw)


def _raw(value: Any) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value, ensure_ascii=True).encode())


def _json_word(value: Any) -> str:
    match value:
        case list():
            return "array"
        case str():
            return "string"
        case bool():
            return "boolean"
        case None:
            return "null"
        case _:
            return "number"


def text_of(value: Any) -> str:
    """The value where it is a string, else the empty string."""
    return value if isinstance(value, str) else ""


def optional_text(value: Any) -> str | None:
    """The value where it is a non-empty string of at most 1,024 characters, else nothing."""
    return value if isinstance(value, str) and 0 < len(value) <= 1024 else None


def count_of(value: Any, largest: int = 1 << 31) -> int | None:
    """The value where it is a whole number in 1..``largest``, else nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= largest else None


def bounded_mapping(value: Any, max_items: int = 64) -> Mapping[str, Any]:
    """The scalar and short-list entries of a JSON object, at most ``max_items``; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    kept = list(value.items())[:max_items]
    return {str(name)[:256]: item for name, item in kept if _is_small(item)}


def _is_small(item: Any, depth: int = 2) -> bool:
    if isinstance(item, str):
        return len(item) <= 1024
    if isinstance(item, list | dict):
        inner = item.values() if isinstance(item, dict) else item
        return depth > 0 and len(item) <= 64 and all(_is_small(each, depth - 1) for each in inner)
    return isinstance(item, bool | int | float) or item is None
