"""Is a QOI's size that of its header?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import qoi
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]


def file(width: int, height: int) -> bytes:
    return b"qoif" + struct.pack(">IIBB", width, height, 3, 0)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        qoi.size(window)
    return gave_up.value.reason


def test_the_signature_matches() -> None:
    assert qoi.matches(b"qoif")
    assert not qoi.matches(b"qoi")


def test_plain(window_of: Open) -> None:
    window = window_of(file(317, 203) + b"pixels")
    assert qoi.size(window) == Size(317, 203)
    assert (window.num_steps, window.bytes_read) == (1, 14)


@pytest.mark.parametrize(
    ("sides", "reason"),
    [
        ((0, 203), Reason.BAD_HEADER),
        ((317, 0), Reason.BAD_HEADER),
        ((60_000, 60_000), Reason.TOO_MANY_PIXELS),
        ((2**32 - 1, 1), Reason.TOO_MANY_PIXELS),
    ],
)
def test_sides_that_the_engine_refuses(window_of: Open, sides: tuple[int, int], reason: Reason) -> None:
    assert refusal(window_of(file(*sides))) is reason


def test_every_cut_of_the_header_is_a_truncation(window_of: Open) -> None:
    for cut in range(4, 14):
        assert refusal(window_of(file(317, 203)[:cut])) is Reason.TRUNCATED_HEADER
