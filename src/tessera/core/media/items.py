"""Which items does the meta box of a picture file hold: which is shown, what is said of it, where do its bytes lie?

Source: ISO/IEC 14496-12 section 8.11 (meta, pitm, iinf, iref, iloc); ISO/IEC 23008-12 section 9.3 (iprp).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tessera.core.media.boxes import Box, boxes
from tessera.core.media.exif import spans
from tessera.core.media.ifd import Read
from tessera.core.media.size import Reason, Unsized
from tessera.core.media.window import Window

MAX_TABLE_BYTES: Final = 32 * 1024
"""Length of a table of items that is read; a grid of 1,000 tiles has up to 20 KB."""
MAX_LISTED: Final = 16
"""Places of one item's bytes, and items that one other describes; real files have one of each."""

FULL_HEAD_BYTES: Final = 4
"""Version and flags, in front of a full box's payload."""
_FILE, _IDAT = 0, 1
"""Where extents count from: the start of the file, or of the idat box."""


class Fields:
    """The big-endian numbers of a table, one after the other."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, num_bytes: int) -> int:
        """The next number.

        Raises:
            Unsized: the table ends before.
        """
        at, self._at = self._at, self._at + num_bytes
        if self._at > len(self._data):
            raise Unsized(Reason.BAD_HEADER)
        return int.from_bytes(self._data[at : self._at], "big")

    def skip(self, num_bytes: int) -> None:
        """Pass over numbers."""
        self._at += num_bytes

    def listed(self, num_bytes: int) -> range:
        """One turn for each entry of a list, whose number comes next.

        Raises:
            Unsized: there are more than ``MAX_LISTED``, or the table ends before.
        """
        num_entries = self.take(num_bytes)
        if num_entries > MAX_LISTED:
            raise Unsized(Reason.HEADER_LIMIT)
        return range(num_entries)


def children(window: Window, box: Box, *, skip: int = 0) -> dict[bytes, Box]:
    """The first box of each kind inside of another, which lies ``skip`` bytes into its payload."""
    found = dict[bytes, Box]()
    for child in boxes(window, box.start + skip, box.end):
        found.setdefault(child.kind, child)
    return found


def required(found: dict[bytes, Box], kind: bytes) -> Box:
    """The box of a kind that must be there.

    Raises:
        Unsized: it is not.
    """
    if kind not in found:
        raise Unsized(Reason.BAD_HEADER)
    return found[kind]


@dataclass(frozen=True, slots=True)
class Meta:
    """A meta box: its tables, read when they are asked for."""

    window: Window
    tables: dict[bytes, Box]

    @classmethod
    def at(cls, window: Window, box: Box) -> "Meta":
        """The meta box whose payload lies there."""
        return cls(window, children(window, box, skip=FULL_HEAD_BYTES))

    def primary(self) -> int:
        """The id of the item that is shown.

        Raises:
            Unsized: there is none.
        """
        fields, version = self._table(b"pitm")
        return fields.take(2 if version == 0 else 4)

    def properties(self, item: int) -> Iterator[Box]:
        """What is said of an item, in the order in which it is said."""
        iprp = children(self.window, required(self.tables, b"iprp"))
        container = required(iprp, b"ipco")
        known = list(boxes(self.window, container.start, container.end))
        fields, version, is_wide = self._associations(iprp)
        for _ in range(fields.take(4)):
            self.window.step()
            if fields.take(2 if version < 1 else 4) == item:
                numbers = [fields.take(2) & 0x7FFF if is_wide else fields.take(1) & 0x7F for _ in range(fields.take(1))]
                yield from (known[number - 1] for number in numbers if 0 < number <= len(known))
                return
            fields.skip(fields.take(1) * (2 if is_wide else 1))

    def _associations(self, iprp: dict[bytes, Box]) -> tuple[Fields, int, bool]:
        box = required(iprp, b"ipma")
        data = _whole(self.window, box)
        return Fields(data[FULL_HEAD_BYTES:]), data[0], bool(data[3] & 1)

    def _table(self, kind: bytes) -> tuple[Fields, int]:
        """A full box's fields and version."""
        data = _whole(self.window, required(self.tables, kind))
        return Fields(data[FULL_HEAD_BYTES:]), data[0]

    def metadata(self, described: int | None, kind: bytes, content_type: bytes = b"") -> Read | None:
        """A reader of the first item of a kind that describes another one (or anything); nothing where none does."""
        if not {b"iinf", b"iloc"} <= self.tables.keys():
            return None
        describing = self._describing(described) if described is not None else None
        for item in self._of_kind(kind, content_type):
            if describing is None or item in describing:
                return self._reader(item)
        return None

    def _of_kind(self, kind: bytes, content_type: bytes) -> Iterator[int]:
        """Ids of the items of a kind (and, of kind ``mime``, of a content type)."""
        iinf = self.tables[b"iinf"]
        version = self.window.need(iinf.start, 1)[0]
        first = iinf.start + FULL_HEAD_BYTES + (2 if version == 0 else 4)
        for box in boxes(self.window, first, iinf.end):
            data = self.window.read(box.start, min(box.end - box.start, 256))
            id_bytes = 4 if data[:1] == b"\3" else 2
            at = FULL_HEAD_BYTES + id_bytes + 2
            _, _, said = data[at + 4 :].partition(b"\0")
            if data[at : at + 4] == kind and said.startswith(content_type):
                yield int.from_bytes(data[FULL_HEAD_BYTES : FULL_HEAD_BYTES + id_bytes], "big")

    def _describing(self, described: int) -> set[int]:
        """Ids of the items that describe another."""
        return {item for item, targets in self.references(b"cdsc") if described in targets}

    def references(self, kind: bytes) -> Iterator[tuple[int, list[int]]]:
        """Items that refer to others in a way, each with those that it refers to."""
        if b"iref" not in self.tables:
            return
        iref = self.tables[b"iref"]
        id_bytes = 2 if self.window.need(iref.start, 1) == b"\0" else 4
        for box in boxes(self.window, iref.start + FULL_HEAD_BYTES, iref.end):
            if box.kind == kind:
                length = min(box.end - box.start, 2 + id_bytes * (1 + MAX_LISTED))
                fields = Fields(self.window.need(box.start, length))
                item = fields.take(id_bytes)
                yield item, [fields.take(id_bytes) for _ in fields.listed(2)]

    def _reader(self, item: int) -> Read | None:
        """A reader of an item's bytes."""
        fields, version = self._table(b"iloc")
        sizes = fields.take(2)
        offset_bytes, length_bytes, base_bytes = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
        index_bytes = sizes & 15 if version > 0 else 0
        for _ in range(fields.take(2 if version < 2 else 4)):
            self.window.step()
            found = fields.take(2 if version < 2 else 4)
            origin = fields.take(2) & 15 if version > 0 else _FILE
            fields.skip(2)
            base = fields.take(base_bytes)
            if found == item:
                extents = []
                for _ in fields.listed(2):
                    fields.skip(index_bytes)
                    extents.append((base + fields.take(offset_bytes), fields.take(length_bytes)))
                return spans(self.window, self._placed(origin, extents))
            fields.skip(fields.take(2) * (index_bytes + offset_bytes + length_bytes))
        return None

    def _placed(self, origin: int, extents: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Extents by their offset in the file."""
        start = required(self.tables, b"idat").start if origin == _IDAT else 0
        if any(start + offset + length > self.window.num_bytes for offset, length in extents):
            raise Unsized(Reason.TRUNCATED_HEADER)
        return [(start + offset, length) for offset, length in extents]


def _whole(window: Window, box: Box) -> bytes:
    """The payload of a table.

    Raises:
        Unsized: it is longer than ``MAX_TABLE_BYTES``, or cut off.
    """
    length = box.end - box.start
    if length > MAX_TABLE_BYTES:
        raise Unsized(Reason.HEADER_LIMIT)
    if length < FULL_HEAD_BYTES:
        raise Unsized(Reason.BAD_HEADER)
    return window.need(box.start, length)
