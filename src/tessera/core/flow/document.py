"""Which fields has a JSON body, and how is a leg's body made of it without touching the rest?

Values are kept as the client wrote them, byte for byte, and long ``data:`` strings
are cut out before and put back behind, so that no media becomes a Python object.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import msgspec

from tessera.core.dialects.excision import Excised
from tessera.core.dialects.json_body import bound_structure

MAX_STRINGS_CUT: Final = 1024
"""Long ``data:`` strings that are cut out of a body; further ones are read as JSON."""
MAX_STRUCTURE: Final = 500_000
"""Objects and arrays of a body of more than 1 MiB, as in the router."""
MAX_VALUES: Final = 4_000_000
"""Commas of such a body."""

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

    A field that comes twice counts as its last, as in every JSON parser.

    Raises:
        RequestError: 413, more values than are read.
    """

    __slots__ = ("_excised", "body", "fields", "is_readable")

    def __init__(self, body: bytes) -> None:
        self.body = body
        """As it came."""
        self._excised = Excised(body, MAX_STRINGS_CUT)
        bound_structure(self._excised.rest, max_structure=MAX_STRUCTURE, max_values=MAX_VALUES)
        self.fields = fields_of(self._excised.rest)
        self.is_readable = bool(self.fields) and _is_utf8(self._excised.rest)

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


def _is_utf8(raw: bytes) -> bool:
    try:
        return raw.isascii() or bool(raw.decode())
    except UnicodeDecodeError:
        return False
