"""Are a directory's entries read within their limits, and their values as they are written?"""

import struct

import pytest

from tessera.core.media.exif import in_exif, in_memory
from tessera.core.media.ifd import BIG, BIGTIFF, LITTLE, MAX_ENTRIES, Entry, entries, integer
from tessera.core.media.size import Reason, Unsized


def directory(num_entries: int, num_stated: int | None = None) -> bytes:
    stated = num_entries if num_stated is None else num_stated
    return struct.pack("<H", stated) + struct.pack("<HHII", 1, 4, 1, 7) * num_entries


@pytest.mark.parametrize("num_entries", [0, 1, 63, 64, 65, MAX_ENTRIES])
def test_every_entry_is_seen_once(num_entries: int) -> None:
    found = list(entries(in_memory(directory(num_entries)), 0, LITTLE))
    assert found == [Entry(1, 4, 1, b"\7\0\0\0")] * num_entries


def test_a_directory_ends_where_the_block_does() -> None:
    assert len(list(entries(in_memory(directory(70, 60_000)), 0, LITTLE))) == 70
    assert len(list(entries(in_memory(directory(3)[:-1]), 0, LITTLE))) == 2
    assert list(entries(in_memory(b""), 0, LITTLE)) == []


def test_too_many_entries_are_a_limit() -> None:
    block = directory(60_000)
    with pytest.raises(Unsized) as gave_up:
        list(entries(in_memory(block), 0, LITTLE))
    assert gave_up.value.reason is Reason.HEADER_LIMIT
    with pytest.raises(Unsized):
        in_exif(in_memory(b"II*\0\x08\0\0\0" + block))


def test_a_bigtiff_counts_in_8_bytes() -> None:
    block = struct.pack("<QHHQQ", 1, 0x0100, 16, 1, 2**40)
    (entry,) = entries(in_memory(block), 0, BIGTIFF)
    assert integer(in_memory(block), 0, entry, BIGTIFF) == 2**40
    huge = struct.pack("<Q", 2**63) + struct.pack("<HHQQ", 1, 4, 1, 7) * 2000
    with pytest.raises(Unsized):
        list(entries(in_memory(huge), 0, BIGTIFF))


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        (3, b"\7\0\xff\xff", 7),
        (4, b"\7\0\0\1", 0x01000007),
        (6, b"\xff\0\0\0", -1),
        (8, b"\xfe\xff\0\0", -2),
        (9, b"\xff\xff\xff\xff", -1),
        (13, b"\xff\xff\xff\xff", 2**32 - 1),
        (1, b"\7\0\0\0", 0),
        (2, b"7\0\0\0", 0),
        (7, b"\7\0\0\0", 0),
        (11, b"\0\0\0\0", 0),
        (5, b"\0\0\0\0", 0),
        (0, b"\7\0\0\0", None),
        (14, b"\7\0\0\0", None),
        (99, b"\7\0\0\0", None),
    ],
)
def test_values_by_type(kind: int, field: bytes, value: int | None) -> None:
    assert integer(in_memory(b""), 0, Entry(1, kind, 1, field), LITTLE) == value
    assert integer(in_memory(b""), 0, Entry(1, kind, 0, field), LITTLE) is None


def test_values_elsewhere() -> None:
    block = b"head" + bytes(8) + struct.pack(">HHH", 6, 1, 1)
    where = struct.pack(">I", 8)
    assert integer(in_memory(block), 4, Entry(1, 3, 3, where), BIG) == 6
    assert integer(in_memory(block[:-1]), 4, Entry(1, 3, 3, where), BIG) is None
    assert integer(in_memory(block), 4, Entry(1, 3, 2**32 - 1, where), BIG) is None
