"""What does a JSON body hold, as far as any engine could read it?

msgspec reads the body; what it refuses but Python's ``json`` accepts (NaN, lone
surrogates, other encodings) is read again with ``json`` and marked
``body-reread``. What both refuse is a RequestError.
"""

import json
from collections.abc import Mapping
from itertools import chain, islice
from typing import Any, Final, TypeVar

import msgspec

from tessera.core.dialects.excision import Excised
from tessera.core.draft import Undrafted
from tessera.core.errors import RequestError
from tessera.core.types import ModelProfile

S = TypeVar("S", bound=msgspec.Struct)

SMALL_BODY_BYTES = 1 << 20
"""Below this the number of JSON values cannot hurt, so it is not counted."""
MAX_NAME_CHARS = 1024
"""Characters of a model, uuid, salt or session that are kept."""
MAX_MAPPING_ITEMS = 64
"""Entries of an object that is kept, and of each object or list in it."""
MAX_MAPPING_CHARS = 8192
"""Characters that all entries of an object that is kept may have together."""
_COUNT_BYTES = 1 << 16
_TOO_DEEP = "the body is nested too deeply to be read as JSON"


def read_json(body: bytes, shape: type[S], profile: ModelProfile) -> tuple[S, list[str]]:
    """The body as ``shape`` (every field optional) and the guesses that reading it took.

    Raises:
        RequestError: not JSON, not UTF-8, not an object, nested too deeply, or
            more values than ``profile`` allows.
    """
    excised = Excised(body, profile.max_items)
    bound_structure(excised.rest, max_structure=profile.max_structure, max_values=profile.max_values)
    try:
        if not excised.rest.isascii():
            excised.rest.decode()
        return _restored(msgspec.json.decode(excised.rest, type=shape), excised), []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _reread(body, shape), ["body-reread"]


def _restored(value: S, excised: Excised) -> S:
    """The struct with what was cut out of the body back in its place."""
    if excised.num_segments:
        raw = _raw_fields(type(value))
        for name in value.__struct_fields__:
            field = getattr(value, name)
            back = msgspec.Raw(excised.restore_raw(bytes(field))) if name in raw else excised.restore(field)
            setattr(value, name, back)
    return value


def bound_structure(body: bytes, *, max_structure: int, max_values: int) -> None:
    """Refuse a body of many values, before they are made.

    Raises:
        RequestError: more objects and arrays, or more commas, than that.
    """
    if len(body) <= SMALL_BODY_BYTES:
        return
    num_nested = _num_of(b"{", body) + _num_of(b"[", body)
    num_commas = _num_of(b",", body)
    if num_nested > max_structure or num_commas > max_values:
        raise RequestError(
            f"the body holds {num_nested} objects and arrays and {num_commas} commas, "
            f"at most {max_structure} and {max_values} are read; send fewer values in one request",
            status=413,
            code="request_too_large",
        )


def _num_of(char: bytes, body: bytes) -> int:
    """How often ``char`` stands in the body; media, where it never stands, is passed over ten times as fast."""
    total, at = 0, body.find(char)
    while at >= 0:
        total += body.count(char, at, at + _COUNT_BYTES)
        at = body.find(char, at + _COUNT_BYTES)
    return total


def _reread(body: bytes, shape: type[S]) -> S:
    try:
        value = json.loads(body)
    except RecursionError:
        raise RequestError(_TOO_DEEP) from None
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
    return msgspec.Raw(encoded(value).encode())


def encoded(value: Any) -> str:
    """A value of the body as ASCII JSON again.

    Raises:
        RequestError: nested so deeply that it could just be read.
    """
    try:
        return json.dumps(value)
    except RecursionError:
        raise RequestError(_TOO_DEEP) from None


def list_of(raw: msgspec.Raw) -> list[Any] | None:
    """The list that a field of the body holds; nothing where the field is null or absent.

    Raises:
        Undrafted: it holds something else.
    """
    try:
        value = json.loads(bytes(raw) or b"null")
    except (ValueError, RecursionError):
        raise Undrafted from None
    if value is not None and not isinstance(value, list):
        raise Undrafted
    return value


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


def name_of(value: Any) -> str:
    """The string as a log line or a metric can show it: at most 1,024 characters, ``?`` for a lone surrogate.

    >>> name_of("m\\ud800"), name_of(None)
    ('m?', '')
    """
    return text_of(value)[:MAX_NAME_CHARS].encode("utf-8", "replace").decode()


def optional_text(value: Any) -> str | None:
    """The value where it is a non-empty string of at most 1,024 characters, else nothing; spelt as by ``name_of``."""
    return name_of(value) if isinstance(value, str) and 0 < len(value) <= MAX_NAME_CHARS else None


def count_of(value: Any, largest: int = 1 << 31) -> int | None:
    """The value where it is a whole number in 1..``largest``, else nothing."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= largest else None


def bounded_mapping(value: Any) -> Mapping[str, Any]:
    """The scalars and shallow lists and objects of a JSON object, the first that fit; empty for anything else.

    What is kept has at most ``MAX_MAPPING_ITEMS`` entries and about
    ``MAX_MAPPING_CHARS`` characters, whatever the body holds.
    """
    kept: dict[str, Any] = {}
    if isinstance(value, dict):
        room: float = MAX_MAPPING_CHARS
        for name, item in islice(value.items(), MAX_MAPPING_ITEMS):
            num_chars = len(name) + _num_chars(item)
            if num_chars <= room:
                room -= num_chars
                kept[name] = item
    return kept


KWARGS_UNREAD: Final = "kwargs-unread"
"""The guess that says that not all of a request's kwargs are known."""


def media_kwargs(processor: Any, io: Any) -> tuple[Mapping[str, Any], Mapping[str, Any], list[str]]:
    """``mm_processor_kwargs`` and ``media_io_kwargs`` as far as they are kept, and a guess where that is not all.

    >>> media_kwargs({"fps": 2, "deep": [[[1]]]}, {"video": {"num_frames": 32}})
    ({'fps': 2}, {'video': {'num_frames': 32}}, ['kwargs-unread:1'])
    """
    kept = [bounded_mapping(value) for value in (processor, io)]
    num_given = sum(len(value) for value in (processor, io) if isinstance(value, dict))
    num_unread = num_given - len(kept[0]) - len(kept[1])
    return kept[0], kept[1], [f"{KWARGS_UNREAD}:{num_unread}"] if num_unread else []


def _num_chars(item: Any, depth: int = 2) -> float:
    """About how long the item would be as JSON; infinite where it is too deep or too long to look at."""
    if isinstance(item, str):
        return len(item) + 2
    if isinstance(item, list | dict):
        if depth == 0 or len(item) > MAX_MAPPING_ITEMS:
            return float("inf")
        inner = chain(item.keys(), item.values()) if isinstance(item, dict) else item
        return sum(_num_chars(each, depth - 1) for each in inner)
    return 8 + (item.bit_length() // 3 if isinstance(item, int) else 0)
