"""Is a PNM's size that of its first two numbers, wherever comments stand?"""

from collections.abc import Callable

import pytest

from tessera.core.media import pnm
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        pnm.size(window)
    return gave_up.value.reason


@pytest.mark.parametrize("magic", [b"P1", b"P2", b"P3", b"P4", b"P5", b"P6", b"Pf", b"PyP", b"PyRGBA", b"PyCMYK"])
@pytest.mark.parametrize("space", [b" ", b"\t", b"\n", b"\v", b"\f", b"\r"])
def test_every_kind(window_of: Open, magic: bytes, space: bytes) -> None:
    header = magic + space + b"317" + space + b"203" + space + b"255" + space
    assert pnm.matches(header[:7])
    assert pnm.size(window_of(header)) == Size(317, 203)


def test_what_is_none() -> None:
    for first_bytes in (b"P", b"P6", b"P0 ", b"P7 332\n", b"P6x", b"P6#", b"PF ", b"p6 ", b"PyX "):
        assert not pnm.matches(first_bytes)
    assert pnm.matches(b"P0CMYK1")


@pytest.mark.parametrize(
    "header",
    [
        b"P6\n# made by hand\n317 203\n255\n",
        b"P6\n#\n#\r#\n317 #\n203\n255\n",
        b"P6 31#inside a number\n7 203 255 ",
        b"P6 #317\n317 #\n#\n20#x\n3 255 ",
        b"P6" + b" \t\r\n" * 200 + b"317\n203\n255\n",
        b"P6\n#" + b"long" * 3000 + b"\n317 203 255\n",
        b"P5 000317 0000000203 65535\n",
        b"P1 317 203 ",
        b"P4\n317 203\n# the pixels\n",
    ],
)
def test_comments_and_white_space(window_of: Open, header: bytes) -> None:
    assert pnm.size(window_of(header)) == Size(317, 203)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"P6 0 203 255 ", Reason.BAD_HEADER),
        (b"P6 317 -203 255 ", Reason.BAD_HEADER),
        (b"P6 three 203 255 ", Reason.BAD_HEADER),
        (b"P6 3.0 203 255 ", Reason.BAD_HEADER),
        (b"P6 317 203 0 ", Reason.BAD_HEADER),
        (b"P6 317 203 65536 ", Reason.BAD_HEADER),
        (b"P6 00000000317 203 255 ", Reason.BAD_HEADER),
        (b"P6 " + b"9" * 5000 + b" 203 255 ", Reason.BAD_HEADER),
        (b"P6 60000 60000 255 ", Reason.TOO_MANY_PIXELS),
        (b"P1 4294967296 1 ", Reason.TOO_MANY_PIXELS),
    ],
)
def test_headers_that_the_engine_refuses(window_of: Open, header: bytes, reason: Reason) -> None:
    assert refusal(window_of(header)) is reason


@pytest.mark.parametrize("header", [b"P6\n# a comment\n317 203\n255\n", b"P1 317 203 "])
def test_a_number_that_may_be_cut_is_none(window_of: Open, header: bytes) -> None:
    for cut in range(3, len(header)):
        assert refusal(window_of(header[:cut])) is Reason.TRUNCATED_HEADER
    assert pnm.size(window_of(header)) == Size(317, 203)


@pytest.mark.parametrize(
    "header",
    [b"P6\n#" + b"x" * (4 << 20), b"P6\n" + b"#\n" * 100_000, b"P6\n" + b" " * 400_000, b"P6 1" + b"#\n" * 9000],
)
def test_long_headers_end_at_their_limit(window_of: Open, header: bytes) -> None:
    window = window_of(header)
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == 3
    assert window.bytes_read < pnm.MAX_HEADER_BYTES + 300
