"""Is an icon file as large as the picture in its largest entry?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import ico
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR" + struct.pack(">IIBBBBB", width, height, 8, 6, 0, 0, 0)


def bitmap(width: int, height: int) -> bytes:
    """A bitmap with its mask: twice as high as the icon."""
    return struct.pack("<IiiHHIIiiII", 40, width, 2 * height, 1, 32, 0, 0, 0, 0, 0, 0)


def entry(width: int, height: int, *, depth: int = 32, colours: int = 0) -> tuple[int, int, int, int]:
    return width % 256, height % 256, colours, depth


def file(*icons: tuple[tuple[int, int, int, int], bytes]) -> bytes:
    directory, pictures = b"", b""
    start = 6 + 16 * len(icons)
    for (width, height, colours, depth), picture in icons:
        directory += struct.pack("<BBBBHHII", width, height, colours, 0, 1, depth, len(picture), start + len(pictures))
        pictures += picture
    return b"\0\0\1\0" + struct.pack("<H", len(icons)) + directory + pictures


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        ico.size(window)
    return gave_up.value.reason


def test_the_type_matches() -> None:
    assert ico.matches(b"\0\0\1\0\1\0")
    assert not ico.matches(b"\0\0\2\0\1\0"), "a cursor"


@pytest.mark.parametrize("picture", [png, bitmap])
def test_the_largest_icon_counts(window_of: Open, picture: Callable[[int, int], bytes]) -> None:
    sizes = [(16, 16), (48, 32), (32, 40)]
    content = file(*((entry(*sides), picture(*sides)) for sides in sizes))
    assert ico.size(window_of(content)) == Size(48, 32)


def test_zero_stands_for_256(window_of: Open) -> None:
    content = file((entry(255, 255), png(255, 255)), (entry(256, 256), png(256, 256)))
    assert ico.size(window_of(content)) == Size(256, 256)


def test_the_picture_says_its_size_and_not_the_directory(window_of: Open) -> None:
    assert ico.size(window_of(file((entry(64, 64), png(317, 203))))) == Size(317, 203)
    assert ico.size(window_of(file((entry(64, 64), bitmap(317, 203))))) == Size(317, 203)


def test_of_equal_icons_the_one_of_fewest_bits_counts_and_then_the_first(window_of: Open) -> None:
    content = file((entry(32, 32), png(1, 1)), (entry(32, 32, depth=8), png(2, 2)), (entry(32, 32, depth=8), png(3, 3)))
    assert ico.size(window_of(content)) == Size(2, 2)
    by_colours = file((entry(32, 32, depth=8), png(1, 1)), (entry(32, 32, depth=0, colours=16), png(2, 2)))
    assert ico.size(window_of(by_colours)) == Size(2, 2)
    unknown = file((entry(32, 32, depth=0), png(1, 1)), (entry(32, 32), png(2, 2)))
    assert ico.size(window_of(unknown)) == Size(2, 2)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (file(), Reason.BAD_HEADER),
        (b"\0\0\1\0\xff\xff" + bytes(1 << 20), Reason.HEADER_LIMIT),
        (b"\0\0\1\0\x01\x01" + bytes(1 << 20), Reason.HEADER_LIMIT),
        (b"\0\0\1\0\0\1" + bytes(1 << 20), Reason.BAD_HEADER),
        (file((entry(32, 32), b"neither PNG nor bitmap, but long enough")), Reason.BAD_HEADER),
        (file((entry(32, 32), b"\x89PNG\r\n\x1a\n\0\0\0\x0dIDAT" + bytes(20))), Reason.BAD_HEADER),
        (file((entry(32, 32), png(0, 32))), Reason.BAD_HEADER),
        (file((entry(32, 32), bitmap(32, 0))), Reason.BAD_HEADER),
        (file((entry(32, 32), png(60_000, 60_000))), Reason.TOO_MANY_PIXELS),
        (file((entry(32, 32), png(32, 32)))[:18] + b"\xff\xff\xff\xff", Reason.TRUNCATED_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    window = window_of(content)
    assert refusal(window) is reason
    assert window.num_steps <= 5


@pytest.mark.parametrize("picture", [png, bitmap])
def test_a_cut_has_the_right_size_or_none(window_of: Open, picture: Callable[[int, int], bytes]) -> None:
    whole = file((entry(16, 16), picture(16, 16)), (entry(48, 32), picture(48, 32)))
    needed = len(whole) - len(picture(48, 32)) + (24 if picture is png else 40)
    for cut in range(4, needed):
        assert refusal(window_of(whole[:cut])) in {Reason.TRUNCATED_HEADER, Reason.BAD_HEADER}
    for cut in range(needed, len(whole) + 1):
        assert ico.size(window_of(whole[:cut])) == Size(48, 32)
