"""Does Pillow see what the engine would, through the window, and never more than the window shows?"""

import io
import struct
import sys
from collections.abc import Callable

import pytest
from PIL import Image

from tessera.core.draft import DraftMedia
from tessera.core.media import pillow
from tessera.core.media.probe import probe
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import MAX_BYTES, Window
from tessera.core.parts import MediaItem, Modality

Open = Callable[..., Window]

IMT = b"*by hand\nwidth 4\nheight 3\npixel n8\n\x0c" + bytes(12)
XPM = b'/* XPM */\nstatic char * a[] = {\n"4 3 2 1",\n". c #000000",\n"+ c #FFFFFF",\n"....",\n"+..+",\n"....",\n};'
SUN = struct.pack(">8I", 0x59A66A95, 4, 3, 8, 12, 1, 0, 0) + bytes(12)
BRUSH = struct.pack(">5I", 31, 2, 4, 3, 1) + b"GIMP" + struct.pack(">I", 3) + b"ab\0" + bytes(12)
XV = b"P7 332\n#made by hand\n4 3 255\n" + bytes(12)
CARDS = (b"SIMPLE  = T", b"BITPIX  = 8", b"NAXIS   = 2", b"NAXIS1  = 4", b"NAXIS2  = 3", b"END")
FITS = b"".join(card.ljust(80) for card in CARDS).ljust(2880) + bytes(2880)
BITMAP = struct.pack("<IiiHHIIiiII", 40, 4, 6, 1, 24, 0, 0, 0, 0, 0, 0) + bytes(64)
CURSOR = b"\0\0\2\0\1\0" + struct.pack("<BBBBHHII", 4, 3, 0, 0, 0, 0, len(BITMAP), 22) + BITMAP
PHOTO_CD = bytes(2048) + b"PCD_" + bytes(4000)


def look(content: bytes, *, uses_pillow: bool = True) -> MediaItem:
    return probe(DraftMedia(modality=Modality.IMAGE, content=content), uses_pillow=uses_pillow)


def saved(form: str, mode: str = "RGB", size: tuple[int, int] = (31, 17)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, size).save(file, form)
    return file.getvalue()


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        pillow.look(window)
    return gave_up.value.reason


@pytest.mark.parametrize(
    ("form", "mode"),
    [
        ("PCX", "RGB"),
        ("PCX", "L"),
        ("TGA", "RGB"),
        ("TGA", "P"),
        ("SGI", "RGB"),
        ("DDS", "RGB"),
        ("XBM", "1"),
        ("MSP", "1"),
        ("SPIDER", "F"),
        ("BLP", "P"),
        ("DIB", "RGB"),
    ],
)
def test_what_pillow_writes(form: str, mode: str) -> None:
    content = saved(form, mode)
    item = look(content)
    assert (item.format, item.width, item.height, item.reason) == (form.lower(), 31, 17, None)
    waiting = look(content, uses_pillow=False)
    assert (waiting.format, waiting.width, waiting.reason) == (None, None, "slow-format")
    assert waiting.identifier == item.identifier


@pytest.mark.parametrize(
    ("form", "content"),
    [("imt", IMT), ("xpm", XPM), ("sun", SUN), ("gbr", BRUSH), ("xvthumb", XV), ("fits", FITS), ("cur", CURSOR)],
)
def test_what_was_made_by_hand(form: str, content: bytes) -> None:
    item = look(content)
    assert (item.format, item.width, item.height, item.reason) == (form, 4, 3, None)


def test_sizes_that_a_header_does_not_state_plainly() -> None:
    icons = saved("ICNS", "RGBA", (512, 512))
    assert (look(icons).width, look(icons).height) == (1024, 1024), "the largest icon, at twice the resolution"
    assert (look(PHOTO_CD).width, look(PHOTO_CD).height) == (768, 512)
    on_its_side = PHOTO_CD[: 2048 + 1538] + b"\1" + PHOTO_CD[2048 + 1539 :]
    assert (look(on_its_side).width, look(on_its_side).height) == (512, 768)


def test_together_with_our_own_formats_these_are_the_engines_37() -> None:
    ours = {"AVIF", "BMP", "GIF", "ICO", "JPEG", "JPEG2000", "PNG", "PPM", "QOI", "TIFF", "WEBP"}
    assert len({*pillow.FORMATS, "IMT"} | ours) == 37
    assert not ours & set(pillow.FORMATS)
    Image.init()
    assert set(pillow.FORMATS) <= set(Image.OPEN)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no picture at all", Reason.UNKNOWN_FORMAT),
        (bytes(100_000), Reason.UNKNOWN_FORMAT),
        (b"8BPS", Reason.UNKNOWN_FORMAT),
        (struct.pack(">8I", 0x59A66A95, 60_000, 60_000, 8, 12, 1, 0, 0), Reason.TOO_MANY_PIXELS),
        (saved("SGI")[:3], Reason.UNKNOWN_FORMAT),
        (b"\x01\xda\0\1\0\5" + bytes(600), Reason.BAD_HEADER),
        (XPM.replace(b"c #000000", b"c black"), Reason.BAD_HEADER),
        (
            b"Image type: RGB image\r\nFile size (no of images): 1\r\nImage size (x*y): 4*3*2\r\n\0\x1a",
            Reason.BAD_HEADER,
        ),
        (b"Image type: RGB image\r\nImage size (x*y): 4.5*3\r\n\0\x1a", Reason.BAD_HEADER),
    ],
)
@pytest.mark.filterwarnings("ignore:IM image format:DeprecationWarning")
def test_ignorance_has_a_reason(content: bytes, reason: Reason) -> None:
    item = look(content)
    assert (item.format, item.width, item.height, item.reason) == (None, None, None, reason)


def test_other_formats_are_not_asked(window_of: Open, picture: Callable[[str], bytes]) -> None:
    for name in ("png_rgba.png", "jpeg_baseline.jpg", "bmp_v3.bmp"):
        assert refusal(window_of(picture(name))) is Reason.UNKNOWN_FORMAT
    assert refusal(window_of(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 3\n")) is Reason.UNKNOWN_FORMAT


def test_without_pillow_there_is_a_reason(monkeypatch: pytest.MonkeyPatch, picture: Callable[[str], bytes]) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert look(picture("tga.tga")).reason == "needs-pillow"
    assert look(picture("qoi.qoi")).width == 317


@pytest.mark.parametrize(
    "content",
    [
        b"Comment: a\n" * 100_000,
        b"\x1c\2\5\0\1a" * 100_000,
        b"/* XPM */\n" + b"\n" * 200_000,
        b'/* XPM */\n"4 3 9999 1",\n"' + b" c" * 400_000 + b"\n",
        b"#define a 1\n" * 30_000,
        CARDS[0].ljust(80) + b"A".ljust(80) * 20_000,
        b"P7 332\n" + b"#\n" * 100_000,
        b"icns\xff\xff\xff\xff" + b"abcd\0\0\0\x08" * 100_000,
        struct.pack("<I", 0x3ADE68B1) + b"\1" * 100_000,
        b"\0\0\2\0\xff\xff" + bytes(1 << 20),
        b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHHII", 3, 3, 4, 8, 3, 0, 1 << 31) + b"8BIM\0\1\0\0\0\0\0\0" * 100_000,
        struct.pack(">5I", 2**31, 2, 4, 3, 1) + b"GIMP" + bytes(1 << 20),
    ],
    ids=["im", "iptc", "xpm", "xpm-line", "xbm", "fits", "xvthumb", "icns", "dcx", "cur", "psd", "gbr"],
)
def test_endless_headers_end_within_the_window(window_of: Open, content: bytes) -> None:
    window = window_of(content)
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps <= pillow.MAX_READS
    assert window.bytes_read <= MAX_BYTES


def test_an_endless_text_header_is_not_begun(window_of: Open) -> None:
    window = window_of(b"*a\n" * 100_000 + b"\x0c")
    assert refusal(window) is Reason.UNKNOWN_FORMAT
    assert window.num_steps < 20


def test_the_window_reads_like_a_file(window_of: Open) -> None:
    content = b"first\nsecond\n" + b"long" * 100 + b"\nno end"
    file, like = io.BytesIO(content), pillow._Content(window_of(content))
    script: list[tuple[str, tuple[int, ...]]] = [
        ("readline", ()),
        ("tell", ()),
        ("readline", (3,)),
        ("readline", (0,)),
        ("read", (4,)),
        ("readline", ()),
        ("readline", (1000,)),
        ("readline", ()),
        ("readline", ()),
        ("read", (1,)),
        ("seek", (-6, io.SEEK_END)),
        ("read", ()),
        ("seek", (-10_000, io.SEEK_END)),
        ("seek", (3, io.SEEK_CUR)),
        ("read", (2,)),
        ("seek", (10_000,)),
        ("read", (1,)),
        ("readline", ()),
        ("seek", (0,)),
        ("read", (-1,)),
    ]
    for name, arguments in script:
        assert getattr(like, name)(*arguments) == getattr(file, name)(*arguments), (name, arguments)
    with pytest.raises(ValueError, match="before the start"):
        like.seek(-1)


def test_the_size_comes_from_the_window(window_of: Open) -> None:
    window = window_of(saved("TGA"))
    assert pillow.look(window)[:2] == ("tga", Size(31, 17))
    assert window.bytes_read < 5000
