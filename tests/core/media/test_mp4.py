"""Is an MP4 read by its boxes: moov wherever it stands, turned tracks, edit lists, fragments, and never without end?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import mp4
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Clip, Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]

UPRIGHT = (1 << 16, 0, 0, 1 << 16)
QUARTER = (0, 1 << 16, -(1 << 16), 0)


def box(kind: bytes, *payload: bytes) -> bytes:
    data = b"".join(payload)
    return struct.pack(">I4s", 8 + len(data), kind) + data


def long_box(kind: bytes, length: int, payload: bytes = b"") -> bytes:
    return struct.pack(">I4sQ", 1, kind, length) + payload


def words(*values: int) -> bytes:
    return struct.pack(f">{len(values)}I", *values)


def packed(*fields: tuple[int, int]) -> bytes:
    """Values of so many bits each, one behind the other."""
    bits = "".join(f"{value:0{num_bits}b}" for value, num_bits in fields)
    return int(bits.ljust(-(-len(bits) // 8) * 8, "0"), 2).to_bytes(-(-len(bits) // 8), "big")


FTYP = box(b"ftyp", b"isom\0\0\2\0isom")
MVHD = box(b"mvhd", words(0, 0, 0, 1000, 0), bytes(80))
MVHD_LONG = box(b"mvhd", b"\1\0\0\0", bytes(16), words(1000), struct.pack(">Q", 0), bytes(80))


def tkhd(number: int, matrix: tuple[int, ...], sides: tuple[int, int], *, is_long: bool = False) -> bytes:
    head = b"\1\0\0\7" + bytes(16) + words(number) if is_long else b"\0\0\0\7" + bytes(8) + words(number)
    a, b, c, d = matrix
    fields = struct.pack(">9i", a, b, 0, c, d, 0, 0, 0, 1 << 30)
    return box(b"tkhd", head, bytes(28 if is_long else 24), fields, words(sides[0] << 16, sides[1] << 16))


def mdhd(timescale: int, num_ticks: int, *, is_long: bool = False) -> bytes:
    if is_long:
        return box(b"mdhd", b"\1\0\0\0", bytes(16), words(timescale), struct.pack(">Q", num_ticks), bytes(4))
    return box(b"mdhd", bytes(12), words(timescale, num_ticks), bytes(4))


def visual(width: int, height: int) -> bytes:
    return box(b"avc1", bytes(24), struct.pack(">HH", width, height), bytes(50))


def audible(rate: int, num_channels: int, *children: bytes, version: int = 0) -> bytes:
    fields = struct.pack(">HHIHHHHI", version, 0, 0, num_channels, 16, 0, 0, rate << 16)
    return box(b"mp4a", bytes(8), fields, *children)


def elst(*edits: tuple[int, int]) -> bytes:
    return box(b"edts", box(b"elst", words(0, len(edits)), *(struct.pack(">Iii", *edit, 1 << 16) for edit in edits)))


def trak(
    kind: bytes = b"vide",
    *,
    entry: bytes = b"",
    runs: tuple[tuple[int, int], ...] = ((20, 512),),
    num_samples: int | None = None,
    timescale: int = 5120,
    num_ticks: int | None = None,
    matrix: tuple[int, ...] = UPRIGHT,
    sides: tuple[int, int] = (64, 48),
    number: int = 1,
    edits: bytes = b"",
    is_long: bool = False,
    sizes: bytes = b"stsz",
) -> bytes:
    count = sum(run for run, _ in runs) if num_samples is None else num_samples
    ticks = sum(run * each for run, each in runs) if num_ticks is None else num_ticks
    tables = box(
        b"stbl",
        box(b"stsd", words(0, 1), entry or visual(*sides)),
        box(b"stts", words(0, len(runs)), *(words(*run) for run in runs)),
        box(sizes, words(0, 0, count), bytes(4 * count)),
    )
    hdlr = box(b"hdlr", words(0, 0), kind, bytes(13))
    media = box(b"mdia", mdhd(timescale, ticks, is_long=is_long), hdlr, box(b"minf", box(b"vmhd", bytes(12)), tables))
    return box(b"trak", tkhd(number, matrix, sides, is_long=is_long), edits, media)


def movie(*tracks: bytes, mvhd: bytes = MVHD) -> bytes:
    return FTYP + box(b"moov", mvhd, *tracks)


def refusal(window: Window, read: Callable[[Window], Clip | Sound] = mp4.clip) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        read(window)
    return gave_up.value.reason


SOUND = trak(b"soun", entry=audible(16_000, 1), runs=((31, 1024), (1, 256)), timescale=16_000)
CLIP = Clip(64, 48, 20, 10.0, 2.0)


def test_what_matches() -> None:
    assert mp4.matches(FTYP)
    assert mp4.matches(b"\0\0\0\x08wide\0\0\0\0mdat")
    assert mp4.matches(box(b"moov", MVHD))
    assert not mp4.matches(box(b"ftyp", b"avif\0\0\0\0"))
    assert not mp4.matches(b"\0\0\0\x0cjP  \r\n\x87\n")


@pytest.mark.parametrize(
    "content",
    [
        movie(trak()),
        movie(trak(), SOUND),
        movie(SOUND, trak()),
        FTYP + box(b"mdat", bytes(5000)) + movie(trak())[len(FTYP) :],
        FTYP + long_box(b"mdat", 16 + 5000, bytes(5000)) + movie(trak())[len(FTYP) :],
        movie(trak()) + box(b"mdat", bytes(99)),
        movie(trak()) + struct.pack(">I4s", 0, b"mdat") + bytes(99),
        movie(trak(is_long=True), mvhd=MVHD_LONG),
        movie(trak(sizes=b"stz2")),
        box(b"wide") + struct.pack(">I4s", 0, b"moov") + movie(trak())[len(FTYP) + 8 :],
        movie(box(b"udta", bytes(40)), trak()),
    ],
)
def test_moov_is_found_wherever_it_stands(window_of: Open, content: bytes) -> None:
    window = window_of(content)
    assert mp4.clip(window) == CLIP
    assert window.num_steps < 80


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        (UPRIGHT, (64, 48)),
        ((-(1 << 16), 0, 0, -(1 << 16)), (64, 48)),
        (QUARTER, (48, 64)),
        ((0, -(1 << 16), 1 << 16, 0), (48, 64)),
        ((46341, 46341, -46341, 46341), (64, 48)),
        ((0, 0, 0, 0), (64, 48)),
    ],
)
def test_a_quarter_turn_swaps_the_sides(window_of: Open, matrix: tuple[int, ...], expected: tuple[int, int]) -> None:
    for is_long in (False, True):
        found = mp4.clip(window_of(movie(trak(matrix=matrix, is_long=is_long))))
        assert (found.width, found.height) == expected


def test_pixels_are_those_of_the_sample_entry(window_of: Open) -> None:
    anamorphic = mp4.clip(window_of(movie(trak(entry=visual(64, 48), sides=(128, 48)))))
    assert (anamorphic.width, anamorphic.height) == (64, 48)
    unsaid = mp4.clip(window_of(movie(trak(entry=visual(0, 0), sides=(128, 48)))))
    assert (unsaid.width, unsaid.height) == (128, 48)
    assert refusal(window_of(movie(trak(entry=visual(65_535, 65_535))))) is Reason.TOO_MANY_PIXELS
    assert refusal(window_of(movie(trak(entry=visual(0, 0), sides=(0, 5))))) is Reason.BAD_HEADER


@pytest.mark.parametrize(
    ("runs", "num_ticks", "num_frames", "fps"),
    [
        (((20, 512),), None, 20, 10.0),
        (((19, 512), (1, 40)), None, 20, 10.0),
        (((10, 512), (10, 256)), None, 20, 20 * 5120 / 7680),
        (((20, 512),), 0, 20, 10.0),
        (((20, 512),), 0xFFFFFFFF, 20, 10.0),
        (((1, 512), (1, 1024)) * 300, None, 600, 600 * 5120 / 460_800),
    ],
)
def test_the_rate_is_the_average(
    window_of: Open, runs: tuple[tuple[int, int], ...], num_ticks: int | None, num_frames: int, fps: float
) -> None:
    found = mp4.clip(window_of(movie(trak(runs=runs, num_ticks=num_ticks))))
    assert (found.num_frames, found.fps, found.duration_s) == (num_frames, fps, num_frames / fps)


def test_a_clip_of_unknown_rate_has_its_size(window_of: Open) -> None:
    assert mp4.clip(window_of(movie(trak(runs=(), num_samples=20)))) == Clip(64, 48, reason=Reason.NO_DURATION)
    assert mp4.clip(window_of(movie(trak(runs=((20, 0),))))) == Clip(64, 48, reason=Reason.NO_DURATION)


@pytest.mark.parametrize(
    ("edits", "num_frames"),
    [
        (elst((1000, 0)), 10),
        (elst((500, -1), (1000, 512)), 10),
        (elst((500, 0), (500, 0)), 10),
        (elst((2000, 1024)), 20),
        (elst((1950, 1024)), 20),
        (elst((0, 1024)), 20),
        (elst(*[(1, 0)] * 65), 20),
        (elst(), 20),
    ],
)
def test_an_edit_list_hides_frames(window_of: Open, edits: bytes, num_frames: int) -> None:
    found = mp4.clip(window_of(movie(trak(edits=edits))))
    assert (found.num_frames, found.fps) == (num_frames, 10.0)


def test_a_sound_by_its_track(window_of: Open) -> None:
    assert mp4.sound(window_of(movie(SOUND))) == Sound(2.0, 16_000, 1)
    assert mp4.sound(window_of(movie(trak(), SOUND))) == Sound(2.0, 16_000, 1)
    trimmed = trak(b"soun", entry=audible(16_000, 1), runs=((32, 1024),), timescale=16_000, edits=elst((2000, 1024)))
    assert mp4.sound(window_of(movie(trimmed))) == Sound(2.0, 16_000, 1)
    high = trak(b"soun", entry=audible(0, 2), runs=((96, 1000),), timescale=96_000)
    assert mp4.sound(window_of(movie(high))) == Sound(1.0, 96_000, 2)
    endless = trak(b"soun", entry=audible(16_000, 1), runs=(), timescale=16_000)
    assert mp4.sound(window_of(movie(endless))) == Sound(None, 16_000, 1, Reason.NO_DURATION)


@pytest.mark.parametrize(
    ("config", "rate", "num_channels"),
    [
        (b"\x14\x08", 16_000, 1),
        (b"\x12\x10", 44_100, 2),
        (b"\x2b\x11\x88\0", 48_000, 2),
        (b"\xeb\x09\x88\0", 48_000, 2),
        (packed((2, 5), (15, 4), (16_128, 24), (1, 4)), 16_128, 1),
        (packed((31, 5), (10, 6), (4, 4), (6, 4)), 44_100, 6),
        (b"\x15\x80", 99_000, 7),
        (b"", 99_000, 7),
    ],
)
def test_the_codecs_own_configuration_goes_first(window_of: Open, config: bytes, rate: int, num_channels: int) -> None:
    specific = b"\x05\x80\x80" + bytes([len(config)]) + config
    decoder = b"\x04" + bytes([13 + len(specific)]) + bytes(13) + specific
    stream = b"\x03\x80\x80\x80" + bytes([3 + len(decoder)]) + b"\0\1\0" + decoder
    entry = struct.pack(">HHIHHHHI", 0, 0, 0, 7, 16, 0, 0, 0)
    esds = box(b"esds", words(0), stream)
    sound = trak(b"soun", entry=box(b"mp4a", bytes(8), entry, esds), runs=((99, 1000),), timescale=99_000)
    assert mp4.sound(window_of(movie(sound))) == Sound(1.0, rate, num_channels)


def test_quicktimes_second_version(window_of: Open) -> None:
    entry = audible(1, 3, words(72), struct.pack(">dI", 48_000.0, 6), bytes(20), version=2)
    sound = trak(b"soun", entry=entry, runs=((48, 1000),), timescale=48_000)
    assert mp4.sound(window_of(movie(sound))) == Sound(1.0, 48_000, 6)


def trex(number: int = 1, num_ticks: int = 512) -> bytes:
    return box(b"trex", words(0, number, 1, num_ticks, 0, 0))


def mehd(num_ticks: int) -> bytes:
    return box(b"mehd", words(0, num_ticks))


def moof(num_samples: int, *, number: int = 1, ticks: list[int] | None = None, default: int | None = None) -> bytes:
    head = words(0, number) if default is None else words(0x9, number, 0, 0, default)
    run = words(0x101, num_samples, 0, *ticks) if ticks else words(0x1, num_samples, 0)
    return box(b"moof", box(b"mfhd", words(0, 1)), box(b"traf", box(b"tfhd", head), box(b"trun", run)))


def sidx(seconds: list[int], *, number: int = 1, version: int = 0) -> bytes:
    times = bytes(16 if version else 8)
    entries = b"".join(words(100, each, 0) for each in seconds)
    return box(
        b"sidx", bytes([version, 0, 0, 0]), words(number, 1), times, struct.pack(">HH", 0, len(seconds)), entries
    )


EMPTY = {"runs": (), "num_samples": 0}
MDAT = box(b"mdat", bytes(600))


@pytest.mark.parametrize(
    "fragments",
    [
        moof(10) + MDAT + moof(10) + MDAT,
        moof(20, default=512) + MDAT,
        moof(4, ticks=[512, 500, 524, 512]) + MDAT + moof(16) + MDAT,
        moof(99, number=2) + moof(20) + MDAT,
        sidx([1, 1]) + moof(10) + MDAT + moof(10) + MDAT,
        sidx([1, 1], version=1) + moof(20) + MDAT,
        box(b"free", bytes(9)) + moof(20) + box(b"mfra", bytes(40)),
    ],
)
def test_fragments_are_counted(window_of: Open, fragments: bytes) -> None:
    content = movie(trak(**EMPTY), box(b"mvex", trex(2, 9), trex())) + fragments
    assert mp4.clip(window_of(content)) == CLIP


def test_the_first_fragment_may_stand_in_moov(window_of: Open) -> None:
    assert mp4.clip(window_of(movie(trak(runs=((5, 512),)), box(b"mvex", trex())) + moof(15))) == CLIP
    sound = trak(b"soun", entry=audible(16_000, 1), runs=((10, 1600),), timescale=16_000)
    content = movie(sound, box(b"mvex", trex(1, 1600))) + moof(10)
    assert mp4.sound(window_of(content)) == Sound(2.0, 16_000, 1)


@pytest.mark.parametrize(
    ("ahead", "fragments", "expected"),
    [
        (mehd(2000), moof(10) + MDAT[:-1], CLIP),
        (mehd(2000), moof(10) + MDAT, CLIP),
        (mehd(2000), moof(1) * 300, CLIP),
        (b"", sidx([1, 1]) + moof(10) + MDAT[:-1], CLIP),
        (b"", sidx([1] * 9, number=2) + moof(20) + MDAT, CLIP),
        (b"", moof(10) + MDAT[:-1], Clip(64, 48, reason=Reason.TRUNCATED_HEADER)),
        (b"", moof(1) * 300, Clip(64, 48, reason=Reason.HEADER_LIMIT)),
        (mehd(2000), MDAT[:-1], Clip(64, 48, duration_s=2.0, reason=Reason.TRUNCATED_HEADER)),
        (b"", b"", Clip(64, 48, reason=Reason.NO_DURATION)),
    ],
)
def test_where_not_all_fragments_can_be_seen(window_of: Open, ahead: bytes, fragments: bytes, expected: Clip) -> None:
    content = movie(trak(**EMPTY), box(b"mvex", ahead, trex())) + fragments
    assert mp4.clip(window_of(content)) == expected


def test_a_sound_in_fragments_that_cannot_all_be_seen(window_of: Open) -> None:
    sound = trak(b"soun", entry=audible(16_000, 1), timescale=16_000, **EMPTY)
    cut = MDAT[:-1]
    told = movie(sound, box(b"mvex", mehd(2000), trex(1, 1024))) + moof(3) + cut
    assert mp4.sound(window_of(told)) == Sound(2.0, 16_000, 1)
    untold = movie(sound, box(b"mvex", trex(1, 1024))) + moof(3) + cut
    assert mp4.sound(window_of(untold)) == Sound(None, 16_000, 1, Reason.TRUNCATED_HEADER)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (FTYP, Reason.BAD_HEADER),
        (FTYP + MDAT, Reason.BAD_HEADER),
        (FTYP + MDAT[:-1], Reason.TRUNCATED_HEADER),
        (movie(trak())[:-1], Reason.TRUNCATED_HEADER),
        (movie(SOUND), Reason.UNKNOWN_FORMAT),
        (movie(), Reason.UNKNOWN_FORMAT),
        (movie(box(b"trak")), Reason.UNKNOWN_FORMAT),
        (movie(trak(timescale=0)), Reason.BAD_HEADER),
        (movie(trak(runs=((1, 1),), timescale=5_000_000)), Reason.BAD_HEADER),
        (movie(trak(runs=((1, 90_000),), timescale=1)), Reason.BAD_HEADER),
        (movie(trak(num_samples=0)), Reason.BAD_HEADER),
        (movie(box(b"trak", box(b"mdia", box(b"hdlr", bytes(8), b"vide")))), Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


@pytest.mark.parametrize("kind", [b"tkhd", b"mdhd", b"stsd", b"stts", b"stsz", b"hdlr", b"avc1"])
def test_a_table_that_is_too_short_or_missing(window_of: Open, kind: bytes) -> None:
    content = movie(trak())
    at = content.index(kind)
    length = int.from_bytes(content[at - 4 : at], "big")
    short = (
        content[: at - 4]
        + words(12)
        + content[at : at + 8]
        + box(b"free", bytes(length - 20))
        + content[at - 4 + length :]
    )
    window = window_of(short)
    assert len(short) == len(content)
    assert refusal(window) in {Reason.BAD_HEADER, Reason.UNKNOWN_FORMAT}
    missing = content[:at] + b"free" + content[at + 4 :]
    if kind != b"avc1":
        assert refusal(window_of(missing)) in {Reason.BAD_HEADER, Reason.UNKNOWN_FORMAT}


NESTED = b"".join(struct.pack(">I4s", 8 * (100_000 - level), b"minf") for level in range(100_000))
NO_LIMIT = {"length 4", "length 0", "length 2^63", "length 2^64-1", "a million samples", "many edits", "a lying run"}
HOSTILE: dict[str, tuple[bytes, Clip | Reason]] = {
    "length 4": (FTYP + struct.pack(">I4s", 4, b"free") * 9, Reason.BAD_HEADER),
    "length 0": (FTYP + struct.pack(">I4s", 0, b"free") + bytes(99), Reason.BAD_HEADER),
    "length 2^63": (FTYP + long_box(b"free", 1 << 63, bytes(99)), Reason.TRUNCATED_HEADER),
    "length 2^64-1": (FTYP + long_box(b"moov", (1 << 64) - 1, bytes(99)), Reason.TRUNCATED_HEADER),
    "a million samples": (movie(trak(runs=((1, 512),), num_samples=1 << 20)), Reason.BAD_HEADER),
    "many edits": (movie(trak(edits=elst(*[(1, 0)] * 5000))), CLIP),
    "a lying run": (
        movie(trak(**EMPTY), box(b"mvex", trex()))
        + box(b"moof", box(b"traf", box(b"tfhd", words(0, 1)), box(b"trun", words(0x100, 1 << 31)))),
        Clip(64, 48, reason=Reason.BAD_HEADER),
    ),
    "100,000 boxes": (FTYP + box(b"free") * 100_000, Reason.HEADER_LIMIT),
    "100,000 nested boxes": (movie(box(b"trak", NESTED)), Reason.HEADER_LIMIT),
    "10,000 tracks": (movie(box(b"trak", box(b"hdlr", bytes(8), b"soun")) * 10_000), Reason.HEADER_LIMIT),
    "many fragments": (
        movie(trak(**EMPTY), box(b"mvex", trex())) + (moof(1) + MDAT) * 500,
        Clip(64, 48, reason=Reason.HEADER_LIMIT),
    ),
    "long fragments": (
        movie(trak(**EMPTY), box(b"mvex", trex())) + moof(9000, ticks=[1] * 9000) * 20,
        Clip(64, 48, reason=Reason.HEADER_LIMIT),
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_boxes_end_at_the_limits(window_of: Open, name: str) -> None:
    content, expected = HOSTILE[name]
    window = window_of(content)
    if isinstance(expected, Clip):
        assert mp4.clip(window) == expected
    else:
        assert refusal(window) is expected
    assert window.num_steps <= (60 if name in NO_LIMIT else MAX_STEPS)
    assert window.bytes_read <= (256 << 10 if name == "long fragments" else 16 * MAX_STEPS)
    assert name in NO_LIMIT or name == "long fragments" or window.num_steps == MAX_STEPS
    as_sound = window_of(content)
    assert refusal(as_sound, mp4.sound) is not None
    assert as_sound.num_steps <= MAX_STEPS
