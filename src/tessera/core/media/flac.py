"""How long is a FLAC? The samples that its first metadata block counts.

A file that is cut still has the length of the whole, unless so little is left that
the smallest frames would not fit in.

Ours, because these are 18 bytes. See ``timed.py`` for the libraries that read many formats.

Source: RFC 9639 section 8.2.
"""

from typing import Final

from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import Sound, sound_of
from tessera.core.media.window import Window

NAME: Final = "flac"

MAGIC: Final = b"fLaC"
STREAM_INFO_BYTES: Final = 34
_STREAM_INFO = 0
_START = 8


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a FLAC."""
    return first_bytes.startswith(MAGIC)


def sound(window: Window) -> Sound:
    """Its length; none where it was written by an encoder that could not seek back.

    Raises:
        Unsized: the header is not there, or says what no encoder does.
    """
    head = window.need(0, _START + STREAM_INFO_BYTES)
    if head[4] & 0x7F != _STREAM_INFO:
        raise Unsized(Reason.BAD_HEADER)
    info = head[_START:]
    rate, num_channels, num_samples = stream_info(info)
    block_samples, frame_bytes = int.from_bytes(info[2:4], "big"), int.from_bytes(info[4:7], "big")
    if block_samples and num_samples // block_samples * frame_bytes > window.num_bytes - len(head):
        return sound_of(None, rate, num_channels, Reason.TRUNCATED_HEADER)
    return sound_of(num_samples / rate if num_samples and rate else None, rate, num_channels)


def stream_info(info: bytes) -> tuple[int, int, int]:
    """Samples a second, channels, and samples in all (0: not known)."""
    bits = int.from_bytes(info[10:18], "big")
    return bits >> 44, (bits >> 41 & 7) + 1, bits & (1 << 36) - 1
