"""Is an MP3 as long as its frames, counted or averaged, behind tags that may lie?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import mp3
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]

MPEG_1, MPEG_2, MPEG_2_5 = 3, 2, 0
LAYER_1, LAYER_2, LAYER_3 = 3, 2, 1


def head(
    *, version: int = MPEG_1, layer: int = LAYER_3, bits: int = 9, rate: int = 0, padding: int = 0, mono: bool = True
) -> bytes:
    second, third = 0xE0 | version << 3 | layer << 1 | 1, bits << 4 | rate << 2 | padding << 1
    return bytes([0xFF, second, third, 0xC0 if mono else 0])


def frame(num_bytes: int = 417, data: bytes = b"", **fields: int) -> bytes:
    """128 kbit/s at 44.1 kHz unless said otherwise: 417 bytes."""
    return (head(**fields) + data).ljust(num_bytes, b"\0")


def tag(length: int = 100, *, claims: int | None = None, footer: bool = False) -> bytes:
    said = length if claims is None else claims
    size = bytes(said >> shift & 0x7F for shift in (21, 14, 7, 0))
    return b"ID3\4\0" + bytes([0x10 if footer else 0]) + size + bytes(length + (10 if footer else 0))


def counts(
    magic: bytes, num_frames: int | None, num_bytes: int | None = None, trims: tuple[int, int] | None = None
) -> bytes:
    flags = (num_frames is not None) | (num_bytes is not None) << 1 | (trims is not None) << 2
    fields = [struct.pack(">I", value) for value in (num_frames, num_bytes) if value is not None]
    fields += [bytes(100)] if trims else []
    lame = b"LAME3.100" + bytes(12) + (trims[0] << 12 | trims[1]).to_bytes(3, "big") if trims else b""
    return magic + struct.pack(">I", flags) + b"".join(fields) + lame


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        mp3.sound(window)
    return gave_up.value.reason


def seconds(num_frames: int, num_samples: int = 1152, rate: int = 44_100) -> float:
    return num_frames * num_samples / rate


def test_what_matches() -> None:
    assert mp3.matches(tag())
    assert mp3.matches(frame())
    assert mp3.matches(frame(layer=LAYER_1))
    assert not mp3.matches(b"\xff\xf1\x50\x80")
    assert not mp3.matches(b"\xff\xd8\xff\xe0")
    assert not mp3.matches(frame(bits=0))
    assert not mp3.matches(frame(bits=15))
    assert not mp3.matches(frame(rate=3))
    assert not mp3.matches(frame(version=1))


@pytest.mark.parametrize(
    ("fields", "num_bytes", "expected"),
    [
        ({}, 417, Sound(seconds(10), 44_100, 1)),
        ({"padding": 1, "mono": False}, 418, Sound(seconds(10), 44_100, 2)),
        ({"rate": 1, "bits": 14}, 960, Sound(seconds(10, rate=48_000), 48_000, 1)),
        ({"rate": 2, "bits": 1}, 144, Sound(seconds(10, rate=32_000), 32_000, 1)),
        ({"version": MPEG_2, "bits": 8}, 208, Sound(seconds(10, 576, 22_050), 22_050, 1)),
        ({"version": MPEG_2_5, "rate": 2, "bits": 1}, 72, Sound(seconds(10, 576, 8000), 8000, 1)),
        ({"layer": LAYER_2, "bits": 8}, 417, Sound(seconds(10), 44_100, 1)),
        ({"layer": LAYER_2, "version": MPEG_2, "bits": 8}, 417, Sound(seconds(10, 1152, 22_050), 22_050, 1)),
        ({"layer": LAYER_1, "bits": 4}, 136, Sound(seconds(10, 384), 44_100, 1)),
    ],
)
def test_the_frames_of_every_kind(window_of: Open, fields: dict[str, int], num_bytes: int, expected: Sound) -> None:
    one = frame(num_bytes, **fields)
    assert mp3.sound(window_of(one * 10)) == expected
    assert mp3.sound(window_of(tag() + one * 10 + b"TAG".ljust(128, b"\0"))) == expected
    assert mp3.sound(window_of(one)) == Sound(expected.duration_s / 10, expected.sample_rate, expected.num_channels)
    # The last frame is cut.
    assert mp3.sound(window_of((one * 11)[:-1])) == expected


def test_a_variable_rate_is_averaged(window_of: Open) -> None:
    mixed = frame(417) + frame(208, bits=5)
    assert mp3.sound(window_of(mixed * 20)) == Sound(seconds(40), 44_100, 1)
    long = window_of(mixed * 4000)
    assert mp3.sound(long) == Sound(seconds(8000), 44_100, 1)
    assert long.num_steps < 140
    assert mp3.sound(window_of(mixed * 20 + b"APETAGEX" + bytes(300))) == Sound(seconds(40), 44_100, 1)


@pytest.mark.parametrize("magic", [b"Xing", b"Info"])
@pytest.mark.parametrize(
    ("fields", "skip", "num_samples"),
    [
        ({}, 17, 1152),
        ({"mono": False}, 32, 1152),
        ({"version": MPEG_2}, 9, 576),
        ({"version": MPEG_2, "mono": False}, 17, 576),
    ],
)
def test_frames_that_are_counted(
    window_of: Open, magic: bytes, fields: dict[str, int], skip: int, num_samples: int
) -> None:
    rate = 22_050 if "version" in fields else 44_100
    num_bytes = 417 if rate == 44_100 else 261
    rest = frame(num_bytes, **fields) * 2

    def first(data: bytes) -> bytes:
        return frame(num_bytes, bytes(skip) + data, **fields)

    content = first(counts(magic, 1000)) + rest
    assert mp3.sound(window_of(content)).duration_s == 1000 * num_samples / rate
    content = tag() + first(counts(magic, 1000, len(content), (576, 1000))) + rest
    assert mp3.sound(window_of(content)).duration_s == (1000 * num_samples - 1576) / rate
    assert mp3.sound(window_of(content[:-1])).reason is Reason.TRUNCATED_HEADER
    assert mp3.sound(window_of(first(counts(magic, None)) + rest)).duration_s == 3 * num_samples / rate
    assert mp3.sound(window_of(first(counts(magic, 1, None, (4000, 4000))) + rest)).duration_s == 0


def test_fraunhofers_counts(window_of: Open) -> None:
    vbri = bytes(32) + b"VBRI" + struct.pack(">HHHII", 1, 0, 75, 417 * 3, 1000)
    content = frame(417, vbri) + frame() * 2
    assert mp3.sound(window_of(content)) == Sound(seconds(1000), 44_100, 1)
    assert mp3.sound(window_of(content[:-1])).reason is Reason.TRUNCATED_HEADER


def test_tags_are_skipped(window_of: Open) -> None:
    frames = frame() * 10
    for front in (tag(), tag(footer=True), tag(70_000), tag() + tag(5), bytes(50), tag() + b"\xff\xfb\x90" + bytes(20)):
        assert mp3.sound(window_of(front + frames)) == Sound(seconds(10), 44_100, 1)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"ID3\4", Reason.TRUNCATED_HEADER),
        (tag(100, claims=1 << 27) + frame() * 9, Reason.TRUNCATED_HEADER),
        (tag(100), Reason.TRUNCATED_HEADER),
        (b"ID3\4\0\0\xff\xff\xff\xff" + frame() * 9, Reason.BAD_HEADER),
        (tag() + b"fLaC" + bytes(99), Reason.UNKNOWN_FORMAT),
        (tag(5000) * 5 + frame() * 9, Reason.UNKNOWN_FORMAT),
        (tag() + bytes(5000) + frame() * 9, Reason.UNKNOWN_FORMAT),
        (frame()[:-1], Reason.TRUNCATED_HEADER),
        (frame() + head()[:3], Reason.TRUNCATED_HEADER),
        (frame() + frame(rate=1), Reason.UNKNOWN_FORMAT),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize(
    ("hostile", "num_steps"),
    [
        (tag(0) * 9 + b"\xff" * 400_000, 6),
        (tag() + b"\xff\xfb\x90" * 100 + b"\xff" * 400_000, 110),
        (tag() + (head() + b"\0") * 90_000, MAX_STEPS),
        (head() + b"\xff\xfb" * 200_000, 10),
    ],
)
def test_hostile_frames_end_at_the_limits(window_of: Open, hostile: bytes, num_steps: int) -> None:
    window = window_of(hostile)
    assert refusal(window) in {Reason.UNKNOWN_FORMAT, Reason.HEADER_LIMIT}
    assert window.num_steps <= num_steps
    assert window.bytes_read <= 4096 + 10 * MAX_STEPS
