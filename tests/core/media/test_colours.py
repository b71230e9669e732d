"""Are a picture's colours those that the engine's image library has when it is loaded?

Pillow writes each picture, we read its header, and Pillow loads it.
"""

import io
import struct
import zlib
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from tessera.core.media import avif, bmp, ico, jpeg, jpeg2000, pillow, png, tiff, webp
from tessera.core.media.colour import ColourMode
from tessera.core.media.probe import FORMATS
from tessera.core.media.size import Unsized
from tessera.core.media.window import Window

Image = pytest.importorskip("PIL.Image")
pytestmark = pytest.mark.filterwarnings("ignore:IM image format")

SIDES = 24, 16


def written(file_format: str, mode: str, **options: Any) -> bytes:
    """A picture as Pillow writes it, nothing of it transparent but what has alpha."""
    file = io.BytesIO()
    Image.new(mode, SIDES, 0).save(file, file_format, **options)
    return file.getvalue()


def loaded(content: bytes) -> ColourMode:
    """The colours of the picture as Pillow loads it."""
    with Image.open(io.BytesIO(content)) as picture:
        picture.load()
        mode = picture.mode
    return ColourMode(mode) if mode in {"RGB", "RGBA"} else ColourMode.OTHER


def from_header(content: bytes) -> ColourMode | None:
    """The colours by our reading of the header."""
    window = Window(b64encode(content).decode())
    window.verify()
    known = next((known for known in FORMATS if known.matches(content[:64])), None)
    if known is None:
        return pillow.look(window)[2]
    known.size(window)
    return known.mode(window)


WRITTEN = [
    *(("PNG", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    ("PNG", "RGB", {"transparency": (0, 0, 0)}),
    ("PNG", "P", {"transparency": 0}),
    ("PNG", "L", {"transparency": 0}),
    *(("JPEG", mode, {}) for mode in ("L", "RGB", "CMYK")),
    *(("GIF", mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA")),
    *(("WEBP", mode, {"lossless": lossless}) for mode in ("RGB", "RGBA") for lossless in (True, False)),
    *(
        ("WEBP", mode, {"exif": b"Exif\0\0", "lossless": lossless})
        for mode in ("RGB", "RGBA")
        for lossless in (True, False)
    ),
    *(("AVIF", mode, {}) for mode in ("L", "RGB", "RGBA", "LA")),
    *(("BMP", mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA")),
    *(("DIB", mode, {}) for mode in ("1", "L", "P", "RGB", "RGBA")),
    *(
        ("TIFF", mode, {})
        for mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "LAB", "I;16", "I", "F")
    ),
    *(("TIFF", mode, {"compression": "tiff_deflate"}) for mode in ("L", "P", "RGB", "RGBA", "CMYK", "RGBX")),
    *(("TIFF", mode, {"compression": "jpeg"}) for mode in ("L", "RGB", "YCbCr")),
    *(("ICO", mode, {"bitmap_format": kind}) for mode in ("L", "P", "RGB", "RGBA") for kind in ("png", "bmp")),
    *(("JPEG2000", mode, {"no_jp2": bare}) for mode in ("L", "LA", "RGB", "RGBA", "I;16") for bare in (True, False)),
    ("JPEG2000", "CMYK", {}),
    *(("PPM", mode, {}) for mode in ("1", "L", "RGB", "I;16", "F", "RGBA")),
    *(("QOI", mode, {}) for mode in ("RGB", "RGBA")),
    *(("TGA", mode, {}) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")),
    *(("DDS", mode, {}) for mode in ("L", "LA", "RGB", "RGBA")),
    *(("PCX", mode, {}) for mode in ("1", "L", "P", "RGB")),
    *(("SGI", mode, {}) for mode in ("L", "RGB", "RGBA")),
    ("MSP", "1", {}),
    ("XBM", "1", {}),
    ("SPIDER", "F", {}),
    ("BLP", "P", {}),
    ("BLP", "P", {"blp_version": "BLP1"}),
    *(("IM", mode, {}) for mode in ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "I;16", "F")),
]


def test_an_icon_of_apples_shows_its_colours_only_when_it_is_loaded() -> None:
    assert from_header(written("ICNS", "RGBA")) is None


def masked_bmp(depth: int, masks: tuple[int, ...], *, header_bytes: int = 56) -> bytes:
    """A bitmap of 8 pixels whose colours are told by masks."""
    fields = struct.pack("<IiiHHIIiiII", header_bytes, 4, 2, 1, depth, 3, 0, 0, 0, 0, 0)
    header = (fields + struct.pack(f"<{len(masks)}I", *masks)).ljust(header_bytes, b"\0")
    start = 14 + len(header)
    return b"BM" + struct.pack("<IHHI", start + 32, 0, 0, start) + header + bytes(32)


@pytest.mark.parametrize(
    "content",
    [
        masked_bmp(32, (0xFF0000, 0xFF00, 0xFF, 0)),
        masked_bmp(32, (0xFF000000, 0xFF0000, 0xFF00, 0)),
        masked_bmp(32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000)),
        masked_bmp(32, (0xFF000000, 0xFF0000, 0xFF00, 0xFF)),
        masked_bmp(32, (0xFF000000, 0xFF00, 0xFF, 0xFF0000), header_bytes=124),
        masked_bmp(32, (0, 0, 0, 0), header_bytes=108),
        masked_bmp(32, (0xFF0000, 0xFF00, 0xFF), header_bytes=52),
        masked_bmp(32, (0xFF0000, 0xFF00, 0xFF), header_bytes=40),
        masked_bmp(32, (0, 0, 0), header_bytes=40),
        masked_bmp(16, (0xF800, 0x7E0, 0x1F)),
        masked_bmp(24, (0xFF0000, 0xFF00, 0xFF)),
    ],
)
def test_masks_of_bitmaps(content: bytes) -> None:
    assert from_header(content) == loaded(content)


def test_masks_that_nobody_knows() -> None:
    assert from_header(masked_bmp(32, (0xFF, 0xFF00, 0xFF0000, 0))) is None


KINDS_OF_PNG = [(depth, colour_type) for colour_type, depths in png._DEPTHS.items() for depth in depths]


@pytest.mark.parametrize(("depth", "colour_type"), KINDS_OF_PNG)
def test_every_kind_of_png(depth: int, colour_type: int) -> None:
    num_samples = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour_type]
    rows = zlib.compress(bytes(1 + (8 * depth * num_samples + 7) // 8) * 8)
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", 8, 8, depth, colour_type, 0, 0, 0))]
    chunks += [(b"PLTE", bytes(6))] if colour_type == 3 else []
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in (*chunks, (b"IDAT", rows), (b"IEND", b"")):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    assert from_header(content) == loaded(content)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("file_format", ["PNG", "WEBP", "AVIF"])
def test_pictures_that_move(file_format: str, mode: str) -> None:
    frames = [Image.new(mode, SIDES, (number,) * len(mode)) for number in (0, 80, 160)]
    file = io.BytesIO()
    frames[0].save(file, file_format, save_all=True, append_images=frames[1:])
    found = from_header(file.getvalue())
    assert found == loaded(file.getvalue()) or (file_format, mode, found) == ("AVIF", "RGBA", None)


def test_alpha_that_only_a_chunk_shows() -> None:
    """A lossy frame with an ALPH chunk, though the flags deny it; a lossless one overrules them."""
    for lossless in (False, True):
        content = bytearray(written("WEBP", "RGBA", lossless=lossless, exif=b"Exif\0\0"))
        content[20] &= ~0x10
        assert from_header(bytes(content)) == loaded(bytes(content))


@pytest.mark.parametrize(
    ("samples", "extra"),
    [(3, None), (4, None), (4, 0), (4, 1), (4, 2), (4, 999), (4, 5), (2, None)],
)
def test_what_a_tiff_calls_its_samples(samples: int, extra: int | None) -> None:
    entries = [(256, 4), (257, 2), (258, 8), (259, 1), (262, 2), (273, 200), (277, samples), (278, 2), (279, 32)]
    entries += [] if extra is None else [(338, extra)]
    directory = struct.pack("<H", len(entries)) + b"".join(struct.pack("<HHII", t, 3, 1, v) for t, v in entries)
    content = (b"II*\0" + struct.pack("<I", 8) + directory).ljust(200, b"\0") + bytes(32)
    try:
        expected: ColourMode | None = loaded(content)
    except Image.UnidentifiedImageError:
        expected = None
    assert from_header(content) == expected


@pytest.mark.parametrize("known", [avif, bmp, ico, jpeg, jpeg2000, png, tiff, webp], ids=lambda known: known.NAME)
def test_a_cut_header_is_no_surprise(known: Any, picture: Callable[[str], bytes]) -> None:
    names = {"avif": "avif_alpha.avif", "bmp": "bmp_v3.bmp", "jpeg": "jpeg_cmyk.jpg", "jpeg2000": "jp2.jp2"}
    names |= {"png": "png_rgba.png", "tiff": "tiff_lzw.tif", "webp": "webp_vp8x_alpha.webp"}
    content = picture(names[known.NAME])[:600] if known.NAME in names else written("ICO", "RGB")
    for length in range(len(content)):
        window = Window(content[:length])
        window.verify()
        if not known.matches(content[: min(length, 64)]):
            continue
        try:
            known.mode(window)
        except Unsized:
            continue


@pytest.mark.parametrize(("file_format", "mode", "options"), WRITTEN, ids=str)
def test_colours_are_those_of_the_loaded_picture(file_format: str, mode: str, options: dict[str, Any]) -> None:
    try:
        content = written(file_format, mode, **options)
    except (OSError, KeyError, ValueError):
        pytest.skip(f"this Pillow writes no {file_format} of mode {mode}")
    assert from_header(content) == loaded(content)
