"""Is an Ogg sound as long as its last page says, found from the end and never looked for without one?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import ogg
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]

NOWHERE = (1 << 64) - 1


def page(data: bytes = b"", position: int = 0, *, serial: bytes = b"abcd", begins: bool = False) -> bytes:
    lengths = bytes([255]) * (len(data) // 255) + bytes([len(data) % 255])
    flags = 2 if begins else 0
    head = b"OggS\0" + bytes([flags]) + struct.pack("<Q", position) + serial + bytes(8) + bytes([len(lengths)])
    return head + lengths + data


def begin(packet: bytes, serial: bytes = b"abcd") -> bytes:
    return page(packet, begins=True, serial=serial)


VORBIS = b"\x01vorbis" + bytes(4) + b"\2" + struct.pack("<I", 44_100) + bytes(14)
OPUS = b"OpusHead\1\1" + struct.pack("<HI", 312, 16_000) + bytes(3)
FLAC = b"\x7fFLAC\1\0\0\1fLaC\0\0\0\x22" + bytes(10) + (16_000 << 44 | 15 << 36).to_bytes(8, "big") + bytes(16)
THEORA = b"\x80theora\3\2\1" + bytes(30)
PACKETS = page(bytes(400), 500) + page(bytes(300), 88_200)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        ogg.sound(window)
    return gave_up.value.reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (begin(VORBIS) + PACKETS, Sound(2.0, 44_100, 2)),
        (begin(OPUS) + page(bytes(300), 96_312), Sound(2.0, 48_000, 1)),
        (begin(OPUS) + page(bytes(300), 100), Sound(0.0, 48_000, 1)),
        (begin(FLAC) + page(bytes(300), 32_000), Sound(2.0, 16_000, 1)),
        (begin(THEORA, b"view") + begin(VORBIS) + PACKETS + page(bytes(99), 7, serial=b"view"), Sound(2.0, 44_100, 2)),
        (begin(VORBIS) + PACKETS + page(bytes(9), NOWHERE), Sound(2.0, 44_100, 2)),
        (begin(VORBIS) + PACKETS + page(bytes(9), 99_999)[:-1], Sound(2.0, 44_100, 2)),
        (begin(VORBIS) + PACKETS + bytes(5000), Sound(2.0, 44_100, 2)),
        (begin(VORBIS) + PACKETS + page(bytes(60_000), 99_999)[:-1], Sound(2.0, 44_100, 2)),
        (begin(VORBIS) + page(bytes(60_000), 9) * 4 + page(bytes(64_000), 88_200), Sound(2.0, 44_100, 2)),
        (begin(VORBIS), Sound(None, 44_100, 2, Reason.NO_DURATION)),
    ],
)
def test_the_last_page(window_of: Open, content: bytes, expected: Sound) -> None:
    window = window_of(content)
    assert ogg.sound(window) == expected
    assert window.num_steps <= 10


def test_marks_within_packets_are_no_pages(window_of: Open) -> None:
    decoys = (
        b"OggS\1" + bytes(30),
        b"OggS\0\xff" + bytes(30),
        b"OggS",
        b"OggS\0\0" + bytes(20) + b"\xff" + b"\xff" * 255,
    )
    content = begin(VORBIS) + page(b"".join(decoys), 88_200)
    assert ogg.sound(window_of(content)) == Sound(2.0, 44_100, 2)


def test_where_no_last_page_tells(window_of: Open) -> None:
    unknown = Sound(None, 44_100, 2, Reason.NO_DURATION)
    chained = begin(VORBIS) + PACKETS + begin(VORBIS, b"next") + page(bytes(9), 5, serial=b"next")
    assert ogg.sound(window_of(chained)) == unknown
    assert ogg.sound(window_of(begin(VORBIS) + PACKETS + bytes(140_000))) == unknown
    assert refusal(window_of(begin(VORBIS) + page(bytes(9), 1 << 62))) is Reason.BAD_HEADER


def test_every_cut(window_of: Open) -> None:
    whole = begin(VORBIS) + PACKETS
    start = len(begin(VORBIS))
    for cut in range(4, start):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
    for cut in range(start, len(whole)):
        left_s = 500 / 44_100 if cut >= start + len(page(bytes(400))) else None
        assert ogg.sound(window_of(whole[:cut])).duration_s == left_s


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (begin(THEORA) + PACKETS, Reason.UNKNOWN_FORMAT),
        (begin(b"") + PACKETS, Reason.UNKNOWN_FORMAT),
        (begin(VORBIS[:15]) + PACKETS, Reason.UNKNOWN_FORMAT),
        (begin(OPUS[:11]) + PACKETS, Reason.UNKNOWN_FORMAT),
        (begin(FLAC[:50]) + PACKETS, Reason.UNKNOWN_FORMAT),
        (PACKETS, Reason.UNKNOWN_FORMAT),
        (begin(THEORA) * 9 + begin(VORBIS), Reason.UNKNOWN_FORMAT),
        (begin(VORBIS.replace(struct.pack("<I", 44_100), bytes(4))) + PACKETS, Reason.BAD_HEADER),
        (begin(VORBIS.replace(b"\2D", b"\0D", 1)) + PACKETS, Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize(
    "hostile", [b"OggS" * 200_000, b"OggS\0\0" * 200_000, (b"OggS\0\0" + bytes(20) + b"\xff") * 20_000, bytes(900_000)]
)
def test_an_end_is_not_looked_for_without_end(window_of: Open, hostile: bytes) -> None:
    window = window_of(begin(VORBIS) + hostile)
    assert ogg.sound(window) == Sound(None, 44_100, 2, Reason.NO_DURATION)
    assert window.num_steps <= 10
    assert window.bytes_read <= 201 << 10
    assert window.num_steps < MAX_STEPS
