"""How long is an Ogg sound? The position that its last page states, by the rate that its first states.

A cut file has the length up to its last whole page, which is what the engine hears.

Ours, because the length stands in the tail: two reads here, a walk through the
whole file elsewhere. See ``timed.py`` for the libraries that read many formats.

Source: RFC 3533 (Ogg), RFC 7845 (Opus), the Vorbis I specification, RFC 9639 section 10.1 (FLAC).
"""

from typing import Final, NamedTuple

from tessera.core.media.flac import STREAM_INFO_BYTES, stream_info
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.timed import MAX_STEPS, Sound, sound_of
from tessera.core.media.window import Window

NAME: Final = "ogg"

_MAGIC = b"OggS"
_HEAD_BYTES = 27
_BEGINS = 0x02
_NOWHERE = (1 << 64) - 1
"""The position of a page on which no packet ends."""
_VORBIS, _OPUS, _FLAC = b"\x01vorbis", b"OpusHead", b"\x7fFLAC"
_FLAC_INFO = 17
_OPUS_RATE = 48_000
"""Samples a second by which Opus counts positions, whatever it was made from."""
_MAX_STREAMS = 8
_TAILS = (8 << 10, 64 << 10, 128 << 10)
"""Bytes of the content's end that are looked through, one after another; a page has 65,307 at most."""
_MAX_MARKS = 64
"""Page marks in one tail that are looked at, from the end."""


class _Stream(NamedTuple):
    """What the first page of a stream of sound says."""

    serial: bytes
    rate: int
    num_channels: int
    num_skipped: int = 0
    """Samples at the start that are not heard."""


def matches(first_bytes: bytes) -> bool:
    """Whether content that starts so is an Ogg file."""
    return first_bytes.startswith(_MAGIC)


def sound(window: Window) -> Sound:
    """The length of its first stream of sound.

    Raises:
        Unsized: there is none, or its header cannot be read.
    """
    window.allow(MAX_STEPS)
    stream, serials = _first_stream(window)
    position = _last_position(window, stream.serial, serials)
    duration_s = None if position is None else max(0, position - stream.num_skipped) / (stream.rate or 1)
    return sound_of(duration_s, stream.rate, stream.num_channels)


def _first_stream(window: Window) -> tuple[_Stream, set[bytes]]:
    """The first stream of sound, and the serial numbers of all streams that begin beside it."""
    at, found, serials = 0, None, set[bytes]()
    for _ in range(_MAX_STREAMS):
        head = window.read(at, _HEAD_BYTES)
        if found is None and len(head) < _HEAD_BYTES:
            raise Unsized(Reason.TRUNCATED_HEADER)
        if head[:4] != _MAGIC or len(head) < _HEAD_BYTES or not head[5] & _BEGINS:
            break
        lengths = window.need(at + _HEAD_BYTES, head[26])
        start = at + _HEAD_BYTES + len(lengths)
        at = start + sum(lengths)
        serials.add(head[14:18])
        found = found or _stream(head[14:18], window.need(start, sum(lengths)))
    if found is None:
        raise Unsized(Reason.UNKNOWN_FORMAT)
    return found, serials


def _stream(serial: bytes, packet: bytes) -> _Stream | None:
    """What a first packet says; nothing where it is none of sound."""
    if packet.startswith(_VORBIS) and len(packet) >= 16:
        return _Stream(serial, int.from_bytes(packet[12:16], "little"), packet[11])
    if packet.startswith(_OPUS) and len(packet) >= 12:
        return _Stream(serial, _OPUS_RATE, packet[9], int.from_bytes(packet[10:12], "little"))
    if packet.startswith(_FLAC) and len(packet) >= _FLAC_INFO + STREAM_INFO_BYTES:
        rate, num_channels, _ = stream_info(packet[_FLAC_INFO:])
        return _Stream(serial, rate, num_channels)
    return None


def _last_position(window: Window, serial: bytes, serials: set[bytes]) -> int | None:
    """The position on the last whole page of a stream; nothing where there is none, or another chain follows."""
    for num_bytes in _TAILS:
        start = max(0, window.num_bytes - num_bytes)
        tail = window.need(start, window.num_bytes - start)
        at = len(tail)
        for _ in range(_MAX_MARKS):
            at = tail.rfind(_MAGIC, 0, at + len(_MAGIC) - 1)
            if at < 0:
                break
            head = tail[at : at + _HEAD_BYTES]
            if not _is_whole(tail, at, head):
                continue
            if head[14:18] not in serials:
                return None
            position = int.from_bytes(head[6:14], "little")
            if head[14:18] == serial and position != _NOWHERE and not head[5] & _BEGINS:
                return position
        if start == 0:
            return None
    return None


def _is_whole(tail: bytes, at: int, head: bytes) -> bool:
    """Whether all of a page is there."""
    if len(head) < _HEAD_BYTES or head[4] or head[5] > 7:
        return False
    lengths = tail[at + _HEAD_BYTES : at + _HEAD_BYTES + head[26]]
    return len(lengths) == head[26] and at + _HEAD_BYTES + len(lengths) + sum(lengths) <= len(tail)
