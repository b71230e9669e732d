"""Is a PNG's size the one that the engine sees, orientation and refusals included?"""

import struct
import zlib
from collections.abc import Callable

import pytest

from tessera.core.media import png
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

MAGIC = b"\x89PNG\r\n\x1a\n"
Open = Callable[..., Window]
Exif = Callable[..., bytes]


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def ihdr(width: int = 40, height: int = 30, depth: int = 8, colour: int = 2) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0))


def fctl() -> bytes:
    return chunk(b"fcTL", struct.pack(">5I2H2B", 0, 40, 30, 0, 0, 1, 10, 0, 0))


IDAT, IEND = chunk(b"IDAT", b"pixels"), chunk(b"IEND")


def file(*chunks: bytes) -> bytes:
    return MAGIC + b"".join(chunks)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        png.size(window)
    return gave_up.value.reason


def test_only_the_whole_signature_matches() -> None:
    assert png.matches(MAGIC + b"more")
    assert not png.matches(MAGIC[:7])
    assert not png.matches(b"\x89PNG\n\r\x1a\n")


def test_plain(window_of: Open) -> None:
    assert png.size(window_of(file(ihdr(), IDAT, IDAT, IEND))) == Size(40, 30)


def test_apples_chunk_before_the_header_is_passed_over(window_of: Open) -> None:
    assert png.size(window_of(file(chunk(b"CgBI", b"\x50\0\x20\x02"), ihdr(), IDAT, IEND))) == Size(40, 30)


@pytest.mark.parametrize("orientation", range(10))
def test_exif_before_or_behind_the_pixels(window_of: Open, exif_block: Exif, orientation: int) -> None:
    seen = Size(30, 40) if 5 <= orientation <= 8 else Size(40, 30)
    exif = chunk(b"eXIf", exif_block(orientation))
    assert png.size(window_of(file(ihdr(), exif, IDAT, IEND))) == seen
    assert png.size(window_of(file(ihdr(), IDAT, IDAT, exif, IEND))) == seen


def test_the_last_exif_counts(window_of: Open, exif_block: Exif) -> None:
    turned, upright = chunk(b"eXIf", exif_block(6)), chunk(b"eXIf", exif_block(1))
    assert png.size(window_of(file(ihdr(), turned, IDAT, upright, IEND))) == Size(40, 30)
    assert png.size(window_of(file(ihdr(), upright, IDAT, turned, IEND))) == Size(30, 40)


def test_exif_behind_the_end_is_not_seen(window_of: Open, exif_block: Exif) -> None:
    late = chunk(b"eXIf", exif_block(6))
    assert png.size(window_of(file(ihdr(), IDAT, IEND, late))) == Size(40, 30)
    assert png.size(window_of(file(ihdr(), IDAT, b"\0\0\0\x01\xffbad", late))) == Size(40, 30)


@pytest.mark.parametrize("kind", [b"tEXt", b"zTXt"])
def test_a_profile_written_as_text(window_of: Open, exif_block: Exif, kind: bytes) -> None:
    block = b"Exif\0\0" + exif_block(8)
    text = b"\nexif\n%8d\n%s\n" % (len(block), b"\n".join(block.hex().encode()[at : at + 72] for at in (0, 72, 144)))
    data = text if kind == b"tEXt" else b"\0" + zlib.compress(text)
    profile = chunk(kind, b"Raw profile type exif\0" + data)
    assert png.size(window_of(file(ihdr(), profile, IDAT, IEND))) == Size(30, 40)
    upright = chunk(b"eXIf", exif_block(1))
    assert png.size(window_of(file(ihdr(), profile, IDAT, upright, IEND))) == Size(40, 30)


@pytest.mark.parametrize("is_packed", [False, True])
def test_xmp_counts_where_exif_has_no_orientation(window_of: Open, exif_block: Exif, *, is_packed: bool) -> None:
    packet = b'<rdf:Description tiff:Orientation="6"/>'
    body = b"\1\0en\0\0" + zlib.compress(packet) if is_packed else b"\0\0en\0\0" + packet
    xmp = chunk(b"iTXt", b"XML:com.adobe.xmp\0" + body)
    assert png.size(window_of(file(ihdr(), xmp, IDAT, IEND))) == Size(30, 40)
    assert png.size(window_of(file(ihdr(), xmp, chunk(b"eXIf", exif_block(1)), IDAT, IEND))) == Size(40, 30)


def test_broken_text_turns_nothing(window_of: Open) -> None:
    for text in (b"\0not zlib", b"\0" + zlib.compress(b"a\nb\nc\nnot hex"), b""):
        profile = chunk(b"zTXt", b"Raw profile type exif\0" + text)
        assert png.size(window_of(file(ihdr(), profile, IDAT, IEND))) == Size(40, 30)
    for text in (b"XML:com.adobe.xmp", b"XML:com.adobe.xmp\0", b"", b"no keyword"):
        assert png.size(window_of(file(ihdr(), chunk(b"iTXt", text), IDAT, IEND))) == Size(40, 30)


@pytest.mark.parametrize(
    ("num_frames", "is_frame", "is_seen"),
    [(2, True, False), (1, True, True), (1, False, False), (0, False, True), (0x80000001, True, True)],
)
def test_an_animation_is_read_to_its_second_frame(
    window_of: Open, exif_block: Exif, num_frames: int, *, is_frame: bool, is_seen: bool
) -> None:
    control = chunk(b"acTL", struct.pack(">II", num_frames, 0))
    first = fctl() if is_frame else b""
    late = chunk(b"eXIf", exif_block(6))
    raw = file(ihdr(), control, first, IDAT, fctl(), chunk(b"fdAT", bytes(8)), late, IEND)
    assert png.size(window_of(raw)) == (Size(30, 40) if is_seen else Size(40, 30))


@pytest.mark.parametrize(
    ("depth", "colour"), [(3, 0), (4, 2), (16, 3), (4, 4), (1, 6), (8, 1), (8, 5), (8, 7), (0, 0), (255, 255)]
)
def test_a_depth_that_does_not_exist_is_refused(window_of: Open, depth: int, colour: int) -> None:
    assert refusal(window_of(file(ihdr(depth=depth, colour=colour), IDAT, IEND))) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    "chunks",
    [
        (ihdr(0, 30), IDAT, IEND),
        (ihdr(40, 0), IDAT, IEND),
        (ihdr(), IEND),
        (IEND,),
        (IDAT, IEND),
        (chunk(b"IHDR", struct.pack(">IIBB", 40, 30, 8, 2)), IDAT, IEND),
        (ihdr(), b"\0\0\0\0\xff\xff\xff\xff", IDAT, IEND),
    ],
)
def test_headers_that_no_decoder_accepts(window_of: Open, chunks: tuple[bytes, ...]) -> None:
    assert refusal(window_of(file(*chunks))) is Reason.BAD_HEADER


def test_the_pixel_limit_is_inclusive(window_of: Open) -> None:
    assert png.size(window_of(file(ihdr(13_377, 13_377), IDAT, IEND))) == Size(13_377, 13_377)
    assert png.size(window_of(file(ihdr(178_956_970, 1), IDAT, IEND))) == Size(178_956_970, 1)
    assert refusal(window_of(file(ihdr(178_956_971, 1), IDAT, IEND))) is Reason.TOO_MANY_PIXELS


def test_too_many_pixels_are_refused_before_the_rest_is_walked(window_of: Open) -> None:
    for side in (60_000, 2**31, 2**32 - 1):
        window = window_of(file(ihdr(side, side)))
        assert refusal(window) is Reason.TOO_MANY_PIXELS
        assert (window.bytes_read, window.num_steps) == (21, 2)


@pytest.mark.parametrize("length", [2**31 - 1, 2**31, 2**32 - 13, 2**32 - 12, 2**32 - 1])
@pytest.mark.parametrize("kind", [b"IDAT", b"iCCP", b"eXIf", b"IHDR", b"zTXt"])
def test_a_chunk_longer_than_the_file(window_of: Open, kind: bytes, length: int) -> None:
    window = window_of(file(ihdr(), struct.pack(">I", length) + kind + bytes(100)))
    assert refusal(window) in {Reason.TRUNCATED_HEADER, Reason.BAD_HEADER}
    assert window.num_steps <= 5
    assert window.bytes_read <= 125


def test_empty_chunks_end_at_the_step_limit(window_of: Open) -> None:
    for kind in (b"aaaa", b"tEXt", b"acTL"):
        window = window_of(file(ihdr(), chunk(kind) * 100_000, IEND))
        assert refusal(window) is Reason.HEADER_LIMIT
        assert window.num_steps < 3 * png.MAX_OTHER_CHUNKS
        assert window.bytes_read < 8 * 1024


def test_pixels_in_pieces_of_changing_length_end_at_the_step_limit(window_of: Open) -> None:
    window = window_of(file(ihdr(), (chunk(b"IDAT") + chunk(b"IDAT", b"x")) * 50_000, IEND))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == png.MAX_STEPS == 2048
    assert window.bytes_read < 32 * 1024


@pytest.mark.parametrize("num_chunks", [1, 2, 3, 4, 7, 8, 9, 100, 4095, 4096, 20_000])
def test_pixels_in_pieces_of_one_length_are_leapt_over(window_of: Open, exif_block: Exif, num_chunks: int) -> None:
    run = chunk(b"IDAT", b"p" * 20) * num_chunks + chunk(b"IDAT", b"rest")
    window = window_of(file(ihdr(), run, chunk(b"eXIf", exif_block(6)), IEND))
    assert png.size(window) == Size(30, 40)
    assert window.num_steps < 150
    assert refusal(window_of(file(ihdr(), run))) is Reason.TRUNCATED_HEADER


def test_text_that_unpacks_to_more_than_may_be_looked_at(window_of: Open) -> None:
    bomb = chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(bytes(10_000_000)))
    window = window_of(file(ihdr(), bomb, IDAT, IEND))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.bytes_read <= 256 * 1024


def test_a_file_without_its_end_has_no_size(window_of: Open, exif_block: Exif) -> None:
    whole = file(ihdr(), IDAT, chunk(b"eXIf", exif_block(6)), IEND)
    for cut in range(len(MAGIC), len(whole) - 4):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
