"""Is a GIF's size that of its first frame's canvas?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import gif
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]


def screen(width: int = 40, height: int = 30, flags: int = 0) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", width, height, flags, 0, 0)


def frame(width: int = 40, height: int = 30, left: int = 0, top: int = 0) -> bytes:
    return b"," + struct.pack("<HHHHB", left, top, width, height, 0)


COMMENT = b"!\xfe\x05hello\x03abc\0"
CONTROL = b"!\xf9\x04\0\0\0\0\0"


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        gif.size(window)
    return gave_up.value.reason


def test_both_versions_match() -> None:
    assert gif.matches(b"GIF87a")
    assert gif.matches(b"GIF89a,")
    assert not gif.matches(b"GIF88a")
    assert not gif.matches(b"GIF89")


@pytest.mark.parametrize("flags", [0x00, 0x07, 0x80, 0xF7])
def test_the_colour_table_is_jumped_over(window_of: Open, flags: int) -> None:
    colours = b"," * (3 << ((flags & 7) + 1)) if flags & 0x80 else b""
    assert gif.size(window_of(screen(flags=flags) + colours + COMMENT + CONTROL + frame(4, 3))) == Size(40, 30)


def test_a_frame_beyond_the_screen_stretches_it(window_of: Open) -> None:
    assert gif.size(window_of(screen() + frame(40, 30, 5, 0))) == Size(45, 30)
    assert gif.size(window_of(screen() + frame(10, 90))) == Size(40, 90)
    assert gif.size(window_of(screen(0, 0) + frame())) == Size(40, 30)


def test_later_frames_do_not_count(window_of: Open) -> None:
    assert gif.size(window_of(screen() + frame() + b"\x02\0" + frame(400, 300))) == Size(40, 30)


def test_junk_between_blocks_is_passed_over(window_of: Open) -> None:
    assert gif.size(window_of(screen() + b"\0\0junk" + COMMENT + b"\0" + frame())) == Size(40, 30)


def test_refusals(window_of: Open) -> None:
    assert refusal(window_of(screen() + b";")) is Reason.BAD_HEADER
    assert refusal(window_of(screen(0, 30) + frame(0, 30))) is Reason.BAD_HEADER
    assert refusal(window_of(screen(65_535, 65_535) + frame())) is Reason.TOO_MANY_PIXELS
    assert refusal(window_of(screen(1, 65_535) + frame(65_535, 1))) is Reason.TOO_MANY_PIXELS


def test_every_cut_before_the_frame_is_a_truncation(window_of: Open) -> None:
    whole = screen(flags=0x80) + bytes(6) + COMMENT + CONTROL + frame()
    for cut in range(6, len(whole) - 1):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER


@pytest.mark.parametrize("hostile", [b"!\xfe" + b"\x01x" * 200_000, b"!\xfe\0" * 200_000, b"j" * 200_000])
def test_hostile_blocks_end_at_the_step_limit(window_of: Open, hostile: bytes) -> None:
    window = window_of(screen() + hostile + b"\0" + frame())
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == gif.MAX_STEPS == 1024
    assert window.bytes_read < 8192
