"""Which fields has a JSON body, and how is a leg's body made of it without touching the rest?

Values are kept as the client wrote them, byte for byte, and long ``data:`` strings
are cut out before and put back behind, so that no media becomes a Python object.

An engine reads more than JSON: Python's ``json``, and so vLLM, takes NaN, numbers beyond
every float and halves of surrogate pairs. What is in such a body must be seen all the same,
or a word that nobody may say to an engine would reach it behind a ``NaN``.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from tessera.core.dialects.excision import Excised
from tessera.core.dialects.json_body import bound_structure
from tessera.core.errors import RequestError

MAX_STRINGS_CUT: Final = 1024
"""Long ``data:`` strings that are cut out of a body; further ones are read as JSON."""
MAX_STRUCTURE: Final = 500_000
"""Objects and arrays of a body of more than 1 MiB, as in the router."""
MAX_VALUES: Final = 4_000_000
"""Commas of such a body."""
MAX_REREAD_BYTES: Final = 4 << 20
"""Of a body, without long ``data:`` strings, that only Python's ``json`` reads, which takes its time."""

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_LIST = msgspec.json.Decoder(list[msgspec.Raw])
_ANY = msgspec.json.Decoder()
_ENCODER = msgspec.json.Encoder()
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

T = TypeVar("T")


def fields_of(raw: bytes | msgspec.Raw) -> dict[str, msgspec.Raw]:
    """The fields of a JSON object, unread; empty where it is none."""
    return _decoded(_FIELDS, raw, {})


def list_of(raw: bytes | msgspec.Raw) -> list[msgspec.Raw]:
    """The values of a JSON array, unread; empty where it is none."""
    return _decoded(_LIST, raw, [])


def value_of(raw: bytes | msgspec.Raw) -> Any:
    """The value of a JSON text; nothing where it is none."""
    return _decoded(_ANY, raw, None)


def _decoded(decoder: msgspec.json.Decoder[T], raw: bytes | msgspec.Raw, otherwise: T) -> T:
    if not memoryview(raw).nbytes:
        return otherwise
    try:
        return decoder.decode(raw)
    except _UNREADABLE:
        return otherwise


def edited(fields: Mapping[str, msgspec.Raw], changes: Mapping[str, bytes | None]) -> bytes:
    """The object with some fields set, or removed where the change is ``None``; the others as they were, in order.

    >>> edited(fields_of(b'{"a": 1.50,"b":"x", "d":0}'), {"a": None, "b": b"true", "c": b"[2]"})
    b'{"b":true,"d":0,"c":[2]}'
    """
    whole = dict(fields)
    for name, raw in changes.items():
        if raw is None:
            whole.pop(name, None)
        else:
            whole[name] = msgspec.Raw(raw)
    return _ENCODER.encode(whole)


class Document:
    """A JSON object as its fields, in order; ``is_readable`` says whether the body was one.

    A field that comes twice counts as its last, as in every JSON parser. Of a body that
    only Python's ``json`` reads the fields are those of its twin in JSON: ``null`` for what
    is no number, ``?`` for half a surrogate pair.

    Raises:
        RequestError: 413, more values than are read; 400, nested too deeply.
    """

    __slots__ = ("_excised", "body", "fields", "is_readable")

    def __init__(self, body: bytes) -> None:
        self.body = body
        """As it came."""
        self._excised = Excised(body, MAX_STRINGS_CUT)
        bound_structure(self._excised.rest, max_structure=MAX_STRUCTURE, max_values=MAX_VALUES)
        self.fields = fields_of(_as_json(self._excised.rest))
        self.is_readable = bool(self.fields)

    def with_changes(self, changes: Mapping[str, bytes | None]) -> bytes:
        """The body with some fields set or removed; the body itself where nothing changes."""
        if not any(raw is not None or name in self.fields for name, raw in changes.items()):
            return self.body
        return self._excised.restore_raw(edited(self.fields, changes))

    def restored(self, raw: bytes) -> bytes:
        """A JSON text made of parts of the body, with what was cut out back in its place."""
        return self._excised.restore_raw(raw)

    def length_of(self, raw: msgspec.Raw) -> int:
        """Bytes of a field's value as it came."""
        return self._excised.length_of(bytes(raw))

    def content_of(self, text: str) -> bytes:
        """The bytes of a string found in the body."""
        return self._excised.content_of(text)


def _as_json(raw: bytes) -> bytes:
    """The text, or its twin in JSON; nothing where no engine reads it.

    >>> _as_json(b'{"a": [NaN, 1e999, "x\\\\ud83d"], "b": 1.50}')
    b'{"a": [null, null, "x?"], "b": 1.5}'
    """
    try:
        _ANY.decode(raw)
        raw.isascii() or raw.decode()
    except _UNREADABLE:
        return _reread(raw)
    return raw


def _reread(raw: bytes) -> bytes:
    if len(raw) > MAX_REREAD_BYTES:
        seen = f"the body is not JSON (NaN, half a surrogate pair, a number out of range) and holds {len(raw)} bytes"
        raise RequestError(f"{seen}, at most {MAX_REREAD_BYTES} of such are read; send JSON", status=413)
    try:
        value = json.loads(raw, parse_constant=lambda name: None, parse_float=_finite)
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        raise RequestError("the body is nested too deeply to be read as JSON; send flatter values") from None
    except ValueError:
        return b""


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None
