"""Which rate and how many channels does an AAC decoder put out? The configuration that an MP4 carries for it.

The sample entry of an MP4 often says two channels whatever there are, and half the
rate where the codec doubles it.

Source: ISO/IEC 14496-3 section 1.6 (AudioSpecificConfig), 14496-1 section 7.2.6 (descriptors).
"""

from typing import Final

_RATES: Final = (96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350)
_CHANNELS: Final = (0, 1, 2, 3, 4, 5, 6, 8)
"""Channels by the configuration's number; 0: not said there."""
_ESCAPE_RATE, _ESCAPE_TYPE = 15, 31
_BAND_REPLICATION, _PARAMETRIC_STEREO = 5, 29
_STREAM, _DECODER, _SPECIFIC = 3, 4, 5
_MAX_LENGTH_BYTES = 4
_DECODER_HEAD_BYTES = 13


def in_esds(data: bytes) -> tuple[int, int] | None:
    """Samples a second and channels, from an ``esds`` box behind its version; nothing where it does not say."""
    at = 0
    for tag, skip in ((_STREAM, 3), (_DECODER, _DECODER_HEAD_BYTES), (_SPECIFIC, 0)):
        if at >= len(data) or data[at] != tag:
            return None
        at = _after_length(data, at + 1) + skip
        if tag == _STREAM and (at > len(data) or data[at - 1] & 0xE0):
            # A dependency, a URL or a clock reference: MP4 forbids them.
            return None
    return _in_config(data[at : at + 8])


def _after_length(data: bytes, at: int) -> int:
    for _ in range(_MAX_LENGTH_BYTES):
        at += 1
        if not data[at - 1 : at] or data[at - 1] < 0x80:
            break
    return at


def _in_config(data: bytes) -> tuple[int, int] | None:
    bits, left = int.from_bytes(data, "big"), len(data) * 8

    def take(num_bits: int) -> int:
        nonlocal left
        left -= num_bits
        return bits >> left & (1 << num_bits) - 1 if left >= 0 else 0

    def take_rate() -> int:
        index = take(4)
        return take(24) if index == _ESCAPE_RATE else _RATES[index] if index < len(_RATES) else 0

    kind = take(5)
    if kind == _ESCAPE_TYPE:
        kind = 32 + take(6)
    rate, channels = take_rate(), take(4)
    if kind in {_BAND_REPLICATION, _PARAMETRIC_STEREO}:
        rate = take_rate()
    num_channels = _CHANNELS[channels] if channels < len(_CHANNELS) else 0
    if kind == _PARAMETRIC_STEREO and num_channels == 1:
        num_channels = 2
    return (rate, num_channels) if left >= 0 and rate and num_channels else None
