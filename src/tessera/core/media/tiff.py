"""How large is a TIFF? The first directory's width and length, turned as its orientation says.

The directory may stand anywhere, of a BigTIFF too. Where it has no orientation,
the one in its XMP packet counts. A big-endian BigTIFF is refused: the engine's image
library takes it for a TIFF, whose directory would lie at 524,288.

Source: TIFF 6.0; ``TiffImagePlugin`` of Pillow 13, which turns the picture when it loads it.
"""

from typing import Final

from tessera.core.media.colour import ColourMode
from tessera.core.media.exif import ORIENTATION, UPRIGHT, in_xmp, spans
from tessera.core.media.ifd import BIGTIFF, LAYOUTS, Entry, Layout, entries, integer
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import Window

NAME: Final = "tiff"
MAX_STEPS: Final = 256
"""Steps in one file: at most 16 reads for entries, 4 for values, and XMP in pieces."""

_BIG_ENDIAN_BIGTIFF = b"MM\0\x2b\0\x08\0\0"
_WIDTH, _LENGTH, _XMP = 0x0100, 0x0101, 0x02BC
_WANTED = frozenset({_WIDTH, _LENGTH, ORIENTATION})
_COMPRESSION, _PHOTOMETRIC, _NUM_SAMPLES, _EXTRA = 0x0103, 0x0106, 0x0115, 0x0152
_COLOURS = frozenset({_COMPRESSION, _PHOTOMETRIC, _NUM_SAMPLES, _EXTRA})
_RGB, _YCBCR = 2, 6
_UNPACKED, _OLD_JPEG = 1, 6
_OTHER_PHOTOMETRICS = (0, 1, 3, 5, 8)
"""Grey, white at zero or black at zero; palette, CMYK, CIE L*a*b*."""
_EXTRA_MODES = {0: ColourMode.RGB, 1: ColourMode.RGBA, 2: ColourMode.RGBA, 999: ColourMode.RGBA}
"""By what the first sample beyond red, green and blue is; the last is what Corel Draw 10 writes."""
_BYTES = frozenset({1, 7})
"""Field types whose values are bytes."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a TIFF or a BigTIFF."""
    return first_bytes[:4] in LAYOUTS


def size(window: Window) -> Size:
    """The size of the first page as displayed.

    Values elsewhere in the file are passed over from where they add up to more than the file.

    Raises:
        Unsized: the header says none.
    """
    values, xmp, layout = _values(window, _WANTED)
    width, length = values.get(_WIDTH, 0), values.get(_LENGTH, 0)
    check_sides(width, length)
    turn = values.get(ORIENTATION)
    if turn is None and xmp:
        turn = _in_xmp(window, xmp, layout)
    return displayed(width, length, UPRIGHT if turn is None else turn)


def mode(window: Window) -> ColourMode | None:
    """The colours, by what the samples mean; nothing where the engine's image library has no such combination.

    Raises:
        Unsized: the header says none.
    """
    values, _, _ = _values(window, _COLOURS)
    compression = values.get(_COMPRESSION, _UNPACKED)
    photometric = _YCBCR if compression == _OLD_JPEG else values.get(_PHOTOMETRIC, 0)
    if photometric in _OTHER_PHOTOMETRICS:
        return ColourMode.OTHER
    if photometric == _YCBCR:
        # The library for packed pictures turns them into RGB, the other does not.
        return ColourMode.OTHER if compression == _UNPACKED else ColourMode.RGB
    if photometric != _RGB:
        return None
    if _EXTRA in values:
        return _EXTRA_MODES.get(values[_EXTRA])
    return {3: ColourMode.RGB, 4: ColourMode.RGBA}.get(values.get(_NUM_SAMPLES, 1))


def _values(window: Window, wanted: frozenset[int]) -> tuple[dict[int, int], Entry | None, Layout]:
    """The first value of each entry that is wanted, and the XMP packet's entry.

    Raises:
        Unsized: there is no directory, or a limit is reached.
    """
    window.allow(MAX_STEPS)
    head = window.need(0, 8)
    if head == _BIG_ENDIAN_BIGTIFF:
        raise Unsized(Reason.REFUSED_FORMAT)
    layout = LAYOUTS[head[:4]]
    at = 8 if layout is BIGTIFF else 4
    directory = int.from_bytes(window.need(at, layout.offset_bytes), layout.order)
    if directory == 0:
        raise Unsized(Reason.BAD_HEADER)
    values, xmp, num_bytes_elsewhere = dict[int, int](), None, 0
    for entry in entries(window.need, directory, layout):
        if entry.num_bytes > layout.offset_bytes:
            num_bytes_elsewhere += entry.num_bytes
            if num_bytes_elsewhere > window.num_bytes:
                continue
        if entry.tag in wanted and entry.tag not in values:
            value = integer(window.need, 0, entry, layout)
            if value is not None:
                values[entry.tag] = value
        elif entry.tag == _XMP and entry.kind in _BYTES:
            xmp = xmp or entry
    return values, xmp, layout


def _in_xmp(window: Window, entry: Entry, layout: Layout) -> int | None:
    if entry.num_bytes <= layout.offset_bytes:
        return None
    start = int.from_bytes(entry.field, layout.order)
    if start + entry.num_values > window.num_bytes:
        raise Unsized(Reason.TRUNCATED_HEADER)
    return in_xmp(spans(window, [(start, entry.num_values)]))
