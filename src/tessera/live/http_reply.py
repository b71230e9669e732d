"""Has the whole HTTP/1.1 reply come, and where in the buffer is its body?

Sans-IO, for one reply at a time on a keep-alive connection. The bytes are received
straight into one buffer that is used again for the next reply; headers are searched
for the four names that matter and never turned into a table.
"""

import re

MAX_BODY_BYTES = 4 << 20
"""A larger body ends the connection."""
MAX_HEAD_BYTES = 16 << 10
"""Status line and headers."""
MAX_CHUNKS = 16 << 10
"""Chunks of one reply; a body of one-byte chunks costs time, not only space."""

_FIRST_BUFFER_BYTES = 64 << 10
_MAX_CHUNK_LINE_BYTES = 1 << 10
_CAPACITY = MAX_BODY_BYTES + MAX_HEAD_BYTES + _MAX_CHUNK_LINE_BYTES

_STATUS = re.compile(rb"http/1\.([01]) ([1-5][0-9][0-9])[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*(?=\r\n)")
_TRANSFER = re.compile(rb"\r\ntransfer-encoding:[ \t]*([^\r\n]*)")
_CODING = re.compile(rb"\r\ncontent-encoding:[ \t]*([^\r\n]*)")
_CONNECTION = re.compile(rb"\r\nconnection:[ \t]*([^\r\n]*)")
_CHUNK_SIZE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


class BadReply(Exception):
    """The other side does not speak HTTP/1.1 within the limits; the connection must be closed."""


class HttpReply:
    """Receives one reply after the other.

    Use: ``space()``, write n bytes there, ``received(n)``; when that is true,
    ``body()``, then ``reset()``. Memory: one buffer, 64 KiB at first, 4 MiB and
    17 KiB at most.
    """

    def __init__(self) -> None:
        self._buffer = bytearray(_FIRST_BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self.reset()

    def reset(self) -> None:
        """Forget the reply; the buffer stays."""
        self.status = 0
        """The HTTP status, 0 while the head has not come."""
        self.keeps_alive = False
        """Whether the connection may carry another request."""
        self._num_received = 0
        self._body_from = 0
        self._body_to = 0
        """End of the body, or of what has been decoded of it."""
        self._raw_from = 0
        """Start of what has not been decoded yet, in a chunked body."""
        self._num_chunks = -1
        """Chunks seen; -1 where the body is not chunked."""
        self._until_close = False
        self._searched_to = 0

    @property
    def has_begun(self) -> bool:
        """Whether any byte of the reply has come."""
        return self._num_received > 0

    def space(self) -> memoryview:
        """Where the next bytes belong, at least one byte."""
        if self._num_received == len(self._buffer):
            self._grow(2 * len(self._buffer))
        return self._view[self._num_received :]

    def received(self, num_bytes: int) -> bool:
        """Take note of ``num_bytes`` written to ``space()``; whether the reply is complete.

        Raises:
            BadReply: what came is no HTTP/1.1 reply, or breaks a limit.
        """
        self._num_received += num_bytes
        if not self.status and not self._read_head():
            return False
        if self._num_chunks >= 0:
            return self._read_chunks()
        if self._until_close:
            self._check_size(self._num_received - self._body_from)
            return False
        if self._num_received > self._body_to:
            raise BadReply(f"{self._num_received - self._body_to} bytes behind the reply's end")
        return self._num_received == self._body_to

    def ended(self) -> bool:
        """Take note that the other side closed; whether that completes the reply."""
        if self._until_close:
            self._body_to = self._num_received
        return self._until_close

    def body(self) -> bytes:
        """A copy of the complete reply's body."""
        return bytes(self._view[self._body_from : self._body_to])

    def _grow(self, num_bytes: int) -> None:
        # A new buffer, not a longer one: the event loop still holds a view of the old.
        if len(self._buffer) >= _CAPACITY:
            raise BadReply(f"reply of more than {_CAPACITY} bytes")
        larger = bytearray(min(num_bytes, _CAPACITY))
        larger[: self._num_received] = self._view[: self._num_received]
        self._buffer = larger
        self._view = memoryview(larger)

    def _read_head(self) -> bool:
        """Whether the head is there; then the body's framing is known."""
        end = self._buffer.find(b"\r\n\r\n", max(0, self._searched_to - 3), self._num_received)
        self._searched_to = self._num_received
        if end < 0 and self._num_received <= MAX_HEAD_BYTES:
            return False
        if end < 0 or end > MAX_HEAD_BYTES:
            raise BadReply(f"head of more than {MAX_HEAD_BYTES} bytes")
        head = bytes(self._view[: end + 2]).lower()
        status = _STATUS.match(head)
        if not status:
            raise BadReply(f"{head[:40]!r} where an HTTP/1.1 status line belongs")
        coding = _CODING.search(head)
        if coding and coding[1].strip() not in (b"", b"identity"):
            raise BadReply(f"content-encoding {coding[1][:40]!r} though identity was asked for")
        self.status = int(status[2])
        connection = _CONNECTION.search(head)
        said = connection[1] if connection else b""
        self.keeps_alive = b"close" not in said if status[1] == b"1" else b"keep-alive" in said
        self._frame(head, end + 4)
        return True

    def _frame(self, head: bytes, body_from: int) -> None:
        """Find out how the body's end will be known."""
        self._body_from = self._body_to = self._raw_from = body_from
        transfer = _TRANSFER.search(head)
        lengths = _LENGTH.findall(head)
        if len(set(lengths)) > 1 or head.count(b"\r\ncontent-length:") != len(lengths):
            raise BadReply("a content-length that is no number, or two that differ")
        if transfer:
            if transfer[1].strip() != b"chunked" or lengths:
                raise BadReply(f"transfer-encoding {transfer[1][:40]!r} where only chunked is read")
            self._num_chunks = 0
        elif lengths:
            self._check_size(int(lengths[0]))
            self._body_to = body_from + int(lengths[0])
            if self._body_to > len(self._buffer):
                self._grow(self._body_to)
        else:
            self._until_close = True
            self.keeps_alive = False

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > MAX_BODY_BYTES:
            raise BadReply(f"body of {num_bytes} bytes or more, the limit is {MAX_BODY_BYTES}")

    def _read_chunks(self) -> bool:
        """Move the chunks that are complete up to the decoded part; whether the last one has come."""
        while True:
            line = _CHUNK_SIZE.match(self._buffer, self._raw_from, self._num_received)
            if not line:
                line_to = min(self._num_received, self._raw_from + _MAX_CHUNK_LINE_BYTES)
                if line_to < self._num_received or self._buffer.find(b"\n", self._raw_from, line_to) >= 0:
                    raise BadReply("no chunk size where one belongs")
                return False
            size = int(line[1], 16)
            self._check_size(self._body_to - self._body_from + size)
            if size == 0:
                return self._read_trailer(line.end())
            if line.end() + size + 2 > self._num_received:
                return False
            self._take_chunk(line.end(), size)

    def _take_chunk(self, start: int, size: int) -> None:
        self._num_chunks += 1
        if self._num_chunks > MAX_CHUNKS:
            raise BadReply(f"body of more than {MAX_CHUNKS} chunks")
        end = start + size
        if not self._buffer.startswith(b"\r\n", end):
            raise BadReply("a chunk longer than its size")
        self._view[self._body_to : self._body_to + size] = self._view[start:end]
        self._body_to += size
        self._raw_from = end + 2

    def _read_trailer(self, start: int) -> bool:
        """Whether the empty line that ends a chunked body has come, behind any trailers."""
        if self._num_received < start + 2:
            return False
        if self._buffer.startswith(b"\r\n", start):
            end = start + 2
        else:
            end = self._buffer.find(b"\r\n\r\n", start, self._num_received) + 4
            if end < 4 and self._num_received - start <= MAX_HEAD_BYTES:
                return False
        if end != self._num_received:
            raise BadReply("bytes behind the last chunk, or trailers without end")
        return True
