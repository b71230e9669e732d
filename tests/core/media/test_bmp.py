"""Is a BMP's size the one of its bitmap header, whichever of the seven it has?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import bmp
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]
LONG = (40, 52, 56, 64, 108, 124)


def core(width: int = 40, height: int = 30, depth: int = 24) -> bytes:
    return struct.pack("<IHHHH", 12, width, height, 1, depth)


def info(
    width: int = 40, height: int = 30, depth: int = 24, *, length: int = 40, compression: int = 0, colours: int = 0
) -> bytes:
    head = struct.pack("<IiiHHIIiiII", length, width, height, 1, depth, compression, 0, 0, 0, colours, 0)
    return head.ljust(length, b"\0")


def file(header: bytes) -> bytes:
    return b"BM" + struct.pack("<IHHI", 14 + len(header), 0, 0, 14 + len(header)) + header


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        bmp.size(window)
    return gave_up.value.reason


def test_two_letters_match() -> None:
    assert bmp.matches(b"BM")
    assert not bmp.matches(b"BA")
    assert not bmp.matches(b"B")


@pytest.mark.parametrize("length", LONG)
def test_every_long_header(window_of: Open, length: int) -> None:
    assert bmp.size(window_of(file(info(317, 203, length=length)))) == Size(317, 203)


def test_the_short_header_has_sides_of_16_bits(window_of: Open) -> None:
    assert bmp.size(window_of(file(core(317, 203)))) == Size(317, 203)
    assert bmp.size(window_of(file(core(65_535, 2)))) == Size(65_535, 2)


@pytest.mark.parametrize("length", LONG)
def test_rows_from_the_top_down_have_a_negative_height(window_of: Open, length: int) -> None:
    assert bmp.size(window_of(file(info(317, -203, length=length)))) == Size(317, 203)
    assert bmp.size(window_of(file(info(4, -(2**24), length=length)))) == Size(4, 2**24)


@pytest.mark.parametrize("length", [0, 11, 13, 16, 39, 41, 2**32 - 1])
def test_no_other_length_is_a_header(window_of: Open, length: int) -> None:
    assert refusal(window_of(file(struct.pack("<I", length) + bytes(200)))) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (info(0, 30), Reason.BAD_HEADER),
        (info(40, 0), Reason.BAD_HEADER),
        (core(0, 30), Reason.BAD_HEADER),
        (info(-40, 30), Reason.TOO_MANY_PIXELS),
        (info(60_000, 60_000), Reason.TOO_MANY_PIXELS),
        (info(4, -(2**24) - 1), Reason.TOO_MANY_PIXELS),
        (info(depth=2), Reason.BAD_HEADER),
        (info(depth=64), Reason.BAD_HEADER),
        (info(compression=4), Reason.BAD_HEADER),
        (info(compression=5), Reason.BAD_HEADER),
        (info(depth=8, compression=3), Reason.BAD_HEADER),
        (info(depth=8, colours=65_537), Reason.BAD_HEADER),
    ],
)
def test_headers_that_the_engine_refuses(window_of: Open, header: bytes, reason: Reason) -> None:
    assert refusal(window_of(file(header))) is reason


@pytest.mark.parametrize("compression", [1, 2])
def test_run_lengths_and_palettes(window_of: Open, compression: int) -> None:
    header = info(depth=8, compression=compression, colours=65_536)
    assert bmp.size(window_of(file(header))) == Size(40, 30)
    assert bmp.size(window_of(file(info(depth=16, compression=3, colours=2**32 - 1)))) == Size(40, 30)


@pytest.mark.parametrize("header", [core(), info(), info(length=124)])
def test_every_cut_of_the_header_is_a_truncation(window_of: Open, header: bytes) -> None:
    whole = file(header)
    for cut in range(2, len(whole)):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
    assert bmp.size(window_of(whole)) == Size(40, 30)


def test_a_bitmap_may_stand_anywhere(window_of: Open) -> None:
    window = window_of(b"x" * 1000 + info())
    assert bmp.bitmap_sides(window, 1000) == (40, 30)
    assert window.num_steps == 2
