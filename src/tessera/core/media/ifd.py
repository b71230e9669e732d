"""What do the entries of a TIFF directory say? Pictures, and EXIF blocks inside of other pictures, have one.

Source: TIFF 6.0; the BigTIFF design of 2007, whose counts and offsets have 8 bytes;
``ImageFileDirectory_v2`` of Pillow 13 for the entries that are passed over.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal, NamedTuple

from tessera.core.media.size import Reason, Unsized

MAX_ENTRIES: Final = 1024
"""Entries of one directory that are looked at; real ones have up to about 250."""

Read = Callable[[int, int], bytes]
"""Bytes of a block by offset and length, fewer at its end."""
ByteOrder = Literal["little", "big"]

_ENTRIES_AT_ONCE = 64
_VALUE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 1, 8: 2, 9: 4, 10: 8, 11: 4, 12: 8, 13: 4, 16: 8}
"""Bytes of a value by field type; entries of unheard types are passed over."""
_INTEGERS = frozenset({3, 4, 6, 8, 9, 13, 16})
_SIGNED = frozenset({6, 8, 9})


@dataclass(frozen=True, slots=True)
class Layout:
    """How a directory is written."""

    order: ByteOrder
    entry: Struct
    """Tag, type, number of values, and the values or where they are."""
    offset_bytes: int
    """Bytes of an offset, and of the number of entries in a BigTIFF."""
    count_bytes: int
    """Bytes of the number of entries."""


LITTLE: Final = Layout("little", Struct("<HHI4s"), 4, 2)
BIG: Final = Layout("big", Struct(">HHI4s"), 4, 2)
BIGTIFF: Final = Layout("little", Struct("<HHQ8s"), 8, 8)
LAYOUTS: Final = {
    b"II\x2a\0": LITTLE,
    b"II\0\x2a": LITTLE,
    b"MM\0\x2a": BIG,
    b"MM\x2a\0": BIG,
    b"MM\0\x2b": BIG,
    b"II\x2b\0": BIGTIFF,
}
"""By the first four bytes, as Pillow understands them: two misspellings are in use, and only a little-endian
BigTIFF is one."""


class Entry(NamedTuple):
    """One entry, its values not yet looked at."""

    tag: int
    kind: int
    """Field type."""
    num_values: int
    field: bytes
    """The values where they fit in, else their offset."""

    @property
    def num_bytes(self) -> int:
        """Length of all values; 0 for an unheard field type."""
        return _VALUE_BYTES.get(self.kind, 0) * self.num_values


def entries(read: Read, at: int, layout: Layout) -> Iterator[Entry]:
    """The entries of the directory at that offset, as far as the block goes.

    Raises:
        Unsized: there are more than ``MAX_ENTRIES``.
    """
    num_entries = int.from_bytes(read(at, layout.count_bytes), layout.order)
    at += layout.count_bytes
    for first in range(0, num_entries, _ENTRIES_AT_ONCE):
        if first >= MAX_ENTRIES:
            raise Unsized(Reason.HEADER_LIMIT)
        length = min(_ENTRIES_AT_ONCE, num_entries - first) * layout.entry.size
        block = read(at + first * layout.entry.size, length)
        for entry in layout.entry.iter_unpack(block[: len(block) - len(block) % layout.entry.size]):
            yield Entry._make(entry)
        if len(block) < length:
            return


def integer(read: Read, start: int, entry: Entry, layout: Layout) -> int | None:
    """An entry's first value; 0 where that is no integer, nothing where the entry does not count.

    Offsets count from ``start``.
    """
    if entry.num_bytes == 0:
        return None
    if entry.kind not in _INTEGERS:
        return 0
    size = _VALUE_BYTES[entry.kind]
    data = entry.field[:size]
    if entry.num_bytes > layout.offset_bytes:
        at = start + int.from_bytes(entry.field, layout.order)
        data = read(at, size) if read(at + entry.num_bytes - 1, 1) else b""
    return int.from_bytes(data, layout.order, signed=entry.kind in _SIGNED) if data else None
