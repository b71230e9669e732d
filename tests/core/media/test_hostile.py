"""Do hostile and random pictures end within the limits, with a reason and never an exception?"""

import runpy
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.draft import DraftMedia
from tessera.core.media import pillow
from tessera.core.media.identity import Naming
from tessera.core.media.mm_hash import HashFactors
from tessera.core.media.probe import FORMATS, SNIFF_BYTES, probe
from tessera.core.media.size import MAX_PIXELS, Size, Unsized
from tessera.core.media.window import MAX_BYTES, MAX_STEPS, Window
from tessera.core.parts import Modality

KNOWN = Naming(HashFactors(engine_model="m"))
"""With it the colours are looked at too."""
HOSTILE = runpy.run_path(str(Path(__file__).with_name("hostile_pictures.py")))["PICTURES"]


def look(window: Window) -> Size | str:
    """What a parser finds, or its reason."""
    first_bytes = window.read(0, SNIFF_BYTES)
    known = next((known for known in FORMATS if known.matches(first_bytes)), None)
    try:
        return known.size(window) if known else pillow.look(window)[1]
    except Unsized as gave_up:
        return gave_up.reason.value


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_pictures_end_within_their_limits(window_of: Callable[[bytes], Window], name: str) -> None:
    content = HOSTILE[name].make()
    window = window_of(content)
    found = look(window)
    assert (found, window.num_steps) == (HOSTILE[name].reason or Size(40, 30), HOSTILE[name].num_steps)
    assert window.num_steps <= MAX_STEPS
    assert window.bytes_read <= MAX_BYTES
    item = probe(DraftMedia(modality=Modality.IMAGE, content=content), naming=KNOWN)
    assert item.reason == HOSTILE[name].reason


MAGICS = {
    "png": b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR\0\0\0\x28\0\0\0\x1e\x08\2\0\0\0\0\0\0\0",
    "jpeg": b"\xff\xd8\xff",
    "jpeg-exif": b"\xff\xd8\xff\xc0\0\x11\x08\0\x1e\0\x28\3" + bytes(9) + b"\xff\xe1\2\0Exif\0\0II*\0",
    "gif": b"GIF89a\x28\0\x1e\0\x80\0\0",
    "webp": b"RIFF\xff\xff\0\0WEBPVP8X\x0a\0\0\0\x0c\0\0\0\x27\0\0\x1d\0\0",
    "webp-lossy": b"RIFF\xff\xff\0\0WEBPVP8 ",
    "webp-lossless": b"RIFF\xff\xff\0\0WEBPVP8L",
    "avif": b"\0\0\0\x14ftypavif\0\0\0\0avif",
    "avif-meta": b"\0\0\0\x14ftypavif\0\0\0\0avif\0\0\1\0meta\0\0\0\0\0\0\0\x0epitm\0\0\0\0\0\1\0\0\0\xe0iprp",
    "avis-moov": b"\0\0\0\x14ftypavis\0\0\0\0avis\0\0\1\0moov\0\0\0\xf8trak\0\0\0\xf0mdia",
    "bmp": b"BM" + bytes(12) + b"\x28\0\0\0",
    "bmp-core": b"BM" + bytes(12) + b"\x0c\0\0\0",
    "tiff": b"II*\0\x08\0\0\0\x05\0",
    "tiff-big-endian": b"MM\0*\0\0\0\x08\0\x05",
    "bigtiff": b"II+\0\x08\0\0\0\x10\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0",
    "ico": b"\0\0\1\0\1\0",
    "jp2": b"\0\0\0\x0cjP  \r\n\x87\n\0\0\1\0jp2h",
    "j2k": b"\xff\x4f\xff\x51\0\x2f",
    "pnm": b"P6\n",
    "pnm-bits": b"P1 4",
    "qoi": b"qoif",
    "heic": b"\0\0\0\x18ftypheic",
    "svg": b"<svg",
    "blp": b"BLP2",
    "cur": b"\0\0\2\0\1\0",
    "dcx": struct.pack("<I", 0x3ADE68B1),
    "dds": b"DDS \x7c\0\0\0",
    "dib": b"\x28\0\0\0",
    "fits": b"SIMPLE  =                    T".ljust(80),
    "fli": b"\0\1\0\0\x11\xaf\1\0\4\0\3\0\x08\0\0\0",
    "ftex": b"FTEX",
    "gbr": b"\0\0\0\x1f\0\0\0\2",
    "icns": b"icns\0\0\1\0",
    "im": b"Image type: RGB image\n",
    "imt": b"*\nwidth 4\n",
    "iptc": b"\x1c\3\x3c\0\2\1\0",
    "mcidas": b"\0\0\0\0\0\0\0\4",
    "msp": b"DanM",
    "pcx": b"\x0a\5\1\x08",
    "pixar": b"\200\xe8\0\0",
    "psd": b"8BPS\0\1",
    "sgi": b"\x01\xda\0\1",
    "sun": struct.pack(">I", 0x59A66A95),
    "tga": b"\0\0\2\0\0\0\0\0\0\0\0\0",
    "xbm": b"#define im_width 4\n",
    "xpm": b"/* XPM */\n",
    "xvthumb": b"P7 332",
    "nothing": b"",
}


@pytest.mark.parametrize("magic", MAGICS)
@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning", "ignore:Image size:Warning")
@settings(max_examples=200, deadline=None)
@given(rest=st.binary(max_size=300), repeat=st.sampled_from([1, 1, 1, 1, 2000]))
def test_random_bytes_after_each_magic(magic: str, rest: bytes, repeat: int) -> None:
    content = MAGICS[magic] + rest * repeat
    window = Window(content)
    found = look(window)
    assert window.num_steps <= MAX_STEPS
    assert window.bytes_read <= MAX_BYTES
    if isinstance(found, Size):
        assert 0 < found.width * found.height <= MAX_PIXELS
    item = probe(DraftMedia(modality=Modality.IMAGE, content=content), naming=KNOWN, uses_pillow=True)
    assert (item.width, item.height) == ((found.width, found.height) if isinstance(found, Size) else (None, None))
    assert item.reason == (None if isinstance(found, Size) else found)


@pytest.mark.parametrize(
    "name",
    [
        *("png_exif_o6.png", "apng.png", "jpeg_exif_thumb_o6.jpg", "gif_anim.gif", "webp_anim.webp", "avif_alpha.avif"),
        *("bmp_os2_core.bmp", "tiff_multipage.tif", "jp2.jp2", "j2k.j2k", "qoi.qoi", "psd.psd", "tga.tga"),
    ],
)
@settings(max_examples=100, deadline=None)
@given(changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=6))
def test_damaged_pictures_stay_within_the_limits(
    picture: Callable[[str], bytes], name: str, changes: list[tuple[int, int]]
) -> None:
    content = bytearray(picture(name))
    for at, value in changes:
        content[at] = value
    window = Window(bytes(content))
    look(window)
    assert window.num_steps <= MAX_STEPS
    assert window.bytes_read <= MAX_BYTES
