"""Who holds which key, and how far does each follow a chain of keys? One look-up a key, however many holders."""

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import or_


class Holders:
    """For each key a mask with a bit for each holder that has it.

    Memory: one entry for each key that somebody has. A key that several have needs a
    mask of its own, as wide as there were holders at once.
    """

    def __init__(self) -> None:
        self._masks: dict[int, int] = {}
        self._bits: dict[int, int] = {}
        """The bits that are given out, each once, so that a key of a single holder needs no mask of its own."""
        self._free: list[int] = []

    def __len__(self) -> int:
        """Distinct keys that somebody has."""
        return len(self._masks)

    def join(self) -> int:
        """The bit of a new holder, which has nothing yet."""
        bit = self._free.pop() if self._free else 1 << len(self._bits)
        self._bits[bit] = bit
        return bit

    def leave(self, bit: int) -> None:
        """Take a bit back whose holder has let go of everything; it is given out again."""
        del self._bits[bit]
        self._free.append(bit)
        if not self._bits:
            self._free.clear()

    def hold(self, keys: Iterable[int], bit: int) -> None:
        """A holder has these keys now; nothing changes where it had them."""
        masks = self._masks
        for key in keys:
            mask = masks.get(key)
            masks[key] = bit if mask is None else mask | bit

    def let_go(self, keys: Iterable[int], bit: int) -> None:
        """A holder has these keys no more; nothing changes where it had them not."""
        masks = self._masks
        for key in keys:
            mask = masks.get(key, 0)
            if mask == bit:
                del masks[key]
            elif mask & bit:
                left = mask ^ bit
                masks[key] = self._bits.get(left, left)

    def depths(self, keys: Sequence[int], bits: Sequence[int]) -> list[int]:
        """For each holder, how many of ``keys`` it has without a gap from the first; 0 for a bit of 0."""
        mask_of = self._masks.get
        holding = reduce(or_, bits, 0)
        depths = {0: 0}
        depth = 0
        for key in keys if holding else ():
            held = holding & mask_of(key, 0)
            if held != holding:
                depths |= dict.fromkeys(_bits(holding ^ held), depth)
                holding = held
                if not holding:
                    break
            depth += 1
        return [depths.get(bit, depth) for bit in bits]


def _bits(mask: int) -> list[int]:
    """The single bits of a mask."""
    bits = []
    while mask:
        bits.append(mask & -mask)
        mask ^= bits[-1]
    return bits
