"""Is an AVI read by the heads of its first stream of pictures?"""

import struct
from collections.abc import Callable

import pytest

from tessera.core.media import avi
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Clip
from tessera.core.media.window import Window

Open = Callable[..., Window]


def chunk(kind: bytes, *payload: bytes) -> bytes:
    data = b"".join(payload)
    return kind + struct.pack("<I", len(data)) + data + b"\0" * (len(data) & 1)


def listed(kind: bytes, *chunks: bytes) -> bytes:
    return chunk(b"LIST", kind, *chunks)


def main(frame_us: int = 100_000, num_frames: int = 20) -> bytes:
    return chunk(b"avih", struct.pack("<5I", frame_us, 0, 0, 0, num_frames), bytes(36))


def stream(
    scale: int = 1, rate: int = 10, num_frames: int = 20, size: tuple[int, int] = (64, 48), kind: bytes = b"vids"
) -> bytes:
    head = chunk(b"strh", kind, bytes(16), struct.pack("<4I", scale, rate, 0, num_frames), bytes(20))
    return listed(b"strl", head, chunk(b"strf", struct.pack("<Iii", 40, *size), bytes(28)))


def clip(*parts: bytes) -> bytes:
    return chunk(b"RIFF", b"AVI ", *parts)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        avi.clip(window)
    return gave_up.value.reason


SOUND = stream(kind=b"auds")
MOVI = listed(b"movi", bytes(300))


def test_what_matches() -> None:
    assert avi.matches(clip())
    assert not avi.matches(b"RIFF\0\0\0\0WAVE")
    assert not avi.matches(b"RIFX\0\0\0\0AVI ")


@pytest.mark.parametrize(
    ("heads", "expected"),
    [
        ((main(), stream()), Clip(64, 48, 20, 10.0, 2.0)),
        ((main(), SOUND, stream(), stream(size=(9, 9))), Clip(64, 48, 20, 10.0, 2.0)),
        ((chunk(b"JUNK", bytes(33)), stream(), main()), Clip(64, 48, 20, 10.0, 2.0)),
        ((main(), stream(size=(64, -48))), Clip(64, 48, 20, 10.0, 2.0)),
        ((main(), stream(1001, 30_000, 30)), Clip(64, 48, 30, 30_000 / 1001, 30 / (30_000 / 1001))),
        ((main(40_000, 50), stream(0, 0, 0)), Clip(64, 48, 50, 25.0, 2.0)),
        ((main(0, 0), stream(0, 0, 20)), Clip(64, 48, reason=Reason.NO_DURATION)),
        ((main(100_000, 0), stream(1, 10, 0)), Clip(64, 48, reason=Reason.NO_DURATION)),
        ((stream(),), Clip(64, 48, 20, 10.0, 2.0)),
    ],
)
def test_the_heads(window_of: Open, heads: tuple[bytes, ...], expected: Clip) -> None:
    assert avi.clip(window_of(clip(listed(b"hdrl", *heads), MOVI))) == expected
    assert avi.clip(window_of(clip(chunk(b"JUNK", bytes(7)), listed(b"INFO"), listed(b"hdrl", *heads)))) == expected


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((), Reason.TRUNCATED_HEADER),
        ((MOVI,), Reason.TRUNCATED_HEADER),
        ((listed(b"hdrl", main(), SOUND),), Reason.UNKNOWN_FORMAT),
        ((listed(b"hdrl", main(), listed(b"strl")),), Reason.BAD_HEADER),
        ((listed(b"hdrl", main(), listed(b"strl", chunk(b"strh", b"vids"))),), Reason.BAD_HEADER),
        ((listed(b"hdrl", main(), stream(size=(0, 48))),), Reason.BAD_HEADER),
        ((listed(b"hdrl", main(), stream(size=(-64, 48))),), Reason.BAD_HEADER),
        ((listed(b"hdrl", main(), stream(size=(40_000, 40_000))),), Reason.TOO_MANY_PIXELS),
        ((listed(b"hdrl", main(), stream(1, 2000)),), Reason.BAD_HEADER),
        ((listed(b"hdrl", main(), stream(1, 1, 90_000)),), Reason.BAD_HEADER),
    ],
)
def test_refusals(window_of: Open, parts: tuple[bytes, ...], reason: Reason) -> None:
    assert refusal(window_of(clip(*parts))) is reason


@pytest.mark.parametrize(
    "hostile",
    [
        chunk(b"JUNK") * 100_000,
        chunk(b"JUNK", bytes(3000)) * 900,
        listed(b"hdrl", SOUND * 2000),
        listed(b"hdrl", listed(b"strl", chunk(b"JUNK") * 100_000)),
        listed(b"hdrl", chunk(b"LIST", b"hdrl") * 9000),
    ],
)
def test_hostile_chunks_end_at_the_step_limit(window_of: Open, hostile: bytes) -> None:
    window = window_of(clip(hostile))
    assert refusal(window) is Reason.HEADER_LIMIT
    assert window.num_steps == MAX_STEPS
    assert window.bytes_read <= 20 * MAX_STEPS
