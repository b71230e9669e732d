"""Is a JPEG 2000's size that of its image header, or of its SIZ marker?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import jpeg2000
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]
SIGNATURE = b"\0\0\0\x0cjP  \r\n\x87\n"


def box(kind: bytes, payload: bytes = b"") -> bytes:
    return struct.pack(">I", 8 + len(payload)) + kind + payload


def long_box(kind: bytes, payload: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">I4sQ", 1, kind, 16 + len(payload) if length is None else length) + payload


def ihdr(width: int = 40, height: int = 30, components: int = 3) -> bytes:
    return box(b"ihdr", struct.pack(">IIHBBBB", height, width, components, 7, 7, 0, 0))


def file(*inside: bytes, before: bytes = box(b"ftyp", b"jp2 \0\0\0\0jp2 ")) -> bytes:
    return (
        SIGNATURE + before + box(b"jp2h", b"".join(inside) + box(b"colr", b"\1\0\0\0\0\0\x10")) + box(b"jp2c", b"...")
    )


def stream(right: int = 40, bottom: int = 30, left: int = 0, top: int = 0, *, components: int = 3) -> bytes:
    siz = struct.pack(">HHIIII16xH", 38 + 3 * components, 0, right, bottom, left, top, components)
    return b"\xff\x4f\xff\x51" + siz + bytes(3 * components)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        jpeg2000.size(window)
    return gave_up.value.reason


def test_both_signatures_match() -> None:
    assert jpeg2000.matches(SIGNATURE)
    assert jpeg2000.matches(b"\xff\x4f\xff\x51")
    assert not jpeg2000.matches(SIGNATURE[:11])
    assert not jpeg2000.matches(b"\xff\x4f\xff\x52")


def test_a_bare_codestream(window_of: Open) -> None:
    assert jpeg2000.size(window_of(stream(317, 203))) == Size(317, 203)
    assert jpeg2000.size(window_of(stream(320, 210, 3, 7))) == Size(317, 203)


@pytest.mark.parametrize("components", [1, 2, 3, 4])
def test_the_image_header(window_of: Open, components: int) -> None:
    assert jpeg2000.size(window_of(file(ihdr(317, 203, components)))) == Size(317, 203)


def test_boxes_around_it(window_of: Open) -> None:
    assert jpeg2000.size(window_of(file(box(b"bpcc", b"777"), ihdr()))) == Size(40, 30)
    assert jpeg2000.size(window_of(file(ihdr(), before=box(b"free", bytes(100_000))))) == Size(40, 30)
    assert jpeg2000.size(window_of(file(ihdr(), before=long_box(b"uuid", bytes(100))))) == Size(40, 30)
    assert jpeg2000.size(window_of(SIGNATURE + long_box(b"jp2h", ihdr()))) == Size(40, 30)


def test_of_two_image_headers_the_last_counts(window_of: Open) -> None:
    assert jpeg2000.size(window_of(file(ihdr(4, 3), ihdr()))) == Size(40, 30)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (file(), Reason.BAD_HEADER),
        (file(ihdr(0, 30)), Reason.BAD_HEADER),
        (file(ihdr(components=0)), Reason.BAD_HEADER),
        (file(ihdr(components=5)), Reason.BAD_HEADER),
        (file(ihdr(60_000, 60_000)), Reason.TOO_MANY_PIXELS),
        (file(b"\0\0\0\7ihdr" + bytes(20)), Reason.BAD_HEADER),
        (file(b"\xff\xff\xff\xffihdr" + bytes(20)), Reason.BAD_HEADER),
        (file(long_box(b"ihdr", bytes(14), length=2**63)), Reason.BAD_HEADER),
        (SIGNATURE + long_box(b"free", length=2**63), Reason.TRUNCATED_HEADER),
        (SIGNATURE + long_box(b"free", length=15), Reason.BAD_HEADER),
        (SIGNATURE + b"\0\0\0\0free" + file(ihdr())[12:], Reason.TRUNCATED_HEADER),
        (SIGNATURE + box(b"free") * 20, Reason.TRUNCATED_HEADER),
        (stream(40, 30, 40, 0), Reason.BAD_HEADER),
        (stream(40, 30, 0, 31), Reason.BAD_HEADER),
        (stream(components=5), Reason.BAD_HEADER),
        (stream(60_000, 60_000), Reason.TOO_MANY_PIXELS),
        (b"\xff\x4f\xff\x51\0\x25" + bytes(60), Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize("content", [box(b"free") * 100_000, box(b"jp2h", ihdr() * 50_000)])
def test_endless_boxes_end_at_the_step_limit(window_of: Open, content: bytes) -> None:
    window = window_of(SIGNATURE + content)
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == jpeg2000.MAX_STEPS == 256


def test_every_cut_of_the_header_is_a_truncation(window_of: Open) -> None:
    whole = file(ihdr())
    needed = whole.index(b"jp2c") - 4
    for cut in range(12, needed):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
    assert jpeg2000.size(window_of(whole[:needed])) == Size(40, 30)
    for cut in range(4, 42):
        assert refusal(window_of(stream()[:cut])) is Reason.TRUNCATED_HEADER
