"""What stands at this offset of the content? A bounded, lazy view on base64, percent-encoded or plain bytes.

Clean base64 (standard alphabet, no white space, padded or not) stays the string it
is; a read decodes only a few groups of four characters around it. Every other
spelling (URL-safe alphabet, line breaks, percent-encoding, a data URI without
base64) is decoded once, in passes that run in C, and its bytes are kept as long as
the window: the limit on bodies bounds them. Bytes that need no decoding are neither
copied nor kept.
"""

import re
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Final, Protocol, TypeVar

from pybase64 import b64decode

from tessera.core.media.size import Reason, Unsized

MAX_BYTES: Final = 256 * 1024
"""Decoded bytes that parsers may look at, for one item."""
MAX_STEPS: Final = 4096
"""Reads and turns of a parser's loops, for one item."""
MAX_HEAD_CHARS: Final = 4096
"""A data URI whose comma comes later is malformed."""
CHUNK_CHARS: Final = 1 << 20
"""Characters of clean base64 that are decoded at a time when all content is read; a multiple of 4."""
ODD_CHUNK_CHARS: Final = 1 << 16
"""Characters of any other spelling: half the time of larger chunks, whose copies leave the CPU's cache."""
BLOCK_BYTES: Final = 768
"""Bytes that are decoded at a time when a parser reads; a multiple of 3."""

_DATA = re.compile(r"\s*data:", re.IGNORECASE)
_BASE64 = re.compile(r"(?:^|;)\s*base64\s*(?:;|$)", re.IGNORECASE)
_TO_STANDARD = bytes.maketrans(b"-_", b"+/")
_WHITE_SPACE = b" \t\n\r\f\v"


class Sink(Protocol):
    """What decoded content is poured into: a hasher."""

    def update(self, data: bytes | memoryview, /) -> object:
        """Take the next bytes."""


S = TypeVar("S", bound=Sink)


class _Nowhere:
    """A sink for content that is only to be checked."""

    def update(self, data: bytes | memoryview, /) -> None:
        """Drop them."""


def is_data_uri(text: str) -> bool:
    """Whether the text carries content itself, as ``data:``; any case, leading white space allowed."""
    return _DATA.match(text) is not None


class Window:
    """The decoded bytes of a data URI or of bare base64, or bytes as they are, seen through a bounded window.

    ``pour`` or ``verify`` comes first: it decodes everything once, in pieces, and so
    learns whether the content is clean. From then on ``num_bytes`` is exact and
    ``reason`` says whether the content could be decoded at all; content that could
    not is empty. The MIME type is not looked at: a format is known by its bytes.

    What ``pour`` calls to make its sink may read already, as if the content were
    clean; where it was not, a read may be a ValueError or show other bytes, and the
    sink is made anew.
    """

    __slots__ = (
        "_block",
        "_block_start",
        "_is_base64",
        "_is_whole",
        "_limit",
        "_max_bytes",
        "_max_steps",
        "_plain",
        "_start",
        "bytes_read",
        "content",
        "num_bytes",
        "num_steps",
        "num_steps_in_vain",
        "reason",
    )

    def __init__(
        self, content: str | bytes | memoryview, *, max_bytes: int = MAX_BYTES, max_steps: int = MAX_STEPS
    ) -> None:
        self.content: Final = content if isinstance(content, str) else ""
        """The string as the client sent it; empty where it sent bytes."""
        self._plain = None if isinstance(content, str) else memoryview(content)
        self.reason: Reason | None = None
        """``bad-base64`` where the content cannot be decoded."""
        self.bytes_read = 0
        """Bytes given to parsers so far, at most ``max_bytes``."""
        self.num_steps = 0
        """Reads and loop turns so far, at most ``max_steps``."""
        self.num_steps_in_vain = 0
        """Those of a look at content that turned out not to be clean, at most ``max_steps`` more."""
        self._max_bytes = max_bytes
        self._max_steps = self._limit = max_steps
        self._block, self._block_start = b"", 0
        self._is_whole = False
        self._start, self._is_base64 = self._head()
        self.num_bytes = self._num_bytes()
        """Decoded length."""
        if not self._is_base64:
            self._decode_whole()

    def _num_bytes(self) -> int:
        if self._plain is not None:
            return len(self._plain)
        tail = self.content[max(self._start, len(self.content) - 2) :]
        return (len(self.content) - self._start - len(tail) + len(tail.rstrip("="))) * 3 // 4

    def _head(self) -> tuple[int, bool]:
        """Where the body starts, and whether it is base64; a head without end is a body that is not base64 at all."""
        match = _DATA.match(self.content)
        if match is None:
            return 0, True
        comma = self.content.find(",", match.end(), match.end() + MAX_HEAD_CHARS)
        if comma < 0:
            self.reason = Reason.BAD_BASE64
            return len(self.content), False
        return comma + 1, _BASE64.search(self.content[match.end() : comma]) is not None

    def pour(self, begin: Callable[[], S]) -> S | None:
        """The sink that ``begin`` makes, after all decoded bytes in order; nothing where they cannot be decoded.

        ``begin`` may look at ``num_bytes`` and read. It is called a second time where
        clean content turns out, on the way, not to be clean; its limits start anew then.
        """
        if self._plain is not None:
            sink = begin()
            sink.update(self._plain)
            return sink
        if not self._is_whole:
            try:
                sink = begin()
                for piece in self._clean_pieces():
                    sink.update(piece)
                return sink
            except ValueError:
                self._decode_whole()
                self._start_over()
        if self.reason is not None:
            return None
        sink = begin()
        sink.update(self._block)
        return sink

    def _start_over(self) -> None:
        """Forget what was counted in vain."""
        self.num_steps_in_vain, self.num_steps, self.bytes_read = self.num_steps, 0, 0
        self._max_steps = self._limit

    def verify(self) -> None:
        """Decode everything, keep nothing: afterwards ``num_bytes`` and ``reason`` can be trusted."""
        self.pour(_Nowhere)

    def _clean_pieces(self) -> Iterator[bytes]:
        """Clean content, a chunk at a time; a ValueError where it is not clean."""
        num_left = self.num_bytes
        for at in range(self._start, len(self.content), CHUNK_CHARS):
            chars = self.content[at : at + CHUNK_CHARS]
            if at + CHUNK_CHARS >= len(self.content):
                chars += "=" * (-len(chars) % 4)
            piece = b64decode(chars, None, True)
            if len(piece) != min(num_left, CHUNK_CHARS // 4 * 3):
                raise ValueError("padding before the end")
            num_left -= len(piece)
            yield piece

    def _decode_whole(self) -> None:
        """Make the decoded content the block that every read is served from."""
        decoded = BytesIO()
        try:
            for piece in self._odd_pieces():
                decoded.write(piece)
        except ValueError:
            self.reason, decoded = Reason.BAD_BASE64, BytesIO()
        self._block, self._block_start, self._is_whole = decoded.getvalue(), 0, True
        self.num_bytes = len(self._block)

    def _odd_pieces(self) -> Iterator[bytes]:
        """Content of any spelling, decoded; a ValueError where it cannot be."""
        rest, is_padded = b"", False
        for octets in self._octets():
            if not self._is_base64:
                yield octets
                continue
            chars = octets.translate(_TO_STANDARD, _WHITE_SPACE)
            bare = chars.rstrip(b"=")
            if is_padded and bare:
                raise ValueError("padding before the end")
            is_padded = is_padded or len(bare) < len(chars)
            chars = rest + bare
            whole = len(chars) & ~3
            rest = chars[whole:]
            yield b64decode(chars[:whole], None, True)
        yield b64decode(rest + b"=" * (-len(rest) % 4), None, True)

    def _octets(self) -> Iterator[bytes]:
        """The body's characters as bytes, percent-encoding undone; a ValueError where that is malformed."""
        rest = ""
        for at in range(self._start, len(self.content), ODD_CHUNK_CHARS):
            chars = rest + self.content[at : at + ODD_CHUNK_CHARS]
            is_last = at + ODD_CHUNK_CHARS >= len(self.content)
            cut = -1 if is_last else chars.rfind("%", len(chars) - 2)
            rest = chars[cut:] if cut >= 0 else ""
            octets = chars[: len(chars) - len(rest)].encode("utf-8", "surrogatepass")
            yield _percent_decoded(octets) if b"%" in octets else octets

    def step(self) -> None:
        """Count one turn of a parser's loop.

        Raises:
            Unsized: there were ``max_steps`` before it.
        """
        if self.num_steps >= self._max_steps:
            raise Unsized(Reason.HEADER_LIMIT)
        self.num_steps += 1

    def allow(self, num_steps: int) -> None:
        """Lower the limit on steps to what a format's real files stay far below; never raises it."""
        self._max_steps = min(self._max_steps, num_steps)

    def look(self, num_bytes: int) -> None:
        """Count bytes that a parser is about to look at.

        Raises:
            Unsized: they would be more than ``max_bytes`` in all.
        """
        if self.bytes_read + num_bytes > self._max_bytes:
            raise Unsized(Reason.HEADER_LIMIT)
        self.bytes_read += num_bytes

    def read(self, offset: int, length: int) -> bytes:
        """``length`` bytes from ``offset``, fewer at the end of the content. One step.

        Raises:
            Unsized: a limit is reached.
        """
        # The two counters by hand: a call for each would make a read half as slow again.
        if self.num_steps >= self._max_steps:
            raise Unsized(Reason.HEADER_LIMIT)
        self.num_steps += 1
        length = min(length, self.num_bytes - offset)
        if length <= 0:
            return b""
        if self.bytes_read + length > self._max_bytes:
            raise Unsized(Reason.HEADER_LIMIT)
        self.bytes_read += length
        at = offset - self._block_start
        if at < 0 or at + length > len(self._block):
            at = self._fetch(offset, length)
        return self._block[at : at + length]

    def _fetch(self, offset: int, length: int) -> int:
        """Decode the block that begins at or just before ``offset``; returns where in it ``offset`` is."""
        if self._plain is not None:
            self._block = bytes(self._plain[offset : offset + max(BLOCK_BYTES, length)])
            self._block_start = offset
            return 0
        first = offset // 3
        num_groups = max(BLOCK_BYTES, length + 4) // 3
        at = self._start + first * 4
        chars = self.content[at : at + num_groups * 4]
        self._block, self._block_start = b64decode(chars + "=" * (-len(chars) % 4), None, True), first * 3
        return offset - self._block_start

    def need(self, offset: int, length: int) -> bytes:
        """Exactly ``length`` bytes from ``offset``.

        Raises:
            Unsized: the content ends before, or a limit is reached.
        """
        data = self.read(offset, length)
        if len(data) < length:
            raise Unsized(Reason.TRUNCATED_HEADER)
        return data


def _percent_decoded(data: bytes) -> bytes:
    """``%41`` as ``A``, by way of the codec for ``\\x41``, which runs in C.

    Raises:
        ValueError: a ``%`` without two hexadecimal digits.
    """
    return data.replace(b"\\", b"\\\\").replace(b"%", b"\\x").decode("unicode_escape").encode("latin-1")
