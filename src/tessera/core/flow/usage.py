"""How many prompt tokens had the prefiller cached, and how does the client's answer say so?

The decoding engine did not prefill, so the number in its usage is not the client's.
Source: llm-d's sidecar forces the prefiller's number into the answer and into every event.
"""

from typing import Final

from tessera.core.flow.document import edited, fields_of, value_of
from tessera.core.flow.shapes import Shape

MAX_ANSWER_BYTES: Final = 16 << 20
"""A longer answer, or event of a stream, keeps its own number."""
_MAX_TOKENS: Final = 1 << 31


def cached_tokens(shape: Shape, answer: bytes) -> int | None:
    """The number in a prefiller's answer; nothing where it does not say."""
    raw: bytes = answer
    for name in (*shape.usages[0], *shape.cached):
        raw = bytes(fields_of(raw).get(name, b""))
    count = value_of(raw)
    return count if type(count) is int and 0 <= count <= _MAX_TOKENS else None


def with_cached_tokens(shape: Shape, answer: bytes, count: int) -> bytes:
    """The answer, or the data of an event, whose every usage says ``count``; unchanged where there is none.

    >>> from tessera.core.flow.shapes import CHAT
    >>> with_cached_tokens(CHAT, b'{"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}', 8)
    b'{"usage":{"prompt_tokens":9,"prompt_tokens_details":{"cached_tokens":8}}}'
    """
    if b'"usage"' not in answer or len(answer) > MAX_ANSWER_BYTES:
        return answer
    for path in shape.usages:
        answer = _set(answer, path, shape.cached, count)
    return answer


def _set(raw: bytes, path: tuple[str, ...], cached: tuple[str, ...], count: int) -> bytes:
    """The object with the number under ``cached`` below ``path``; the path must be there, what is below may not."""
    fields = fields_of(raw)
    name, *rest = path
    inner = fields_of(fields.get(name, b""))
    if not inner:
        return raw
    value = bytes(fields[name])
    changed = _set(value, tuple(rest), cached, count) if rest else _put(value, cached, count)
    return raw if changed == value else edited(fields, {name: changed})


def _put(raw: bytes, cached: tuple[str, ...], count: int) -> bytes:
    fields = fields_of(raw)
    name, *rest = cached
    value = _put(bytes(fields.get(name, b"")), tuple(rest), count) if rest else str(count).encode()
    return edited(fields, {name: value})


class StreamUsage:
    """Sets the number in the events of a stream as they pass, whole events in and out."""

    __slots__ = ("_count", "_shape")

    def __init__(self, shape: Shape, count: int) -> None:
        self._shape = shape
        self._count = count

    def __call__(self, events: bytes) -> bytes:
        """The events with the number; those without a usage byte for byte."""
        if b'"usage"' not in events:
            return events
        return b"\n".join(self._line(line) for line in events.split(b"\n"))

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(b"data:") or b'"usage"' not in line:
            return line
        data = line[5:].strip()
        changed = with_cached_tokens(self._shape, data, self._count)
        return line if changed == data else b"data: " + changed
