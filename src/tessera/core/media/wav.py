"""How long is a WAV? The bytes of its samples over the bytes of a second.

Where the length of the samples is not written (zero, or all ones: a recorder that
could not seek back) or goes beyond the content, it is what is left of the content;
so a cut file has the length of what is there, which is what the engine hears.

Ours, because the standard library's ``wave`` wants a file object and knows only PCM.

Source: Microsoft's WAVEFORMATEX; EBU Tech 3306 (RF64).
"""

from typing import Final

from tessera.core.media.riff import Chunk, chunks, payload
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound, sound_of
from tessera.core.media.window import Window

NAME: Final = "wav"

_FIRST_CHUNK = 12
_UNKNOWN = (0, 0xFFFFFFFF)
_PLAIN_CODECS = frozenset({0x01, 0x03, 0x06, 0x07, 0xFFFE})
"""PCM, floats, A-law, mu-law and what the extended format says is one of these: a block is a sample of each channel."""
_BLOCK_CODECS = frozenset({0x02, 0x11, 0x31})
"""Microsoft's and IMA's ADPCM and GSM 6.10, whose format says how many samples a block holds."""
_MAX_FORMAT_BYTES = 20


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is a WAV."""
    return first_bytes[:4] in {b"RIFF", b"RF64", b"BW64"} and first_bytes[8:12] == b"WAVE"


def sound(window: Window) -> Sound:
    """Its length by its format.

    Raises:
        Unsized: there is no format in front of the samples, or one that none has.
    """
    window.allow(MAX_STEPS)
    form, long_bytes = b"", 0
    for chunk in chunks(window, _FIRST_CHUNK, window.num_bytes):
        if chunk.kind == b"ds64":
            long_bytes = int.from_bytes(payload(window, chunk, 8, 8), "little")
        elif chunk.kind == b"fmt ":
            form = payload(window, chunk, 0, min(chunk.end - chunk.start, _MAX_FORMAT_BYTES))
        elif chunk.kind == b"data":
            return _sound(form, _num_data_bytes(chunk, long_bytes, window.num_bytes))
    raise Unsized(Reason.TRUNCATED_HEADER)


def _num_data_bytes(data: Chunk, long_bytes: int, num_bytes: int) -> int:
    """Bytes of samples; ``long_bytes`` is where an RF64 says so."""
    length = data.end - data.start
    if length in _UNKNOWN:
        length = long_bytes or num_bytes
    return max(0, min(length, num_bytes - data.start))


def _sound(form: bytes, num_data_bytes: int) -> Sound:
    if len(form) < 16:
        raise Unsized(Reason.BAD_HEADER)
    kind, num_channels = (int.from_bytes(form[at : at + 2], "little") for at in (0, 2))
    rate, rate_bytes = (int.from_bytes(form[at : at + 4], "little") for at in (4, 8))
    block_bytes = int.from_bytes(form[12:14], "little")
    if not rate or not rate_bytes or not block_bytes:
        raise Unsized(Reason.BAD_HEADER)
    if kind in _PLAIN_CODECS:
        return sound_of(num_data_bytes // block_bytes / rate, rate, num_channels)
    if kind in _BLOCK_CODECS and len(form) == _MAX_FORMAT_BYTES:
        num_samples = num_data_bytes // block_bytes * int.from_bytes(form[18:20], "little")
        return sound_of(num_samples / rate, rate, num_channels)
    return sound_of(num_data_bytes / rate_bytes, rate, num_channels)
