"""Is a WebM read by its elements, also one that a browser recorded live, and never without end?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import webm
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Clip, Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]

UNKNOWN = b"\x01" + b"\xff" * 7


def element(kind: int, *payload: bytes, size: bytes | None = None) -> bytes:
    data = b"".join(payload)
    return kind.to_bytes((kind.bit_length() + 7) // 8, "big") + (size or sized(len(data))) + data


def sized(length: int, num_bytes: int = 4) -> bytes:
    return (length | 1 << 7 * num_bytes).to_bytes(num_bytes, "big")


def number(kind: int, value: int) -> bytes:
    return element(kind, value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big"))


def info(ticks: float | None = 2000.0, scale: int | None = 1_000_000, form: str = ">d") -> bytes:
    values = [number(0x2AD7B1, scale)] if scale else []
    values += [element(0x4489, struct.pack(form, ticks))] if ticks is not None else []
    return element(0x1549A966, *values, element(0x4D80, b"muxer"))


def picture(width: int = 64, height: int = 48, *, frame_ns: int = 100_000_000, track: int = 1) -> bytes:
    rate = [number(0x23E383, frame_ns)] if frame_ns else []
    video = element(0xE0, number(0xB0, width), number(0xBA, height))
    return element(0xAE, number(0xD7, track), number(0x83, 1), element(0x86, b"V_VP8"), *rate, video)


def heard(rate: float = 16_000.0, num_channels: int = 1, *, codec: bytes = b"A_VORBIS", track: int = 2) -> bytes:
    audio = element(0xE1, element(0xB5, struct.pack(">f", rate)), number(0x9F, num_channels))
    return element(0xAE, number(0xD7, track), number(0x83, 2), element(0x86, codec), audio)


def tracks(*entries: bytes) -> bytes:
    return element(0x1654AE6B, *entries)


def block(ticks: int, track: int = 1, num_bytes: int = 40) -> bytes:
    return element(0xA3, bytes([track | 0x80]), struct.pack(">hB", ticks, 0), bytes(num_bytes))


def grouped(ticks: int, track: int = 1) -> bytes:
    return element(0xA0, element(0xA1, bytes([track | 0x80]), struct.pack(">hB", ticks, 0), bytes(9)), number(0x9B, 9))


def cluster(time: int, *blocks: bytes, size: bytes | None = None) -> bytes:
    return element(0x1F43B675, number(0xE7, time), *blocks, size=size)


HEAD = element(0x1A45DFA3, number(0x4286, 1), element(0x4282, b"webm"))


def movie(*parts: bytes, size: bytes | None = None) -> bytes:
    return HEAD + element(0x18538067, *parts, size=size)


def refusal(window: Window, read: Callable[[Window], Clip | Sound] = webm.clip) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        read(window)
    return gave_up.value.reason


CLIP = Clip(64, 48, 20, 10.0, 2.0)
FRAMES = [block(each * 100) for each in range(20)]


def test_what_matches() -> None:
    assert webm.matches(HEAD)
    assert not webm.matches(b"\x1aE\xdf\xa4")


@pytest.mark.parametrize(
    "content",
    [
        movie(info(), tracks(picture())),
        movie(info(), tracks(picture()), size=UNKNOWN),
        movie(info(2000.0, form=">f"), tracks(heard(), picture()), cluster(0, *FRAMES)),
        movie(tracks(picture()), element(0xEC, bytes(999)), info(scale=None)),
        movie(element(0x114D9B74, bytes(60)), info(2.0, 1_000_000_000), tracks(picture(), picture(9, 9, track=3))),
    ],
)
def test_frames_are_duration_times_rate(window_of: Open, content: bytes) -> None:
    assert webm.clip(window_of(content)) == CLIP


def test_a_part_of_a_frame_counts_from_its_half_on(window_of: Open) -> None:
    assert webm.clip(window_of(movie(info(2049.0), tracks(picture())))).num_frames == 20
    assert webm.clip(window_of(movie(info(2050.0), tracks(picture())))).num_frames == 21


@pytest.mark.parametrize(
    "clusters",
    [
        cluster(0, *FRAMES),
        cluster(0, *FRAMES[:10]) + cluster(1000, *FRAMES[:10]),
        cluster(0, *FRAMES[:10], size=UNKNOWN) + cluster(1000, *FRAMES[:10], size=UNKNOWN),
        cluster(0, *(grouped(each * 100) for each in range(20))),
        cluster(0, *FRAMES, block(0, 2), grouped(5, 2)) + element(0x1C53BB6B, bytes(30)),
        cluster(500, *(block(each * 100 - 500) for each in range(20))),
        cluster(0, *FRAMES[10:], *FRAMES[:10]),
        element(0x1254C367, bytes(9)) + cluster(0, *FRAMES),
    ],
)
@pytest.mark.parametrize("size", [None, UNKNOWN])
def test_the_blocks_of_a_live_recording_are_counted(window_of: Open, clusters: bytes, size: bytes | None) -> None:
    live = movie(info(None), tracks(picture(frame_ns=0)), clusters, size=size)
    assert webm.clip(window_of(live)) == CLIP
    steady = movie(info(None), tracks(picture()), clusters, size=size)
    assert webm.clip(window_of(steady)) == CLIP
    without_rate = movie(info(4000.0), tracks(picture(frame_ns=0)), clusters, size=size)
    assert webm.clip(window_of(without_rate)) == Clip(64, 48, 20, 5.0, 4.0)


def test_what_cannot_be_counted_has_a_reason(window_of: Open) -> None:
    head = info(None), tracks(picture(frame_ns=0))
    live = movie(*head, cluster(0, *FRAMES, size=UNKNOWN), size=UNKNOWN)
    assert webm.clip(window_of(live[:-1])) == Clip(64, 48, reason=Reason.TRUNCATED_HEADER)
    assert webm.clip(window_of(live + block(2000)[:3])) == Clip(64, 48, reason=Reason.TRUNCATED_HEADER)
    known = movie(*head, cluster(0, *FRAMES), size=UNKNOWN)
    assert webm.clip(window_of(known[: -len(FRAMES[0])])) == Clip(64, 48, reason=Reason.TRUNCATED_HEADER)
    assert webm.clip(window_of(movie(*head))) == Clip(64, 48, reason=Reason.NO_DURATION)
    assert webm.clip(window_of(movie(*head, cluster(0, block(0))))) == Clip(64, 48, reason=Reason.NO_DURATION)
    junk = movie(*head, cluster(0, *FRAMES, size=UNKNOWN), b"\0\0", size=UNKNOWN)
    assert webm.clip(window_of(junk)) == Clip(64, 48, reason=Reason.BAD_HEADER)
    endless = movie(*head, cluster(0, element(0xA3, size=UNKNOWN), size=UNKNOWN), size=UNKNOWN)
    assert webm.clip(window_of(endless)) == Clip(64, 48, reason=Reason.BAD_HEADER)
    told = movie(info(2000.0), head[1], cluster(0, *FRAMES, size=UNKNOWN), size=UNKNOWN)
    assert webm.clip(window_of(told[:-1])) == Clip(64, 48, duration_s=2.0, reason=Reason.TRUNCATED_HEADER)


def test_a_sound(window_of: Open) -> None:
    assert webm.sound(window_of(movie(info(), tracks(picture(), heard())))) == Sound(2.0, 16_000, 1)
    opus = movie(info(), tracks(heard(16_000.0, 2, codec=b"A_OPUS")))
    assert webm.sound(window_of(opus)) == Sound(2.0, 48_000, 2)
    live = movie(info(None), tracks(heard()), cluster(0, *(block(each * 20, 2) for each in range(100))))
    assert webm.sound(window_of(live)) == Sound(2.0, 16_000, 1)
    assert webm.sound(window_of(live[:-1])) == Sound(None, 16_000, 1, Reason.TRUNCATED_HEADER)
    assert webm.sound(window_of(movie(info(None), tracks(heard())))) == Sound(None, 16_000, 1, Reason.NO_DURATION)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (HEAD, Reason.BAD_HEADER),
        (movie(info(), tracks(heard())), Reason.UNKNOWN_FORMAT),
        (movie(info(), tracks()), Reason.UNKNOWN_FORMAT),
        (movie(info()), Reason.BAD_HEADER),
        (movie(info(), tracks(picture(0, 48))), Reason.BAD_HEADER),
        (movie(info(), tracks(picture(1 << 40, 48))), Reason.TOO_MANY_PIXELS),
        (movie(info(), tracks(picture(frame_ns=1))), Reason.BAD_HEADER),
        (movie(info(1e300), tracks(picture())), Reason.BAD_HEADER),
        (movie(info(float("inf")), tracks(picture())), Reason.BAD_HEADER),
        (movie(info(), element(0x1654AE6B, size=UNKNOWN)), Reason.BAD_HEADER),
        (movie(info(), tracks(element(0xAE, number(0xD7, 1), number(0x83, 1)))), Reason.BAD_HEADER),
        (movie(info(), element(0x1654AE6B, picture(), size=sized(5))), Reason.BAD_HEADER),
        (HEAD + b"\x18\x53\x80\x67\0", Reason.BAD_HEADER),
        (HEAD + b"\x08\x53\x80\x67\x81", Reason.BAD_HEADER),
        (HEAD + b"\0", Reason.BAD_HEADER),
        (HEAD + b"\x18\x53", Reason.TRUNCATED_HEADER),
        (HEAD + element(0xEC, size=UNKNOWN), Reason.BAD_HEADER),
        (movie(cluster(0, *FRAMES, size=UNKNOWN), info(), tracks(picture())), Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, content: bytes, reason: Reason) -> None:
    assert refusal(window_of(content)) is reason


def test_a_duration_that_is_no_number_counts_as_none(window_of: Open) -> None:
    for ticks in (float("nan"), -5.0, 0.0):
        content = movie(info(ticks), tracks(picture()), cluster(0, *FRAMES))
        assert webm.clip(window_of(content)) == CLIP


LIVE = info(None), tracks(picture(frame_ns=0), heard())
LIMIT = Clip(64, 48, reason=Reason.HEADER_LIMIT)
HOSTILE: dict[str, tuple[bytes, Clip | Reason]] = {
    "padding": (movie(element(0xEC) * 100_000), Reason.HEADER_LIMIT),
    "far padding": (movie(element(0xEC, bytes(3000)) * 900), Reason.HEADER_LIMIT),
    "entries": (movie(tracks(element(0xAE) * 100_000)), Reason.HEADER_LIMIT),
    "values": (movie(info(), tracks(element(0xAE, number(0xD7, 1) * 100_000))), Reason.HEADER_LIMIT),
    "clusters in clusters": (movie(*LIVE, element(0x1F43B675, size=UNKNOWN) * 100_000, size=UNKNOWN), LIMIT),
    "blocks": (movie(*LIVE, cluster(0, block(0) * 20_000)), LIMIT),
    "groups in groups": (movie(*LIVE, cluster(0, element(0xA0, size=sized(9)) * 20_000, size=UNKNOWN)), LIMIT),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_elements_end_at_the_step_limit(window_of: Open, name: str) -> None:
    content, expected = HOSTILE[name]
    window = window_of(content)
    if isinstance(expected, Clip):
        assert webm.clip(window) == expected
    else:
        assert refusal(window) is expected
    assert window.num_steps == MAX_STEPS
    assert window.bytes_read <= 20 * MAX_STEPS
