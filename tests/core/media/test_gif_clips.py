"""Is a GIF that is given as a clip as long as its frames are shown?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import gif
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import Clip
from tessera.core.media.window import Window

Open = Callable[..., Window]


def screen(width: int = 40, height: int = 30, flags: int = 0) -> bytes:
    colours = bytes(3 << ((flags & 7) + 1)) if flags & 0x80 else b""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, flags, 0, 0) + colours


def frame(flags: int = 0, data: bytes = b"\3abc\2de\0") -> bytes:
    colours = bytes(3 << ((flags & 7) + 1)) if flags & 0x80 else b""
    return b"," + struct.pack("<HHHHB", 0, 0, 400, 300, flags) + colours + b"\2" + data


def delay(hundredths: int) -> bytes:
    return b"!\xf9\x04\0" + struct.pack("<H", hundredths) + b"\0\0"


COMMENT = b"!\xfe\x05hello\0"
LOOP = b"!\xff\x0bNETSCAPE2.0\x03\1\0\0\0"


@pytest.mark.parametrize(
    ("frames", "num_frames", "duration_s"),
    [
        (frame(), 1, 0.1),
        (delay(50) + frame(), 1, 0.5),
        (LOOP + (delay(5) + frame()) * 20, 20, 1.0),
        ((delay(0) + frame()) * 20, 20, 2.0),
        ((delay(1) + frame()) * 20, 20, 2.0),
        ((delay(2) + frame()) * 20, 20, 0.4),
        (delay(30) + frame() + COMMENT + frame(0x87) + delay(60) + COMMENT + frame(), 3, 1.0),
        (delay(20) + frame(data=b"\0"), 1, 0.2),
        (b"\0\0" + delay(20) + frame(), 1, 0.2),
        (b"!\xf9\x06\0\x14\0\0\0\0\0" + frame(), 1, 0.2),
    ],
)
@pytest.mark.parametrize("flags", [0, 0xF7])
def test_frames_and_delays(window_of: Open, frames: bytes, num_frames: int, duration_s: float, flags: int) -> None:
    found = gif.clip(window_of(screen(flags=flags) + frames + b";"))
    assert (found.width, found.height, found.num_frames, found.reason) == (40, 30, num_frames, None)
    assert found.duration_s == pytest.approx(duration_s)
    assert found.fps == pytest.approx(num_frames / duration_s)


def test_every_cut_keeps_the_size(window_of: Open) -> None:
    whole = screen(flags=0x80) + delay(20) + frame() + COMMENT + frame() + b";"
    for cut in range(13, len(whole)):
        assert gif.clip(window_of(whole[:cut])) == Clip(40, 30, reason=Reason.TRUNCATED_HEADER)


@pytest.mark.parametrize("content", [screen() + b";", screen(0, 30) + frame() + b";", screen(0, 30) + frame()])
def test_refusals(window_of: Open, content: bytes) -> None:
    with pytest.raises(Unsized) as gave_up:
        gif.clip(window_of(content))
    assert gave_up.value.reason is Reason.BAD_HEADER


def test_large_frames_are_counted_as_far_as_the_window_goes(window_of: Open) -> None:
    large = delay(10) + frame(data=(b"\xff" + bytes(255)) * 60 + b"\0")
    assert gif.clip(window_of(screen() + large * 16 + b";")).num_frames == 16
    window = window_of(screen() + large * 40 + b";")
    assert gif.clip(window) == Clip(40, 30, reason=Reason.HEADER_LIMIT)
    assert window.bytes_read <= 256 << 10


@pytest.mark.parametrize(
    "hostile", [b"!\xfe" + b"\1x" * 300_000, b"!\xfe\0" * 200_000, b"j" * 300_000, frame() * 40_000]
)
def test_hostile_blocks_end_at_the_step_limit(window_of: Open, hostile: bytes) -> None:
    window = window_of(screen() + hostile)
    assert gif.clip(window) == Clip(40, 30, reason=Reason.HEADER_LIMIT)
    assert window.num_steps == gif.MAX_CLIP_STEPS
    assert window.bytes_read <= 64 << 10
