"""Which fields and files does a multipart form hold?

The body is searched, never split: a part's content is a view into it. What the
engine's own reader refuses is a RequestError here. Source: RFC 7578, RFC 2046.
"""

import re
from dataclasses import dataclass
from typing import Final

from tessera.core.errors import RequestError

MAX_PARTS: Final = 64
MAX_HEAD_BYTES: Final = 8192
"""Bytes of the headers of one part."""
MAX_BOUNDARY_CHARS: Final = 70
"""Source: RFC 2046, section 5.1.1."""

_MULTIPART = re.compile(r"\s*multipart/form-data\s*;", re.IGNORECASE)
_PARAMETER = re.compile(r';\s*([^\s=;"]{1,64})\s*=\s*(?:"([^"]*)"?|([^\s;]*))')
"""One parameter of a header; a quote that does not close ends with the header, so that each byte is looked at once."""
_AFTER = (b"\r\n", b"--")
"""What stands behind a boundary: another part, or the end."""


@dataclass(frozen=True, slots=True)
class FormPart:
    """One field or file of a form."""

    name: str
    content: memoryview
    """Its bytes, in the body."""
    type: str | None = None
    """The MIME type that the client gives it; never trusted."""


def boundary_of(content_type: str) -> bytes | None:
    """What separates the parts, by the request's ``content-type``; nothing where that names none.

    >>> boundary_of('multipart/form-data; boundary="a b"'), boundary_of("application/json")
    (b'a b', None)
    """
    if not _MULTIPART.match(content_type):
        return None
    boundary = _parameters(content_type).get("boundary", "")
    usable = 0 < len(boundary) <= MAX_BOUNDARY_CHARS and boundary.isascii() and boundary.isprintable()
    return boundary.encode() if usable else None


def form_parts(body: bytes, boundary: bytes) -> list[FormPart]:
    """The named parts of a form, in order.

    Raises:
        RequestError: the form does not begin, go on or end as one must; more than
            ``MAX_PARTS`` parts; headers of more than ``MAX_HEAD_BYTES``.
    """
    view = memoryview(body)
    parts: list[FormPart] = []
    separator = b"\r\n--" + boundary
    first = len(separator) - 2
    at = first if body.startswith(separator[2:]) and body.startswith(_AFTER, first) else _behind(body, separator, 0)
    for _ in range(MAX_PARTS):
        if body.startswith(b"--", at):
            return parts
        start = body.find(b"\r\n\r\n", at, at + 4 + MAX_HEAD_BYTES) + 4
        if start < 4:
            raise _malformed(f"the headers of a part do not end within {MAX_HEAD_BYTES} bytes")
        end = _behind(body, separator, start)
        part = _part(body[at:start].decode("utf-8", "replace"), view[start : end - len(separator)])
        if part is not None:
            parts.append(part)
        at = end
    if body.startswith(b"--", at):
        return parts
    raise _malformed(f"it has more than {MAX_PARTS} parts")


def _behind(body: bytes, separator: bytes, start: int) -> int:
    """Where the next separator ends; one that something else follows is content, as in the engine's reader."""
    for _ in range(MAX_PARTS):
        found = body.find(separator, start)
        if found < 0:
            break
        start = found + len(separator)
        if body.startswith(_AFTER, start):
            return start
    raise _malformed("its boundary is missing, at its start or its end")


def _part(head: str, content: memoryview) -> FormPart | None:
    """The part with these headers; nothing where they give it no name."""
    pairs = [line.partition(":") for line in head.split("\r\n")]
    headers = {name.strip().lower(): value for name, _, value in pairs}
    name = _parameters(headers.get("content-disposition", "")).get("name")
    kind = headers.get("content-type", "").partition(";")[0].strip()
    return FormPart(name, content, kind or None) if name else None


def _parameters(value: str) -> dict[str, str]:
    """The parameters of a header's value, names in lower case; of a repeated one the first."""
    found = [(name.lower(), quoted or bare) for name, quoted, bare in _PARAMETER.findall(value)]
    return dict(reversed(found))


def _malformed(why: str) -> RequestError:
    return RequestError(f"the body is no multipart form: {why}; send it as its content-type says")
