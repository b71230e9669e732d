"""Is a FLAC as long as its stream information says?"""

from collections.abc import Callable

import pytest

from tessera.core.media import flac
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import Sound
from tessera.core.media.window import Window

Open = Callable[..., Window]


def header(
    rate: int = 16_000, num_channels: int = 1, num_samples: int = 32_000, *, smallest: int = 0, kind: int = 0
) -> bytes:
    sizes = (4096).to_bytes(2, "big") * 2 + smallest.to_bytes(3, "big") + bytes(3)
    bits = rate << 44 | num_channels - 1 << 41 | 15 << 36 | num_samples
    return b"fLaC" + bytes([kind, 0, 0, 34]) + sizes + bits.to_bytes(8, "big") + bytes(16)


def refusal(window: Window) -> Reason:
    with pytest.raises(Unsized) as gave_up:
        flac.sound(window)
    return gave_up.value.reason


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (header(), Sound(2.0, 16_000, 1)),
        (header(kind=0x80), Sound(2.0, 16_000, 1)),
        (header(655_350, 8, (1 << 36) - 1), Sound(((1 << 36) - 1) / 655_350, 655_350, 8)),
        (header(num_samples=0), Sound(None, 16_000, 1, Reason.NO_DURATION)),
        (header(smallest=14) + bytes(98), Sound(2.0, 16_000, 1)),
        (header(smallest=14) + bytes(97), Sound(None, 16_000, 1, Reason.TRUNCATED_HEADER)),
    ],
)
def test_the_header(window_of: Open, content: bytes, expected: Sound) -> None:
    if expected.duration_s and expected.duration_s > 86_400:
        assert refusal(window_of(content)) is Reason.BAD_HEADER
    else:
        window = window_of(content)
        assert flac.sound(window) == expected
        assert (window.num_steps, window.bytes_read) == (1, 42)


def test_refusals(window_of: Open) -> None:
    assert refusal(window_of(header(rate=0))) is Reason.BAD_HEADER
    assert refusal(window_of(header(kind=4))) is Reason.BAD_HEADER
    for cut in range(4, 42):
        assert refusal(window_of(header()[:cut])) is Reason.TRUNCATED_HEADER
    assert flac.matches(header())
    assert not flac.matches(b"flac")
