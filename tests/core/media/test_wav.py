"""Is a WAV as long as its samples, whatever its lengths say?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import wav
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]


def chunk(kind: bytes, payload: bytes, length: int | None = None) -> bytes:
    return kind + struct.pack("<I", len(payload) if length is None else length) + payload + b"\0" * (len(payload) & 1)


def form(
    kind: int = 1, num_channels: int = 1, rate: int = 16_000, block: int = 2, rest: bytes = b"", rate_bytes: int = 0
) -> bytes:
    return chunk(
        b"fmt ", struct.pack("<HHIIHH", kind, num_channels, rate, rate_bytes or rate * block, block, 16) + rest
    )


def sound(*chunks: bytes, magic: bytes = b"RIFF") -> bytes:
    body = b"WAVE" + b"".join(chunks)
    return magic + struct.pack("<I", len(body)) + body


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        wav.sound(window)
    return gave_up.value.reason


SECOND = bytes(32_000)
ONE = Sound(1.0, 16_000, 1)


def test_what_matches() -> None:
    for magic in (b"RIFF", b"RF64", b"BW64"):
        assert wav.matches(magic + b"\0\0\0\0WAVEfmt ")
    assert not wav.matches(b"RIFF\0\0\0\0WEBPVP8 ")
    assert not wav.matches(b"RIFX\0\0\0\0WAVEfmt ")


@pytest.mark.parametrize(
    "content",
    [
        sound(form(), chunk(b"data", SECOND)),
        sound(form(), chunk(b"LIST", bytes(27)), chunk(b"data", SECOND), chunk(b"id3 ", bytes(99))),
        sound(chunk(b"JUNK", bytes(28)), form(rest=b"\0\0"), chunk(b"fact", bytes(4)), chunk(b"data", SECOND)),
        sound(form(), chunk(b"data", SECOND, 0)),
        sound(form(), chunk(b"data", SECOND, 0xFFFFFFFF)),
        sound(form(), chunk(b"data", SECOND, 0x7FFFFFFF)),
        sound(form(rate_bytes=1), chunk(b"data", SECOND)),
        sound(
            chunk(b"ds64", struct.pack("<QQQ", 0, 32_000, 0)), form(), chunk(b"data", SECOND, 0xFFFFFFFF), magic=b"RF64"
        )
        + chunk(b"more", bytes(9)),
        sound(chunk(b"ds64", struct.pack("<QQQ", 0, 0, 0)), form(), chunk(b"data", SECOND, 0xFFFFFFFF), magic=b"BW64"),
        sound(form(0xFFFE, rest=b"\x16\0" + bytes(22)), chunk(b"data", SECOND + b"\0")),
    ],
)
def test_a_second(window_of: Open, content: bytes) -> None:
    assert wav.sound(window_of(content)) == ONE


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (sound(form(3, 2, 8000, 8), chunk(b"data", SECOND)), Sound(0.5, 8000, 2)),
        (sound(form(6, 1, 8000, 1), chunk(b"data", SECOND)), Sound(4.0, 8000, 1)),
        (sound(form(2, 1, 8000, 256, struct.pack("<HH", 2, 500)), chunk(b"data", bytes(4096))), Sound(1.0, 8000, 1)),
        (
            sound(form(0x11, 1, 8000, 256, struct.pack("<HH", 2, 505)), chunk(b"data", bytes(256))),
            Sound(505 / 8000, 8000, 1),
        ),
        (sound(form(0x55, 1, 8000, 1, rate_bytes=2000), chunk(b"data", bytes(4000))), Sound(2.0, 8000, 1)),
        (sound(form(), chunk(b"data", b"")), Sound(0.0, 16_000, 1)),
        (sound(form(), chunk(b"data", b"\0")), Sound(0.0, 16_000, 1)),
    ],
)
def test_other_codings(window_of: Open, content: bytes, expected: Sound) -> None:
    assert wav.sound(window_of(content)) == expected


def test_a_cut_file_has_what_is_left(window_of: Open) -> None:
    whole = sound(form(), chunk(b"data", SECOND))
    assert wav.sound(window_of(whole[:-16_001])) == Sound(7_999 / 16_000, 16_000, 1)
    for cut in range(12, 44):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (sound(chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(chunk(b"data", SECOND), form()), Reason.BAD_HEADER),
        (sound(chunk(b"fmt ", bytes(9)), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(rate=0, rate_bytes=5), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(block=0, rate_bytes=5), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(num_channels=0), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(num_channels=2000), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(rate=4_000_000), chunk(b"data", SECOND)), Reason.BAD_HEADER),
        (sound(form(rate=1, block=1), chunk(b"data", bytes(90_000))), Reason.BAD_HEADER),
        (sound(form()), Reason.TRUNCATED_HEADER),
        (sound(form(), chunk(b"LIST", bytes(9), 99)), Reason.TRUNCATED_HEADER),
        (sound(chunk(b"ds64", bytes(8)), form(), magic=b"RF64"), Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize("hostile", [chunk(b"JUNK", b"") * 100_000, chunk(b"JUNK", bytes(3000)) * 900, form() * 9000])
def test_hostile_chunks_end_at_the_step_limit(window_of: Open, hostile: bytes) -> None:
    window = window_of(sound(hostile))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == MAX_STEPS
    assert window.bytes_read <= 20 * MAX_STEPS
