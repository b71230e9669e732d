"""Which pictures were made to keep a parser busy? By name, with what becomes of each.

Tests pin the counters, bench/media.py measures the time.
"""

import struct
import zlib
from collections.abc import Callable
from typing import NamedTuple


class Hostile(NamedTuple):
    """One picture."""

    make: Callable[[], bytes]
    reason: str | None
    """Nothing where a size is found after all: 40x30."""
    num_steps: int
    """Of the window, the look at the first bytes included."""


def chunk(kind: bytes, data: bytes = b"") -> bytes:
    """A PNG's."""
    return struct.pack(">I", len(data)) + kind + data + bytes(4)


def png(*chunks: bytes, width: int = 40, height: int = 30) -> bytes:
    ihdr = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + ihdr + b"".join(chunks)


def segment(marker: int, data: bytes = b"") -> bytes:
    """A JPEG's."""
    return bytes((0xFF, marker)) + struct.pack(">H", len(data) + 2) + data


def jpeg(*parts: bytes) -> bytes:
    sof = segment(0xC0, struct.pack(">BHHB", 8, 30, 40, 3) + bytes(9))
    return b"\xff\xd8" + sof + b"".join(parts) + b"\xff\xda\0\2"


def webp(chunks: bytes) -> bytes:
    return b"RIFF\xff\xff\xff\xffWEBPVP8X\x0a\0\0\0\x0c\0\0\0\x27\0\0\x1d\0\0" + chunks


def gif(blocks: bytes) -> bytes:
    return b"GIF89a\x28\0\x1e\0\0\0\0" + blocks


def box(kind: bytes, data: bytes = b"") -> bytes:
    """An ISO file's."""
    return struct.pack(">I", 8 + len(data)) + kind + data


def avif(*boxes: bytes, brand: bytes = b"avif") -> bytes:
    return box(b"ftyp", brand + bytes(4) + brand) + b"".join(boxes)


def jp2(*boxes: bytes) -> bytes:
    return b"\0\0\0\x0cjP  \r\n\x87\n" + b"".join(boxes)


def tiff(num_entries: int, *entries: tuple[int, int, int, int]) -> bytes:
    fields = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    return b"II*\0\x08\0\0\0" + struct.pack("<H", num_entries) + fields


SIDES = (256, 4, 1, 40), (257, 4, 1, 30)
ENTRY = 300, 4, 1, 5
PIXELS = chunk(b"IDAT", b"pixels") + chunk(b"IEND")
PROFILE = b"Raw profile type exif\0"
EXIF_HEAD = b"Exif\0\0II*\0\x08\0\0\0\xff\xff"
HUGE = struct.pack(">I4sQ", 1, b"free", 2**63)

PICTURES = {
    "4 MB of fill bytes": Hostile(lambda: b"\xff\xd8\xff" + b"\xff" * (4 << 20), "header-limit", 73),
    "200,000 empty segments": Hostile(lambda: jpeg(segment(0xFE) * 200_000), "header-limit", 1024),
    "200,000 empty EXIF segments": Hostile(lambda: jpeg(segment(0xE1, b"Exif\0\0") * 200_000), "header-limit", 1024),
    "a directory in 400 segments": Hostile(
        lambda: jpeg(segment(0xE1, EXIF_HEAD), segment(0xE1, b"Exif\0\0\1") * 400), "header-limit", 1024
    ),
    "a directory of 65,535 entries": Hostile(
        lambda: jpeg(segment(0xE1, EXIF_HEAD), segment(0xE1, b"Exif\0\0" + b"\1" * 60_000) * 14), "header-limit", 70
    ),
    "markers without length": Hostile(lambda: jpeg(b"\xff\xd0" * 1_000_000), "header-limit", 1024),
    "fill and junk in turn": Hostile(lambda: jpeg(b"\xff\xff\0\1" * 1_000_000), "header-limit", 1024),
    "60000x60000": Hostile(lambda: png(width=60_000, height=60_000), "too-many-pixels", 3),
    "200,000 empty chunks": Hostile(lambda: png(chunk(b"aaaa") * 200_000), "header-limit", 259),
    "200,000 text chunks": Hostile(lambda: png(chunk(b"tEXt", b"k" * 80) * 200_000), "header-limit", 514),
    "200,000 empty pixel chunks": Hostile(lambda: png(chunk(b"IDAT") * 200_000, chunk(b"IEND")), None, 85),
    "pixel chunks of two lengths": Hostile(
        lambda: png((chunk(b"IDAT") + chunk(b"IDAT", b"x")) * 100_000), "header-limit", 2048
    ),
    "text that unpacks to 64 MB": Hostile(
        lambda: png(chunk(b"zTXt", PROFILE + b"\0" + zlib.compress(bytes(64 << 20))), PIXELS), "header-limit", 8
    ),
    "a profile of 200,000 lines": Hostile(lambda: png(chunk(b"tEXt", PROFILE + b"\n" * 200_000), PIXELS), None, 8),
    "an eXIf chunk of 65,535 entries": Hostile(
        lambda: png(chunk(b"eXIf", EXIF_HEAD[6:] + b"\1" * 800_000), PIXELS), "header-limit", 25
    ),
    "200,000 blocks of one byte": Hostile(lambda: gif(b"!\xfe" + b"\1x" * 200_000), "header-limit", 1024),
    "20,000 blocks of 255 bytes": Hostile(
        lambda: gif(b"!\xfe" + (b"\xff" + bytes(255)) * 20_000), "header-limit", 1024
    ),
    "200,000 empty extensions": Hostile(lambda: gif(b"!\xfe\0" * 200_000), "header-limit", 1024),
    "200,000 empty frames": Hostile(lambda: webp(b"ANMF\0\0\0\0" * 200_000), "header-limit", 512),
    "10,000 frames of 1 KB": Hostile(lambda: webp((b"ANMF\0\4\0\0" + bytes(1024)) * 10_000), "header-limit", 512),
    "400,000 free boxes": Hostile(lambda: avif(box(b"free") * 400_000), "header-limit", 512),
    "a box of 2^63 bytes": Hostile(lambda: avif(HUGE), "truncated-header", 5),
    "a box of no length": Hostile(lambda: avif(b"\0\0\0\0free" + bytes(1000)), "truncated-header", 4),
    "boxes in boxes": Hostile(
        lambda: avif(box(b"meta", bytes(4) + box(b"iprp", box(b"ipco", box(b"ipco")) * 9000) * 9)), "bad-header", 13
    ),
    "5,000 tracks": Hostile(
        lambda: avif(box(b"moov", box(b"trak", box(b"mdia", box(b"hdlr", bytes(12)))) * 5000), brand=b"avis"),
        "header-limit",
        512,
    ),
    "JP2: 200,000 free boxes": Hostile(lambda: jp2(box(b"free") * 200_000), "header-limit", 256),
    "JP2: 200,000 image headers": Hostile(
        lambda: jp2(box(b"jp2h", box(b"ihdr", bytes(14)) * 200_000)), "header-limit", 256
    ),
    "JP2: a box of 2^63 bytes": Hostile(lambda: jp2(HUGE), "truncated-header", 4),
    "TIFF: 65,535 entries": Hostile(lambda: tiff(65_535, *[ENTRY] * 65_535), "header-limit", 20),
    "TIFF: a directory in a circle": Hostile(lambda: tiff(2, *SIDES) + struct.pack("<I", 8), None, 5),
    "TIFF: the same entry again": Hostile(lambda: tiff(65_535, *[SIDES[0]] * 65_535), "header-limit", 20),
    "BigTIFF: 2^64 - 1 entries": Hostile(
        lambda: b"II+\0\x08\0\0\0" + struct.pack("<QQ", 16, 2**64 - 1) + struct.pack("<HHQQ", *ENTRY) * 65_535,
        "header-limit",
        20,
    ),
    "TIFF: 200,000 bytes of XMP": Hostile(
        lambda: tiff(3, *SIDES, (700, 1, 200_000, 50)) + bytes(4) + b'tiff:Orientation="x' * 11_000, None, 32
    ),
    "65,535 icons": Hostile(lambda: b"\0\0\1\0\xff\xff" + bytes(1 << 20), "header-limit", 2),
    "256 icons": Hostile(lambda: b"\0\0\1\0\0\1" + bytes(1 << 20), "bad-header", 5),
    "a comment of 4 MB": Hostile(lambda: b"P6\n#" + b"x" * (4 << 20), "header-limit", 4),
    "200,000 comments": Hostile(lambda: b"P6\n" + b"#\n" * 200_000, "header-limit", 4),
    "a number with 200,000 comments": Hostile(lambda: b"P6\n1" + b"#\n" * 200_000, "header-limit", 4),
}
