import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.live.http_reply import MAX_BODY_BYTES, MAX_CHUNKS, MAX_HEAD_BYTES, BadReply, HttpReply

PLAIN = b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 5\r\nContent-Type: text/plain\r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n0002;name=value\r\nlo\r\n0\r\ntrailer: x\r\n\r\n"
)
OPEN_ENDED = b"HTTP/1.0 200 OK\r\n\r\nhello"


def feed(reply, data):
    """Whether the reply is complete behind ``data``, given as its buffer takes it."""
    complete = False
    while data:
        space = reply.space()
        part = data[: len(space)]
        space[: len(part)] = part
        data = data[len(part) :]
        complete = reply.received(len(part))
        assert not (complete and data)
    return complete


@pytest.mark.parametrize("data", [PLAIN, CHUNKED])
def test_a_reply_is_the_same_wherever_it_is_cut(data):
    for cut in range(1, len(data)):
        reply = HttpReply()
        assert not feed(reply, data[:cut])
        assert reply.has_begun
        assert feed(reply, data[cut:])
        assert (reply.status, reply.body(), reply.keeps_alive) == (200, b"hello", True)


@pytest.mark.parametrize("data", [PLAIN, CHUNKED])
def test_a_reply_may_come_byte_by_byte(data):
    reply = HttpReply()
    assert [feed(reply, data[k : k + 1]) for k in range(len(data))] == [False] * (len(data) - 1) + [True]
    assert reply.body() == b"hello"


def test_a_body_without_length_ends_with_the_connection():
    reply = HttpReply()
    assert not feed(reply, OPEN_ENDED)
    assert not reply.keeps_alive
    assert reply.ended()
    assert reply.body() == b"hello"


def test_a_body_with_a_length_does_not_end_with_the_connection():
    reply = HttpReply()
    feed(reply, PLAIN[:-1])
    assert not reply.ended()


@pytest.mark.parametrize(
    ("version", "connection", "keeps_alive"),
    [("1.1", "", True), ("1.1", "Connection: Close\r\n", False), ("1.1", "connection: keep-alive\r\n", True),
     ("1.0", "", False), ("1.0", "Connection: Keep-Alive\r\n", True)],
)  # fmt: skip
def test_keep_alive(version, connection, keeps_alive):
    reply = HttpReply()
    assert feed(reply, f"HTTP/{version} 200 OK\r\n{connection}content-length: 0\r\n\r\n".encode())
    assert reply.keeps_alive is keeps_alive
    assert reply.body() == b""


def test_the_next_reply_uses_the_same_buffer():
    reply = HttpReply()
    for body in (b"a", b"b" * 300_000, b"c"):
        assert feed(reply, b"HTTP/1.1 503 Busy\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
        assert (reply.status, reply.body()) == (503, body)
        reply.reset()
        assert (reply.status, reply.has_begun) == (0, False)


def test_the_caller_may_hold_the_space_while_the_buffer_grows():
    reply = HttpReply()
    space = reply.space()
    head = b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n"
    space[: len(head)] = head
    assert not reply.received(len(head))
    assert len(reply.space()) == 100_000


def chunked(size, num_chunks):
    body = b"%x\r\n%s\r\n" % (size, b"x" * size) * num_chunks
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def test_limits_hold_to_the_byte():
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n"
    reply = HttpReply()
    assert feed(reply, head % MAX_BODY_BYTES + b"x" * MAX_BODY_BYTES)
    reply.reset()
    assert feed(reply, chunked(MAX_BODY_BYTES // 64, 64))
    assert len(reply.body()) == MAX_BODY_BYTES
    reply.reset()
    assert feed(reply, chunked(1, MAX_CHUNKS))
    reply.reset()
    assert not feed(reply, b"HTTP/1.0 200 OK\r\n\r\n" + b"x" * MAX_BODY_BYTES)
    with pytest.raises(BadReply, match="body of 4194305 bytes or more, the limit is 4194304"):
        feed(reply, b"x")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1), "body of 4194305 bytes"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 9999999999999\r\n\r\n", "content-length"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n400001\r\n", "body of 4194305 bytes"),
        (chunked(1, MAX_CHUNKS + 1), "chunks"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * MAX_HEAD_BYTES, "head of more than"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", "head of more than"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1;" + b"x" * 1023, "no chunk size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", "no chunk size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n", "no chunk size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n", "longer than its size"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nx", "behind the last chunk"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x: y\r\n" * 4000, "trailers without end"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n", "only chunked"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n", "only chunked"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "two that differ"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "no number"),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 1\r\n\r\n", "content-encoding"),
        (PLAIN + b"more", "4 bytes behind the reply's end"),
        (b"HTTP/2 200\r\n\r\n", "status line"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "status line"),
        (b"HTTP/1.1 999 No\r\n\r\n", "status line"),
    ],
)  # fmt: skip
def test_what_breaks_a_limit_or_is_no_reply_is_refused(data, why):
    with pytest.raises(BadReply, match=why):
        feed(HttpReply(), data)


def test_endless_framing_ends_at_the_buffers_limit():
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"8;%s\r\nxxxxxxxx\r\n" % (b"e" * 900) * 10_000
    with pytest.raises(BadReply, match="reply of more than 4211712 bytes"):
        feed(HttpReply(), data)


pieces = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"content-length: 5\r\n", b"transfer-encoding: chunked\r\n", b"\r\n", b"5\r\n", b"0\r\n"]
)


@given(st.lists(pieces | st.binary(max_size=6), max_size=20))
def test_no_bytes_raise_anything_but_a_bad_reply(parts):
    reply = HttpReply()
    try:
        for part in parts:
            if feed(reply, part):
                assert len(reply.body()) <= 200
                reply.reset()
    except BadReply:
        pass


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.integers(1, 50))
def test_chunks_join_to_the_body_whatever_the_pieces(chunks, step):
    data = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    data += b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
    reply = HttpReply()
    complete = [feed(reply, data[k : k + step]) for k in range(0, len(data), step)]
    assert complete[-1]
    assert reply.body() == b"".join(chunks)
