"""Is what the window shows the decoded content, within its limits, however the content is spelt?"""

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import BLOCK_BYTES, CHUNK_CHARS, MAX_HEAD_CHARS, ODD_CHUNK_CHARS, Window, is_data_uri


class Collected:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def update(self, data: bytes, /) -> None:
        self.pieces.append(data)

    @property
    def content(self) -> bytes:
        return b"".join(self.pieces)


def poured(text: str) -> bytes | None:
    sink = Window(text).pour(Collected)
    return sink.content if sink else None


def spellings(content: bytes) -> dict[str, str]:
    """One content in every spelling that a client has been seen to use."""
    clean = b64encode(content).decode()
    lines = "\n".join(clean[at : at + 76] for at in range(0, len(clean), 76))
    return {
        "clean": clean,
        "no padding": clean.rstrip("="),
        "half padding": clean[:-1] if clean.endswith("==") else clean,
        "url-safe": urlsafe_b64encode(content).decode(),
        "url-safe, no padding": urlsafe_b64encode(content).decode().rstrip("="),
        "lines": lines + "\n",
        "windows lines": " \t" + lines.replace("\n", "\r\n"),
        "percent": quote(clean, safe=""),
        "percent, lower case": clean.replace("+", "%2b").replace("/", "%2f").replace("=", "%3d"),
        "percent lines": lines.replace("\n", "%0D%0A"),
        "every character": "".join(f"%{ord(char):02X}" for char in clean),
        "data uri": f"data:image/png;base64,{clean}",
        "shouted": f"  DATA:IMAGE/PNG;CHARSET=x;BASE64 ,{clean}",
        "wrong type": f"data:text/plain;base64,{clean}",
        "no type": f"data:;base64,{clean}",
        "only base64": f"data:base64,{clean}",
        "not base64": "data:image/gif," + quote(content, safe=""),
        "json": json.loads(json.dumps(f"data:image/png;base64,{clean}").replace("/", "\\/")),
    }


@settings(max_examples=100, deadline=None)
@given(content=st.binary(max_size=400))
def test_every_spelling_shows_the_same_bytes(content: bytes) -> None:
    for name, text in spellings(content).items():
        window = Window(text)
        window.verify()
        assert poured(text) == content, name
        assert window.num_bytes == len(content), name
        assert window.read(0, len(content) + 9) == content, name


@settings(max_examples=100, deadline=None)
@given(
    content=st.binary(max_size=3 * BLOCK_BYTES),
    reads=st.lists(st.tuples(st.integers(0, 4 * BLOCK_BYTES), st.integers(0, 2 * BLOCK_BYTES)), max_size=12),
    is_view=st.booleans(),
)
def test_bytes_are_seen_as_they_are(content: bytes, reads: list[tuple[int, int]], is_view: bool) -> None:
    window = Window(memoryview(b"<" + content + b">")[1:-1] if is_view else content)
    sink = window.pour(Collected)
    assert sink is not None
    assert sink.content == content
    assert (window.num_bytes, window.reason, window.content) == (len(content), None, "")
    for offset, length in reads:
        read = window.read(offset, length)
        assert isinstance(read, bytes)
        assert read == content[offset : offset + length]


def test_bytes_have_the_limits_of_base64() -> None:
    window = Window(b"data:image/png;base64,AAAA" * 40, max_bytes=100, max_steps=3)
    assert window.read(0, 30) == (b"data:image/png;base64,AAAA" * 2)[:30]
    with pytest.raises(Unsized):
        window.read(0, 71)
    window.read(0, 1)
    with pytest.raises(Unsized):
        window.read(0, 1)


@settings(max_examples=100, deadline=None)
@given(
    name=st.sampled_from(["clean", "no padding", "data uri", "lines", "not base64"]),
    content=st.binary(max_size=3 * BLOCK_BYTES),
    reads=st.lists(st.tuples(st.integers(0, 4 * BLOCK_BYTES), st.integers(0, 2 * BLOCK_BYTES)), max_size=12),
)
def test_a_read_is_a_slice(name: str, content: bytes, reads: list[tuple[int, int]]) -> None:
    window = Window(spellings(content)[name])
    window.verify()
    for offset, length in reads:
        assert window.read(offset, length) == content[offset : offset + length]


@pytest.mark.parametrize("chunk", [CHUNK_CHARS, ODD_CHUNK_CHARS])
@pytest.mark.parametrize("excess", [-5, -1, 0, 1, 2, 3, 4, 7])
def test_content_longer_than_a_chunk_is_whole(chunk: int, excess: int) -> None:
    content = bytes(range(251)) * (chunk * 3 // 4 // 251 + 2)
    content = content[: (chunk + excess) * 3 // 4]
    every = spellings(content)
    for name in ("clean", "no padding", "data uri", "url-safe", "lines", "percent", "percent lines"):
        assert poured(every[name]) == content, name


@pytest.mark.parametrize("shift", range(6))
def test_an_escape_across_two_chunks_is_one_character(shift: int) -> None:
    content = b"\xff" * ODD_CHUNK_CHARS
    assert poured("A" * shift * 4 + quote(b64encode(content), safe="")) == bytes(3 * shift) + content


def test_an_oddity_after_clean_chunks_starts_a_second_sink() -> None:
    content = b"\x01\x02\x03" * (CHUNK_CHARS // 2)
    text = b64encode(content).decode() + "\n"
    sinks: list[Collected] = []

    def begin() -> Collected:
        sinks.append(Collected())
        return sinks[-1]

    window = Window(text)
    assert window.pour(begin) is sinks[1]
    assert sinks[1].content == content
    assert window.num_bytes == len(content)


@pytest.mark.parametrize(
    "text",
    [
        "A",
        "AAAAA",
        "iVBOR!0KGgo=",
        "QQ==QUJD",
        "QQ==" * CHUNK_CHARS,
        "A" * (CHUNK_CHARS - 2) + "==QUJD",
        "  " + "A" * (ODD_CHUNK_CHARS - 4) + "==QUJD",
        "=QUJD",
        "caf\u00e9",
        "\ud800",
        "%",
        "QUJD%4",
        "QUJD%zz",
        "QUJD\\x41",
        "data:image/png;base64",
        "data:",
        "data:" + "x" * MAX_HEAD_CHARS + ",QUJD",
        "data:image/png;base64,data:image/png;base64,QUJD",
        "data:image/gif,GIF%8",
    ],
    ids=lambda text: ascii(text[:40]),
)
def test_what_cannot_be_decoded_is_empty_and_says_so(text: str) -> None:
    window = Window(text)
    assert window.pour(Collected) is None
    assert window.reason is Reason.BAD_BASE64
    assert window.num_bytes == 0
    assert window.read(0, 4) == b""


def test_nothing_is_no_bytes() -> None:
    for text in ("", "data:,", "data:;base64,", "=", " \n"):
        window = Window(text)
        window.verify()
        assert (window.reason, window.num_bytes) == (None, 0)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("data:image/png;base64,QUJD", True),
        ("Data:,x", True),
        ("\n data:,x", True),
        ("https://example.com/data:image", False),
        ("QUJD", False),
        ("", False),
    ],
)
def test_content_is_told_from_links(text: str, *, answer: bool) -> None:
    assert is_data_uri(text) is answer


def test_reads_stop_at_the_step_limit() -> None:
    window = Window("QUJD", max_steps=3)
    window.verify()
    assert [window.read(0, 1) for _ in range(2)] == [b"A", b"A"]
    window.step()
    with pytest.raises(Unsized) as gave_up:
        window.read(0, 1)
    assert gave_up.value.reason is Reason.HEADER_LIMIT
    with pytest.raises(Unsized):
        window.step()
    assert window.num_steps == 3


def test_reads_stop_at_the_byte_limit() -> None:
    window = Window(b64encode(bytes(100)).decode(), max_bytes=10)
    window.verify()
    window.read(0, 6)
    window.look(4)
    with pytest.raises(Unsized) as gave_up:
        window.read(50, 1)
    assert gave_up.value.reason is Reason.HEADER_LIMIT
    assert window.read(100, 9) == b""
    assert window.bytes_read == 10


def test_a_need_beyond_the_end_is_a_truncation() -> None:
    window = Window("QUJD")
    window.verify()
    assert window.need(1, 2) == b"BC"
    for offset, length in ((1, 3), (2**40, 1), (0, 2**32)):
        with pytest.raises(Unsized) as gave_up:
            window.need(offset, length)
        assert gave_up.value.reason is Reason.TRUNCATED_HEADER


def test_what_begins_a_sink_may_read() -> None:
    content = bytes(range(256)) * 8
    for text in spellings(content).values():
        window, seen = Window(text), []

        def begin(window: Window = window, seen: list[tuple[int, bytes]] = seen) -> Collected:
            seen.append((window.num_bytes, window.read(1500, 4)))
            return Collected()

        sink = window.pour(begin)
        assert sink is not None
        assert sink.content == content
        assert len(seen) <= 2
        assert seen[-1] == (len(content), content[1500:1504])
        assert window.num_steps == 1


def test_limits_start_anew_with_content_that_is_not_clean() -> None:
    window = Window("QUJD" * 400 + "\n", max_bytes=4, max_steps=3)

    def begin() -> Collected:
        window.allow(2)
        for _ in range(2):
            window.read(0, 2)
        return Collected()

    assert window.pour(begin) is not None
    assert (window.num_steps_in_vain, window.num_steps, window.bytes_read) == (2, 2, 4)
    with pytest.raises(Unsized):
        window.read(0, 1)
