"""Is a TIFF's size that of its first page as the engine turns it, wherever its directory stands?"""

import struct
from collections.abc import Callable, Sequence

import pytest

from tessera.core.media import tiff
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]
Entry = tuple[int, int, Sequence[int]]
TYPES = {1: "B", 2: "B", 3: "H", 4: "I", 6: "b", 7: "B", 8: "h", 9: "i", 13: "I", 16: "Q"}
WIDTH, LENGTH, ORIENTATION, XMP = 0x0100, 0x0101, 0x0112, 0x02BC


def sides(width: int = 40, height: int = 30, kind: int = 3) -> list[Entry]:
    return [(WIDTH, kind, [width]), (LENGTH, kind, [height])]


def xmp(orientation: int, kind: int = 1) -> Entry:
    return XMP, kind, f'<x:xmpmeta tiff:Orientation="{orientation}"/>'.encode()


def file(*found: Entry, order: str = "<", is_big: bool = False, gap: int = 0, mark: bytes | None = None) -> bytes:
    """One directory behind ``gap`` bytes; longer values behind it."""
    count, offset = ("Q", "Q") if is_big else ("H", "I")
    start = (16 if is_big else 8) + gap
    room = struct.calcsize(order + offset)
    entry_bytes = 4 + 2 * room
    behind = start + struct.calcsize(order + count) + len(found) * entry_bytes + room
    fields, elsewhere = b"", b""
    for tag, kind, values in found:
        data = struct.pack(f"{order}{len(values)}{TYPES[kind]}", *values)
        if len(data) > room:
            where = struct.pack(order + offset, behind + len(elsewhere))
            data, elsewhere = where, elsewhere + data
        fields += struct.pack(order + "HH" + offset, tag, kind, len(values)) + data.ljust(room, b"\0")
    mark = mark or struct.pack(order + "H", 43 if is_big else 42)
    head = (b"II" if order == "<" else b"MM") + mark + (struct.pack(order + "HH", 8, 0) if is_big else b"")
    directory = struct.pack(order + count, len(found)) + fields + bytes(room)
    return head + struct.pack(order + offset, start) + b"x" * gap + directory + elsewhere


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        tiff.size(window)
    return gave_up.value.reason


def test_six_signatures_match() -> None:
    for first_bytes in (b"II*\0", b"MM\0*", b"II\0*", b"MM*\0", b"II+\0", b"MM\0+"):
        assert tiff.matches(first_bytes)
    for first_bytes in (b"II*", b"II+*", b"MI*\0", b"II\0+", b"MM+\0"):
        assert not tiff.matches(first_bytes)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("gap", [0, 1, 700_000])
def test_the_directory_may_stand_anywhere(window_of: Open, order: str, gap: int) -> None:
    window = window_of(file(*sides(317, 203), order=order, gap=gap))
    assert tiff.size(window) == Size(317, 203)
    assert window.bytes_read < 100


@pytest.mark.parametrize(("order", "mark"), [("<", b"\0*"), (">", b"*\0"), (">", b"\0+")])
def test_a_misspelt_signature_is_read(window_of: Open, order: str, mark: bytes) -> None:
    assert tiff.size(window_of(file(*sides(), order=order, mark=mark))) == Size(40, 30)


@pytest.mark.parametrize("gap", [0, 700_000])
@pytest.mark.parametrize("kind", [3, 4, 16])
def test_a_bigtiff(window_of: Open, gap: int, kind: int) -> None:
    assert tiff.size(window_of(file(*sides(317, 203, kind), is_big=True, gap=gap))) == Size(317, 203)


def test_a_big_endian_bigtiff_is_refused(window_of: Open) -> None:
    assert refusal(window_of(file(*sides(), order=">", is_big=True))) is Reason.REFUSED_FORMAT


@pytest.mark.parametrize("is_big", [False, True])
@pytest.mark.parametrize("orientation", range(10))
def test_the_orientation_turns(window_of: Open, *, is_big: bool, orientation: int) -> None:
    seen = Size(30, 40) if 5 <= orientation <= 8 else Size(40, 30)
    turned = (ORIENTATION, 3, [orientation])
    assert tiff.size(window_of(file(*sides(), turned, is_big=is_big))) == seen
    assert tiff.size(window_of(file(turned, *sides(), is_big=is_big))) == seen
    if not is_big:
        assert tiff.size(window_of(file(*sides(), turned, order=">"))) == seen


@pytest.mark.parametrize("is_big", [False, True])
def test_xmp_counts_where_there_is_no_orientation(window_of: Open, *, is_big: bool) -> None:
    upright = (ORIENTATION, 3, [1])
    for kind in (1, 7):
        assert tiff.size(window_of(file(*sides(), xmp(6, kind), is_big=is_big))) == Size(30, 40)
    assert tiff.size(window_of(file(*sides(), xmp(6, kind=2), is_big=is_big))) == Size(40, 30), "text is no packet"
    assert tiff.size(window_of(file(*sides(), upright, xmp(6), is_big=is_big))) == Size(40, 30)
    assert tiff.size(window_of(file(*sides(), xmp(1), is_big=is_big))) == Size(40, 30)
    assert tiff.size(window_of(file(*sides(), (XMP, 1, b"x"), is_big=is_big))) == Size(40, 30)


def test_the_first_entry_of_a_tag_that_has_a_value_counts(window_of: Open) -> None:
    double = [*sides(40, 30), *sides(4, 3)]
    assert tiff.size(window_of(file(*double))) == Size(40, 30)
    assert tiff.size(window_of(file((WIDTH, 3, []), *double))) == Size(40, 30)
    assert tiff.size(window_of(file((WIDTH, 3, [40, 4]), *double[1:]))) == Size(40, 30)
    assert tiff.size(window_of(file((WIDTH, 3, [40, 4, 4]), *double[1:]))) == Size(40, 30)


def test_values_that_are_said_to_be_longer_than_the_file_are_passed_over(window_of: Open) -> None:
    whole = file(*sides(), (300, 3, [1, 2, 3]), xmp(6))
    assert tiff.size(window_of(whole)) == Size(30, 40)
    at = whole.index(struct.pack("<HHI", 300, 3, 3)) + 4
    lying = whole[:at] + struct.pack("<I", 2**31) + whole[at + 4 :]
    assert tiff.size(window_of(lying)) == Size(40, 30)


def test_later_pages_do_not_count(window_of: Open) -> None:
    first = file(*sides(40, 30))
    looped = first[:-4] + struct.pack("<I", 8)
    assert tiff.size(window_of(looped)) == Size(40, 30)
    window = window_of(first[:-4] + struct.pack("<I", len(first)) + file(*sides(4, 3))[8:])
    assert tiff.size(window) == Size(40, 30)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (file(), Reason.BAD_HEADER),
        (file(*sides()[:1]), Reason.BAD_HEADER),
        (file(*sides()[1:]), Reason.BAD_HEADER),
        (file(*sides(0, 30)), Reason.BAD_HEADER),
        (file(*sides(40, 30, kind=1)), Reason.BAD_HEADER),
        (file(*sides(-40, 30, kind=8)), Reason.BAD_HEADER),
        (file(*sides(60_000, 60_000)), Reason.TOO_MANY_PIXELS),
        (file(*sides(2**63, 1, kind=16), is_big=True), Reason.TOO_MANY_PIXELS),
        (b"II*\0\0\0\0\0" + file(*sides())[8:], Reason.BAD_HEADER),
        (b"II*\0\xff\xff\xff\xff" + file(*sides())[8:], Reason.TRUNCATED_HEADER),
        (b"II+\0\x08\0\0\0" + b"\xff" * 8 + bytes(100), Reason.TRUNCATED_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize("is_big", [False, True])
def test_a_cut_has_the_right_size_or_none(window_of: Open, *, is_big: bool) -> None:
    whole = file(*sides(), xmp(6), gap=10, is_big=is_big)
    for cut in range(4, len(whole)):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
    turned = file(*sides(), (ORIENTATION, 3, [6]), is_big=is_big)
    without_next = len(turned) - (8 if is_big else 4)
    for cut in range(4, without_next):
        assert refusal(window_of(turned[:cut])) is Reason.TRUNCATED_HEADER
    for cut in range(without_next, len(turned)):
        assert tiff.size(window_of(turned[:cut])) == Size(30, 40)


@pytest.mark.parametrize("is_big", [False, True])
def test_endless_directories_end_at_their_limit(window_of: Open, *, is_big: bool) -> None:
    window = window_of(file(*sides()[:1] * 60_000, is_big=is_big))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == 19
    assert window.bytes_read < 1024 * (20 if is_big else 12) + 40


def test_a_packet_longer_than_may_be_looked_at(window_of: Open) -> None:
    window = window_of(file(*sides(), (XMP, 1, bytes(300_000))))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps < 50
