"""Where does an event of a stream end, so that nothing but whole events is passed on?

A stream that breaks in the middle of an event can then still end with an event that says so.
"""

from typing import Final

MAX_HELD_BYTES: Final = 64 << 10
"""The beginning of an event that is held back; of a longer one the pieces are passed on as they come."""


class EventStream:
    """Takes pieces as they come, gives whole events; holds at most the beginning of one.

    >>> stream = EventStream()
    >>> stream.feed(b'data: 1\\n\\nda'), stream.feed(b'ta: 2\\n'), stream.feed(b'\\n')
    (b'data: 1\\n\\n', b'', b'data: 2\\n\\n')
    """

    __slots__ = ("_held", "is_at_start")

    def __init__(self) -> None:
        self._held = b""
        self.is_at_start = True
        """Whether what was passed on ends with a whole event."""

    def feed(self, piece: bytes) -> bytes:
        """What can be passed on now."""
        whole = self._held + piece if self._held else piece
        end = _end_of_events(whole)
        if end == 0 and len(whole) > MAX_HELD_BYTES:
            self._held, self.is_at_start = b"", False
            return whole
        if end:
            self.is_at_start = True
        self._held = whole[end:]
        return whole[:end]

    def rest(self) -> bytes:
        """What is held back when the stream has ended as it should."""
        held, self._held = self._held, b""
        return held


def _end_of_events(text: bytes) -> int:
    """The offset behind the last blank line; 0 where there is none."""
    plain = text.rfind(b"\n\n")
    carried = text.rfind(b"\n\r\n")
    return max(plain + 2 if plain >= 0 else 0, carried + 3 if carried >= 0 else 0)
