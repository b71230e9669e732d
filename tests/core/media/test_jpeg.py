"""Is a JPEG's size the one that the engine sees, whatever stands between its segments?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import jpeg
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

SOI, SOS, EOI = b"\xff\xd8", b"\xff\xda\0\x08\1\1\0\0\x3f\0", b"\xff\xd9"
XMP = b"http://ns.adobe.com/xap/1.0/\0"
SOFS = [0xC0, 0xC1, 0xC2, 0xC3, 0xC5, 0xC6, 0xC7, 0xC9, 0xCA, 0xCB, 0xCD, 0xCE, 0xCF]
Open = Callable[..., Window]
Exif = Callable[..., bytes]


def segment(marker: int, data: bytes = b"") -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


def sof(width: int = 40, height: int = 30, marker: int = 0xC0, depth: int = 8, components: int = 3) -> bytes:
    return segment(marker, struct.pack(">BHHB", depth, height, width, components) + b"\1\x11\0" * components)


def exif_segment(block: bytes) -> bytes:
    return segment(0xE1, b"Exif\0\0" + block)


def file(*parts: bytes) -> bytes:
    return SOI + b"".join(parts) + SOS + bytes(20) + EOI


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        jpeg.size(window)
    return gave_up.value.reason


def test_the_signature_is_three_bytes() -> None:
    assert jpeg.matches(b"\xff\xd8\xff\xe0")
    assert not jpeg.matches(b"\xff\xd8")
    assert not jpeg.matches(b"\xff\xd9\xff\xe0")


@pytest.mark.parametrize("marker", [*SOFS, 0xDE])
@pytest.mark.parametrize("components", [1, 3, 4])
def test_every_frame_header(window_of: Open, marker: int, components: int) -> None:
    assert jpeg.size(window_of(file(sof(marker=marker, components=components)))) == Size(40, 30)


@pytest.mark.parametrize("marker", [0xC4, 0xCC, 0xDB, 0xDD, 0xE0, 0xEF, 0xFE])
def test_other_segments_are_no_frames(window_of: Open, marker: int) -> None:
    decoy = segment(marker, sof(9, 9)[4:])
    assert jpeg.size(window_of(file(decoy, sof(), decoy))) == Size(40, 30)


def test_the_last_frame_header_before_the_scan_counts(window_of: Open) -> None:
    assert jpeg.size(window_of(file(sof(9, 9), sof()) + sof(5, 5))) == Size(40, 30)


@pytest.mark.parametrize("orientation", range(10))
def test_exif_before_or_behind_the_frame(window_of: Open, exif_block: Exif, orientation: int) -> None:
    seen = Size(30, 40) if 5 <= orientation <= 8 else Size(40, 30)
    for order in "<>":
        exif = exif_segment(exif_block(orientation, order=order))
        assert jpeg.size(window_of(file(exif, sof()))) == seen
        assert jpeg.size(window_of(file(segment(0xE0, b"JFIF\0"), sof(), exif))) == seen


def test_exif_behind_the_scan_is_not_seen(window_of: Open, exif_block: Exif) -> None:
    assert jpeg.size(window_of(file(sof()) + exif_segment(exif_block(6)))) == Size(40, 30)


def test_a_thumbnail_inside_exif_is_not_seen(window_of: Open, exif_block: Exif) -> None:
    thumbnail = file(exif_segment(exif_block(1)), sof(16, 12))
    assert jpeg.size(window_of(file(exif_segment(exif_block(6) + thumbnail), sof()))) == Size(30, 40)


def test_an_exif_block_in_two_segments_is_one_block(window_of: Open, exif_block: Exif) -> None:
    block = exif_block(6)
    for cut in range(1, len(block)):
        parts = exif_segment(block[:cut]), exif_segment(block[cut:])
        assert jpeg.size(window_of(file(*parts, sof()))) == Size(30, 40)


def test_many_long_segments_are_jumped_over(window_of: Open, exif_block: Exif) -> None:
    colours = segment(0xE2, b"ICC_PROFILE\0" + bytes(65_000)) * 40
    window = window_of(file(colours, exif_segment(exif_block(6)), colours, sof()))
    assert jpeg.size(window) == Size(30, 40)
    assert window.bytes_read < 600


def test_xmp_counts_where_exif_has_no_orientation(window_of: Open, exif_block: Exif) -> None:
    turned = segment(0xE1, XMP + bytes(9000) + b"<tiff:Orientation>8</tiff:Orientation>")
    upright = segment(0xE1, XMP + b'tiff:Orientation="1"')
    assert jpeg.size(window_of(file(turned, sof()))) == Size(30, 40)
    assert jpeg.size(window_of(file(upright, turned, sof()))) == Size(30, 40)
    assert jpeg.size(window_of(file(turned, upright, sof()))) == Size(40, 30)
    assert jpeg.size(window_of(file(turned, exif_segment(exif_block(1)), sof()))) == Size(40, 30)
    assert jpeg.size(window_of(file(turned, exif_segment(b"no TIFF at all"), sof()))) == Size(40, 30)
    assert jpeg.size(window_of(file(turned, exif_segment(b""), sof()))) == Size(30, 40)


@pytest.mark.parametrize(
    "between",
    [
        b"\xff",
        b"\xff" * 5000,
        b"junk",
        b"j" * 5000 + b"\xff",
        b"\xff\0",
        b"\xff\xd0\xff\xd7",
        b"\xff\xd8",
        b"\xff\xd9",
        b"\xff\xf0\xff\xc8",
        segment(0xFE),
        b"\xff\xfe\0\0",
        b"\xff\xfe\0\x01",
    ],
)
def test_what_may_stand_between_segments(window_of: Open, between: bytes) -> None:
    assert jpeg.size(window_of(file(between, segment(0xFE, b"c"), between, sof(), between))) == Size(40, 30)


@pytest.mark.parametrize(
    "parts",
    [
        (),
        (sof(0, 30),),
        (sof(40, 0),),
        (sof(depth=12),),
        (sof(components=2),),
        (sof(components=5),),
        (segment(0xC0, b"\x08\0\x1e\0"),),
        (b"\xff\x01", sof()),
        (b"\xff\xbf", sof()),
    ],
)
def test_headers_that_no_decoder_accepts(window_of: Open, parts: tuple[bytes, ...]) -> None:
    assert refusal(window_of(file(*parts))) is Reason.BAD_HEADER


def test_too_many_pixels(window_of: Open) -> None:
    assert jpeg.size(window_of(file(sof(13_377, 13_377)))) == Size(13_377, 13_377)
    assert refusal(window_of(SOI + sof(13_378, 13_378))) is Reason.TOO_MANY_PIXELS


def test_every_cut_before_the_scan_is_a_truncation(window_of: Open, exif_block: Exif) -> None:
    whole = file(b"junk\xff", segment(0xDB, bytes(65)), sof(), exif_segment(exif_block(6)))
    for cut in range(3, whole.index(SOS) + 4):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER


@pytest.mark.parametrize(
    ("hostile", "num_steps"),
    [
        (b"\xff" * (4 << 20), 100),
        (segment(0xFE) * 200_000, 4096),
        (exif_segment(b"") * 200_000, 4096),
        (b"j" * (4 << 20), 100),
        (b"j\xff\0" * 200_000, 4096),
    ],
)
def test_hostile_headers_end_at_a_limit(window_of: Open, hostile: bytes, num_steps: int) -> None:
    window = window_of(file(hostile, sof()))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.bytes_read <= 256 * 1024
    assert window.num_steps <= num_steps


def test_a_directory_scattered_over_many_segments_ends_at_the_step_limit(window_of: Open) -> None:
    scattered = exif_segment(b"II*\0\x08\0\0\0\xff\xff") + exif_segment(b"\1") * 400
    window = window_of(file(sof(), scattered))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == jpeg.MAX_STEPS == 1024


def test_a_limit_set_lower_is_a_limit(window_of: Open) -> None:
    assert refusal(window_of(file(sof()), max_steps=2)) is Reason.HEADER_LIMIT
    assert refusal(window_of(file(sof()), max_bytes=8)) is Reason.HEADER_LIMIT
