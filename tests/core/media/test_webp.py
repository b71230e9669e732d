"""Is a WebP's size its canvas, turned where its flags announce EXIF or XMP?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import webp
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]
Exif = Callable[..., bytes]
EXIF, XMP = 0x08, 0x04


def chunk(kind: bytes, data: bytes) -> bytes:
    return kind + struct.pack("<I", len(data)) + data + bytes(len(data) & 1)


def file(*chunks: bytes) -> bytes:
    body = b"WEBP" + b"".join(chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def lossy(width: int = 40, height: int = 30, start: bytes = b"\x9d\x01\x2a", tag: bytes = b"\x10\0\0") -> bytes:
    return chunk(b"VP8 ", tag + start + struct.pack("<HH", width, height) + bytes(9))


def lossless(width: int = 40, height: int = 30, start: bytes = b"\x2f") -> bytes:
    return chunk(b"VP8L", start + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(4))


def extended(flags: int, width: int = 40, height: int = 30) -> bytes:
    return chunk(
        b"VP8X", bytes([flags, 0, 0, 0]) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    )


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        webp.size(window)
    return gave_up.value.reason


def test_the_signature_has_a_gap() -> None:
    assert webp.matches(file(lossy())[:16])
    assert not webp.matches(file(lossy())[:15])
    assert not webp.matches(b"RIFF\0\0\0\0WAVEfmt ")
    assert not webp.matches(b"RIFF\0\0\0\0WEBPALPH")


@pytest.mark.parametrize(("width", "height"), [(1, 1), (40, 30), (16_383, 9_000), (7, 16_383)])
def test_simple_files(window_of: Open, width: int, height: int) -> None:
    assert webp.size(window_of(file(lossy(width, height)))) == Size(width, height)
    assert webp.size(window_of(file(lossless(width, height)))) == Size(width, height)


def test_scaling_bits_are_no_pixels(window_of: Open) -> None:
    assert webp.size(window_of(file(lossy(40 | 0x4000, 30 | 0x8000)))) == Size(40, 30)


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("prefix", [b"", b"Exif\0\0", b"Exif\0\0Exif\0\0"])
def test_exif_turns(window_of: Open, exif_block: Exif, orientation: int, prefix: bytes) -> None:
    seen = Size(30, 40) if 5 <= orientation <= 8 else Size(40, 30)
    exif = chunk(b"EXIF", prefix + exif_block(orientation))
    assert webp.size(window_of(file(extended(EXIF), chunk(b"ALPH", b"odd"), lossy(), exif))) == seen


def test_exif_counts_only_where_it_is_announced(window_of: Open, exif_block: Exif) -> None:
    exif = chunk(b"EXIF", exif_block(6))
    assert webp.size(window_of(file(extended(XMP), lossy(), exif))) == Size(40, 30)
    assert webp.size(window_of(file(lossy(), exif))) == Size(40, 30)
    assert webp.size(window_of(file(extended(EXIF), lossy()))) == Size(40, 30)


def test_the_first_exif_counts_and_xmp_only_without_it(window_of: Open, exif_block: Exif) -> None:
    turned, upright = chunk(b"EXIF", exif_block(6)), chunk(b"EXIF", exif_block(1))
    xmp = chunk(b"XMP ", b'tiff:Orientation="8"')
    assert webp.size(window_of(file(extended(EXIF), lossy(), turned, upright))) == Size(30, 40)
    assert webp.size(window_of(file(extended(EXIF), lossy(), upright, turned))) == Size(40, 30)
    assert webp.size(window_of(file(extended(XMP), lossy(), xmp))) == Size(30, 40)
    assert webp.size(window_of(file(extended(EXIF | XMP), lossy(), xmp, upright))) == Size(40, 30)


def test_what_stands_behind_the_stated_length_is_not_seen(window_of: Open, exif_block: Exif) -> None:
    assert webp.size(window_of(file(extended(EXIF), lossy()) + chunk(b"EXIF", exif_block(6)))) == Size(40, 30)


@pytest.mark.parametrize(
    "part",
    [
        lossy(0, 30),
        lossy(40, 0),
        lossy(start=b"\x9d\x01\x2b"),
        lossy(tag=b"\x11\0\0"),
        lossless(start=b"\x2e"),
    ],
)
def test_headers_that_no_decoder_accepts(window_of: Open, part: bytes) -> None:
    assert refusal(window_of(file(part))) is Reason.BAD_HEADER


def test_too_many_pixels(window_of: Open) -> None:
    assert refusal(window_of(file(extended(EXIF, 1 << 24, 1 << 24)))) is Reason.TOO_MANY_PIXELS
    assert webp.size(window_of(file(extended(0, 13_377, 13_377)))) == Size(13_377, 13_377)


def test_a_cut_has_the_right_size_or_none(window_of: Open, exif_block: Exif) -> None:
    whole = file(extended(EXIF), lossy(), chunk(b"EXIF", exif_block(6)))
    for cut in range(16, len(whole)):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
    plain = file(extended(0), lossy())
    for cut in range(16, len(plain)):
        if cut < 30:
            assert refusal(window_of(plain[:cut])) is Reason.TRUNCATED_HEADER
        else:
            assert webp.size(window_of(plain[:cut])) == Size(40, 30)


@pytest.mark.parametrize("length", [2**31, 2**32 - 1, 2**32 - 9])
def test_a_chunk_longer_than_the_file(window_of: Open, length: int) -> None:
    head = b"RIFF\xff\xff\xff\xffWEBP" + extended(EXIF)
    window = window_of(head + b"VP8 " + struct.pack("<I", length) + bytes(50))
    assert refusal(window) is Reason.TRUNCATED_HEADER
    assert window.num_steps <= 5


def test_empty_chunks_end_at_the_step_limit(window_of: Open) -> None:
    window = window_of(file(extended(EXIF), chunk(b"ANMF", b"") * 200_000))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == webp.MAX_STEPS == 512
    assert window.bytes_read < 64 * 1024
