"""Is an AVIF's size the one that the engine sees: item or track, turned or not; and is HEIC refused?"""

import struct
from collections.abc import Callable, Sequence

import pytest

from tessera.core.media import avif
from tessera.core.media.items import MAX_LISTED
from tessera.core.media.size import Reason, Size, Unsized
from tessera.core.media.window import Window

Open = Callable[..., Window]
Exif = Callable[..., bytes]
SIDEWAYS = b'<x:xmpmeta tiff:Orientation="6"/>'
RDF = b"XMP\0application/rdf+xml\0"


def box(kind: bytes, *payload: bytes) -> bytes:
    data = b"".join(payload)
    return struct.pack(">I", 8 + len(data)) + kind + data


def full(kind: bytes, *payload: bytes, version: int = 0, flags: int = 0) -> bytes:
    return box(kind, bytes([version, 0, 0, flags]), *payload)


def ftyp(major: bytes = b"avif", *compatible: bytes) -> bytes:
    return box(b"ftyp", major, bytes(4), *(compatible or (b"avif", b"mif1", b"miaf")))


def ispe(width: int = 40, height: int = 30) -> bytes:
    return full(b"ispe", struct.pack(">II", width, height))


def irot(turns: int) -> bytes:
    return box(b"irot", bytes([turns]))


IMIR = box(b"imir", b"\1")
CLAP = box(b"clap", struct.pack(">8I", 20, 1, 10, 1, 0, 1, 0, 1))


def ipma(said: Sequence[tuple[int, Sequence[int]]], *, version: int = 0, flags: int = 0) -> bytes:
    number, index = ("H", "I")[version], "BH"[flags]
    listed = (struct.pack(f">{number}B{len(of)}{index}", item, len(of), *of) for item, of in said)
    return full(b"ipma", struct.pack(">I", len(said)), *listed, version=version, flags=flags)


def infe(item: int, kind: bytes, said: bytes = b"\0", *, version: int = 2) -> bytes:
    return full(b"infe", struct.pack(">HH4s" if version == 2 else ">IH4s", item, 0, kind), said, version=version)


def meta(
    *properties: bytes,
    primary: int = 1,
    said: bytes | None = None,
    infos: Sequence[bytes] = (),
    places: bytes = b"",
    describing: Sequence[tuple[int, int]] = (),
    idat: bytes = b"",
) -> bytes:
    said = said or ipma([(primary, range(1, len(properties) + 1))])
    more = [box(b"iprp", box(b"ipco", *properties), said)]
    if infos:
        more.append(full(b"iinf", struct.pack(">H", len(infos)), *infos))
        more.append(full(b"iloc", places, version=1))
        more.append(full(b"iref", *(box(b"cdsc", struct.pack(">HHH", item, 1, of)) for item, of in describing)))
        more.append(box(b"idat", idat))
    return full(b"meta", full(b"hdlr", bytes(4), b"pict"), full(b"pitm", struct.pack(">H", primary)), *more)


def places(*items: tuple[int, int, int]) -> bytes:
    """An iloc of version 1: item, offset in the idat box, length."""
    listed = (struct.pack(">HHHHII", item, 1, 0, 1, offset, length) for item, offset, length in items)
    return struct.pack(">HH", 0x4400, len(items)) + b"".join(listed)


def track(width: int = 40, height: int = 30, *entry: bytes, handler: bytes = b"pict", version: int = 0) -> bytes:
    times = bytes(20 if version == 0 else 32)
    tkhd = full(b"tkhd", times, bytes(52), struct.pack(">II", width << 16, height << 16), version=version)
    stsd = full(b"stsd", struct.pack(">I", 1), box(b"av01", bytes(78), *entry))
    return box(b"trak", tkhd, box(b"mdia", full(b"hdlr", bytes(4), handler), box(b"minf", box(b"stbl", stsd))))


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        avif.size(window)
    return gave_up.value.reason


def test_brands_match() -> None:
    for major in (b"avif", b"avis", b"mif1", b"msf1"):
        assert avif.matches(ftyp(major))
    assert avif.matches(ftyp(b"mif1", b"heic")[:18]), "the brands are not all seen"
    assert avif.matches(ftyp(b"avif", b"mif1"))
    assert not avif.matches(ftyp(b"mif1", b"heic", b"miaf"))
    assert not avif.matches(ftyp(b"heic", b"avif"))
    assert not avif.matches(ftyp(b"isom", b"avif"))
    assert not avif.matches(b"\0\0\0\x1cftypavi")


def test_a_picture(window_of: Open) -> None:
    assert avif.size(window_of(ftyp() + meta(ispe(317, 203)) + box(b"mdat", b"pixels"))) == Size(317, 203)
    assert avif.size(window_of(ftyp() + box(b"free", bytes(5000)) + meta(ispe()))) == Size(40, 30)


@pytest.mark.parametrize(("turns", "seen"), [(0, (40, 30)), (1, (30, 40)), (2, (40, 30)), (3, (30, 40))])
def test_quarter_turns(window_of: Open, turns: int, seen: tuple[int, int]) -> None:
    for properties in ((ispe(), irot(turns)), (irot(turns), IMIR, ispe()), (ispe(), CLAP, irot(turns))):
        assert avif.size(window_of(ftyp() + meta(*properties))) == Size(*seen)


def test_what_is_said_of_other_items_does_not_count(window_of: Open) -> None:
    properties = ispe(4, 3), irot(1), ispe(40, 30), ispe(5, 5)
    said = [(7, [1, 2]), (9, [3, 2]), (8, [4])]
    for version in (0, 1):
        for flags in (0, 1):
            table = ipma(said, version=version, flags=flags)
            assert avif.size(window_of(ftyp() + meta(*properties, primary=9, said=table))) == Size(30, 40)
    essential = ipma([(9, [0x8003])], flags=1)
    assert avif.size(window_of(ftyp() + meta(*properties, primary=9, said=essential))) == Size(40, 30)
    first = ipma([(9, [3, 4, 0, 99])])
    assert avif.size(window_of(ftyp() + meta(*properties, primary=9, said=first))) == Size(40, 30)


def test_a_grid_of_many_tiles(window_of: Open) -> None:
    said = ipma([*((tile, [2, 2, 2]) for tile in range(1, 257)), (999, [1])])
    window = window_of(ftyp() + meta(ispe(4000, 3000), ispe(256, 256), primary=999, said=said))
    assert avif.size(window) == Size(4000, 3000)
    assert window.num_steps < 300


def test_a_sequence_is_as_large_as_its_first_track_of_pictures(window_of: Open) -> None:
    head = ftyp(b"avis", b"avis", b"msf1")
    other = track(4, 3, handler=b"auxv")
    alpha = box(b"trak", box(b"tref", box(b"auxl", bytes(4))), track(5, 5)[8:])
    assert avif.size(window_of(head + box(b"moov", other, alpha, track()))) == Size(40, 30)
    assert avif.size(window_of(head + box(b"moov", track(version=1)))) == Size(40, 30)
    assert avif.size(window_of(head + box(b"moov", track(40, 30, irot(1))))) == Size(30, 40)
    assert refusal(window_of(head + box(b"moov", other))) is Reason.BAD_HEADER
    assert refusal(window_of(head + box(b"moov", track(version=2)))) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    ("major", "compatible", "seen"),
    [
        (b"avif", b"avis", (4, 3)),
        (b"avis", b"avif", (40, 30)),
        (b"mif1", b"avis", (40, 30)),
        (b"msf1", b"avis", (40, 30)),
        (b"mif1", b"miaf", (4, 3)),
    ],
)
def test_the_major_brand_says_whether_it_moves(
    window_of: Open, major: bytes, compatible: bytes, seen: tuple[int, int]
) -> None:
    head = ftyp(major, b"avif", compatible)
    assert avif.size(window_of(head + meta(ispe(4, 3)) + box(b"moov", track()))) == Size(*seen)


def test_a_file_that_claims_both_needs_both(window_of: Open) -> None:
    assert refusal(window_of(ftyp(b"avif", b"avif", b"avis") + meta(ispe()))) is Reason.TRUNCATED_HEADER


@pytest.mark.parametrize("brands", [(b"mif1", b"heic"), (b"msf1", b"hevc", b"mif1")])
def test_heic_that_calls_itself_generic_is_refused(window_of: Open, brands: tuple[bytes, ...]) -> None:
    window = window_of(ftyp(*brands) + meta(ispe()))
    assert refusal(window) is Reason.REFUSED_FORMAT
    assert window.num_steps == 2


def described(
    exif: bytes = b"", xmp: bytes = SIDEWAYS, *more: bytes, described_item: int = 1, version: int = 2
) -> bytes:
    """A picture with an Exif item and an XMP item, in the idat box."""
    infos = [infe(1, b"av01"), infe(2, b"Exif", version=version), infe(3, b"mime", RDF, version=version)]
    where = places((1, 0, 0), (2, 0, len(exif)), (3, len(exif), len(xmp)))
    describing = [(2, described_item), (3, described_item)]
    return ftyp() + meta(ispe(), *more, infos=infos, places=where, describing=describing, idat=exif + xmp)


def test_xmp_counts_where_nothing_else_speaks(window_of: Open, exif_block: Exif) -> None:
    assert avif.size(window_of(described())) == Size(30, 40)
    assert avif.size(window_of(described(version=3))) == Size(30, 40)
    assert avif.size(window_of(described(xmp=SIDEWAYS.replace(b"6", b"1")))) == Size(40, 30)
    assert avif.size(window_of(described(b"", SIDEWAYS, irot(2)))) == Size(40, 30)
    assert avif.size(window_of(described(b"", SIDEWAYS, IMIR))) == Size(40, 30)
    assert avif.size(window_of(described(described_item=4))) == Size(40, 30)
    for orientation in (1, 6):
        assert avif.size(window_of(described(bytes(4) + exif_block(orientation)))) == Size(40, 30)
    silent = b"II*\0\x08\0\0\0\0\0"
    assert avif.size(window_of(described(bytes(4) + silent))) == Size(30, 40)


def test_what_lies_in_many_places_or_describes_many_items(window_of: Open) -> None:
    scattered = struct.pack(">HHHHHIH", 0x4440, 1, 3, 0, 0, 0, MAX_LISTED + 1) + bytes(8 * (MAX_LISTED + 1))
    about = meta(ispe(), infos=[infe(3, b"mime", RDF)], places=scattered, describing=[(3, 1)])
    assert refusal(window_of(ftyp() + about)) is Reason.HEADER_LIMIT


def test_exif_alone_does_not_turn(window_of: Open, exif_block: Exif) -> None:
    assert avif.size(window_of(described(bytes(4) + exif_block(6), b"no packet"))) == Size(40, 30)


def test_xmp_of_a_track(window_of: Open) -> None:
    about = meta(
        ispe(), infos=[infe(3, b"mime", RDF)], places=places((3, 0, len(SIDEWAYS))), describing=[], idat=SIDEWAYS
    )
    trak = box(b"trak", track()[8:], about)
    head = ftyp(b"avis", b"avis", b"msf1")
    assert avif.size(window_of(head + box(b"moov", trak))) == Size(30, 40)


def test_xmp_in_the_file_and_in_pieces(window_of: Open) -> None:
    half = len(SIDEWAYS) // 2

    def picture(at: int) -> bytes:
        extents = struct.pack(">HIHIIII", 0, at, 2, 0, half, half, len(SIDEWAYS) - half)
        where = struct.pack(">HHHH", 0x4440, 1, 3, 0) + extents
        return ftyp() + meta(ispe(), infos=[infe(3, b"mime", RDF)], places=where, describing=[(3, 1)])

    whole = picture(len(picture(0))) + SIDEWAYS
    assert avif.size(window_of(whole)) == Size(30, 40)
    assert refusal(window_of(whole[:-1])) is Reason.TRUNCATED_HEADER


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (ftyp() + meta(ispe(0, 30)), Reason.BAD_HEADER),
        (ftyp() + meta(ispe(60_000, 60_000)), Reason.TOO_MANY_PIXELS),
        (ftyp() + meta(irot(1)), Reason.BAD_HEADER),
        (ftyp() + meta(ispe(), said=ipma([(2, [1])])), Reason.BAD_HEADER),
        (ftyp() + full(b"meta"), Reason.BAD_HEADER),
        (ftyp() + full(b"meta", b"\0\0\0\4pitm"), Reason.BAD_HEADER),
        (ftyp() + full(b"meta", b"\xff\xff\xff\xfepitm"), Reason.TRUNCATED_HEADER),
        (ftyp() + full(b"meta", struct.pack(">I4sQ", 1, b"pitm", 2**63)) + bytes(9), Reason.BAD_HEADER),
        (ftyp() + struct.pack(">I4sQ", 1, b"free", 2**63), Reason.TRUNCATED_HEADER),
        (ftyp() + b"\0\0\0\0free" + meta(ispe()), Reason.TRUNCATED_HEADER),
        (ftyp() + meta(ispe(), said=full(b"ipma", bytes(40_000))), Reason.HEADER_LIMIT),
        (ftyp(b"avif", *[b"none"] * 70) + meta(ispe()), Reason.HEADER_LIMIT),
        (ftyp(), Reason.TRUNCATED_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize(
    "content",
    [
        ftyp() + box(b"free") * 100_000,
        ftyp() + full(b"meta", box(b"iprp") * 50_000),
        ftyp() + meta(*[box(b"free")] * 50_000, said=ipma([(1, [1])])),
        ftyp() + meta(ispe(), said=full(b"ipma", b"\xff\xff\xff\xff", struct.pack(">HB", 7, 0) * 10_000)),
        ftyp() + meta(ispe(), infos=[infe(9, b"mime", RDF)] * 5000, places=places()),
        ftyp() + meta(ispe(), infos=[infe(9, b"mime", RDF)], places=places(), describing=[(8, 1)] * 5000),
        ftyp() + meta(ispe(), infos=[infe(9, b"mime", RDF)], places=places(*[(8, 0, 1)] * 1000), describing=[(9, 1)]),
        ftyp(b"avis", b"avis") + box(b"moov", box(b"trak", box(b"mdia", full(b"hdlr", bytes(8)))) * 5000),
    ],
    ids=["boxes", "tables", "properties", "associations", "items", "references", "places", "tracks"],
)
def test_endless_tables_end_at_the_step_limit(window_of: Open, content: bytes) -> None:
    window = window_of(content)
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == avif.MAX_STEPS == 512
    assert window.bytes_read < 40 * 1024


@pytest.mark.parametrize(
    "whole",
    [ftyp() + meta(ispe(), irot(1)), described(), ftyp(b"avis", b"avis") + box(b"moov", track(30, 40, irot(1)))],
)
def test_every_cut_is_a_truncation(window_of: Open, whole: bytes) -> None:
    seen = avif.size(window_of(whole + box(b"mdat", b"pixels")))
    assert seen == avif.size(window_of(whole)) in {Size(30, 40), Size(40, 30)}
    for cut in range(12, len(whole)):
        assert refusal(window_of(whole[:cut])) is Reason.TRUNCATED_HEADER
