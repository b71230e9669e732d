"""How large is an AVIF? What is said of its primary item, or of its first track where it is a sequence.

A quarter turn (``irot``) swaps the sides. It also overrules EXIF; XMP counts where
neither of them says anything. A clean aperture is not honoured by the engine's
image library. HEIC, which has the same boxes, is refused by the engine.

Source: AV1 Image File Format 1.1; ISO/IEC 23008-12; libavif 1.4 and ``AvifImagePlugin`` of Pillow 13.
"""

from collections.abc import Iterable
from typing import Final

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.colour import ColourMode
from tessera.core.media.exif import UPRIGHT, in_exif, in_xmp
from tessera.core.media.items import FULL_HEAD_BYTES, Meta, children, required
from tessera.core.media.size import Reason, Size, Unsized, check_sides, displayed
from tessera.core.media.window import Window

NAME: Final = "avif"
MAX_STEPS: Final = 512
"""Boxes, items and reads in one file; real files have about fifty, and one more for each tile of a grid."""
MAX_BRANDS: Final = 64
_ITEM, _SEQUENCE = b"avif", b"avis"
_MAJOR_BRANDS = (_ITEM, _SEQUENCE, b"mif1", b"msf1")
"""What a file must call itself to be tried as an AVIF."""
_QUARTER_TURN = 6
_TRACK_WIDTH_AT = {0: 76, 1: 88}
"""Offset of a track's width in its header, by the header's version."""
_SAMPLE_ENTRY_BYTES = 78
_IS_GREY = 0x10
_ALPHA = (b"urn:mpeg:mpegB:cicp:systems:auxiliary:alpha\0", b"urn:mpeg:hevc:2015:auxid:1\0")
"""What an auxiliary picture calls itself that holds the alpha of another."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an AVIF, as far as its brands are seen."""
    if first_bytes[4:8] != b"ftyp" or first_bytes[8:12] not in _MAJOR_BRANDS:
        return False
    length = int.from_bytes(first_bytes[:4], "big")
    return length > len(first_bytes) or bool({_ITEM, _SEQUENCE} & set(_brands(first_bytes[8:length])))


def size(window: Window) -> Size:
    """The size as displayed.

    Raises:
        Unsized: the header says none.
    """
    kind, box = _shown(window)
    return _of_track(window, box) if kind == b"moov" else _of_item(window, box)


def mode(window: Window) -> ColourMode | None:
    """The colours: with alpha where an auxiliary picture holds the primary one's, else grey or RGB.

    Not known of sequences with several tracks, one of which may be alpha, and of
    tiles that have auxiliary pictures of their own.

    Raises:
        Unsized: the header says none.
    """
    kind, box = _shown(window)
    if kind == b"moov":
        tracks = [child for child in boxes(window, box.start, box.end) if child.kind == b"trak"]
        coded = _coded(window, children(window, tracks[0])) if len(tracks) == 1 else None
        return _mode_of(window, coded[b"av1C"]) if coded and b"av1C" in coded else None
    meta = Meta.at(window, box)
    primary = meta.primary()
    for item, targets in meta.references(b"auxl"):
        if targets != [primary]:
            return None
        for said in meta.properties(item):
            if said.kind == b"auxC" and window.read(said.start + FULL_HEAD_BYTES, len(_ALPHA[0])).startswith(_ALPHA):
                return ColourMode.RGBA
    tiles = next((targets for item, targets in meta.references(b"dimg") if item == primary), [primary])
    coding = next((said for said in meta.properties(tiles[0]) if said.kind == b"av1C"), None) if tiles else None
    return _mode_of(window, coding) if coding else None


def _mode_of(window: Window, av1c: Box) -> ColourMode:
    """Grey or RGB, as the codec's configuration says."""
    return ColourMode.OTHER if window.need(av1c.start, 4)[2] & _IS_GREY else ColourMode.RGB


def _shown(window: Window) -> tuple[bytes, Box]:
    """The box of what is shown: a track's or an item's.

    Raises:
        Unsized: there is none.
    """
    window.allow(MAX_STEPS)
    top = boxes(window, 0, window.num_bytes)
    ftyp = next(top)
    if ftyp.end - ftyp.start > 4 * MAX_BRANDS:
        raise Unsized(Reason.HEADER_LIMIT)
    brands = _brands(window.need(ftyp.start, ftyp.end - ftyp.start))
    wanted = {kind for brand, kind in ((_ITEM, b"meta"), (_SEQUENCE, b"moov")) if brand in brands}
    if not wanted:
        raise Unsized(Reason.REFUSED_FORMAT)
    found = _first(top, wanted)
    kind = b"moov" if brands[0] == _SEQUENCE or (brands[0] != _ITEM and b"moov" in found) else b"meta"
    return kind, required(found, kind)


def _brands(payload: bytes) -> list[bytes]:
    """The major brand and those that the file is compatible with; a version stands between them."""
    return [payload[at : at + 4] for at in range(0, len(payload) - 3, 4) if at != 4]


def _first(top: Iterable[Box], wanted: set[bytes]) -> dict[bytes, Box]:
    """The first box of each kind that is wanted."""
    found = dict[bytes, Box]()
    for box in top:
        if box.kind in wanted:
            found.setdefault(box.kind, box)
            if len(found) == len(wanted):
                return found
    raise Unsized(Reason.TRUNCATED_HEADER)


def _of_item(window: Window, box: Box) -> Size:
    meta = Meta.at(window, box)
    item = meta.primary()
    properties = dict[bytes, Box]()
    for said in meta.properties(item):
        properties.setdefault(said.kind, said)
    ispe = window.need(required(properties, b"ispe").start, FULL_HEAD_BYTES + 8)
    width, height = int.from_bytes(ispe[4:8], "big"), int.from_bytes(ispe[8:12], "big")
    check_sides(width, height)
    return displayed(width, height, _orientation(window, properties, meta, item))


def _of_track(window: Window, moov: Box) -> Size:
    """The size of the first track of pictures that is not an auxiliary one."""
    for box in boxes(window, moov.start, moov.end):
        if box.kind == b"trak":
            trak = children(window, box)
            coded = _coded(window, trak)
            if coded is not None:
                break
    else:
        raise Unsized(Reason.BAD_HEADER)
    tkhd = required(trak, b"tkhd").start
    at = _TRACK_WIDTH_AT.get(window.need(tkhd, 1)[0])
    if at is None:
        raise Unsized(Reason.BAD_HEADER)
    sides = window.need(tkhd + at, 8)
    # Fixed point, 16 bits behind the point.
    width, height = int.from_bytes(sides[:2], "big"), int.from_bytes(sides[4:6], "big")
    check_sides(width, height)
    meta = Meta.at(window, trak[b"meta"]) if b"meta" in trak else None
    return displayed(width, height, _orientation(window, coded, meta, None))


def _coded(window: Window, trak: dict[bytes, Box]) -> dict[bytes, Box] | None:
    """What is said of the pictures of a track; nothing where it has none that are shown."""
    if b"tref" in trak and b"auxl" in children(window, trak[b"tref"]):
        return None
    mdia = children(window, required(trak, b"mdia"))
    if window.need(required(mdia, b"hdlr").start + 8, 4) != b"pict":
        return None
    stbl = children(window, required(children(window, required(mdia, b"minf")), b"stbl"))
    entries = children(window, required(stbl, b"stsd"), skip=FULL_HEAD_BYTES + 4)
    return children(window, entries[b"av01"], skip=_SAMPLE_ENTRY_BYTES) if b"av01" in entries else None


def _orientation(window: Window, properties: dict[bytes, Box], meta: Meta | None, item: int | None) -> int:
    """The orientation that the engine will see."""
    if b"irot" in properties and (turns := window.need(properties[b"irot"].start, 1)[0] & 3):
        return _QUARTER_TURN if turns & 1 else UPRIGHT
    if meta is None or b"imir" in properties:
        return UPRIGHT
    xmp = meta.metadata(item, b"mime", b"application/rdf+xml\0")
    if xmp is None or (found := in_xmp(xmp)) is None:
        return UPRIGHT
    exif = meta.metadata(item, b"Exif")
    if exif is None:
        return found
    # In front of the block stands the offset of its first byte, which is not honoured.
    return found if in_exif(lambda offset, length: exif(offset + 4, length)) is None else UPRIGHT
