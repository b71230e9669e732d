"""Which media items' embeddings lie on the GPU, and who still needs them?"""

from collections import OrderedDict
from collections.abc import Hashable

from tessera.engine.events import CacheCounters


class EncoderCache:
    """Embeddings by item, bounded in embeddings.

    An entry that nobody needs any more stays, and is evicted, longest unneeded first, only
    when another needs its room. Source: vLLM 0.32, ``vllm/v1/core/encoder_cache_manager.py``.
    """

    __slots__ = (
        "_holders",
        "_num_hit",
        "_num_queried",
        "_size_of",
        "_unneeded",
        "max_embeds",
        "num_embeds",
        "num_held",
    )

    def __init__(self, max_embeds: int) -> None:
        """An empty cache of ``max_embeds``."""
        self.max_embeds = max_embeds
        self.num_embeds = 0
        """Stored, needed or not."""
        self.num_held = 0
        """Of those, still needed."""
        self._size_of: dict[str, int] = {}
        self._holders: dict[str, set[Hashable]] = {}
        self._unneeded: OrderedDict[str, None] = OrderedDict()
        self._num_queried = 0
        self._num_hit = 0

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._size_of

    def hold(self, identifier: str, holder: Hashable) -> bool:
        """Keep an item for ``holder``; false where it is not there."""
        holders = self._holders.get(identifier)
        if holders is None:
            return False
        if holder not in holders:
            self._num_queried += 1
            self._num_hit += 1
            if not holders:
                del self._unneeded[identifier]
                self.num_held += self._size_of[identifier]
            holders.add(holder)
        return True

    def fits(self, num_embeds: int) -> bool:
        """Whether there is room, or would be without what nobody needs."""
        return num_embeds <= self.max_embeds - self.num_held

    def store(self, identifier: str, num_embeds: int, holder: Hashable) -> None:
        """Store an item that is not there and fits, kept for ``holder``; evict what must go for it."""
        self._num_queried += 1
        while num_embeds > self.max_embeds - self.num_embeds:
            self._evict()
        self._size_of[identifier] = num_embeds
        self._holders[identifier] = {holder}
        self.num_embeds += num_embeds
        self.num_held += num_embeds

    def release(self, identifier: str, holder: Hashable) -> None:
        """``holder`` needs the item no more. One that it does not hold is ignored."""
        holders = self._holders.get(identifier)
        if holders and holder in holders:
            holders.remove(holder)
            if not holders:
                self._unneeded[identifier] = None
                self.num_held -= self._size_of[identifier]

    def clear(self) -> None:
        """Evict what nobody needs."""
        while self._unneeded:
            self._evict()

    def _evict(self) -> None:
        evicted, _ = self._unneeded.popitem(last=False)
        del self._holders[evicted]
        self.num_embeds -= self._size_of.pop(evicted)

    @property
    def counters(self) -> CacheCounters:
        """In items; one that several chunks of a prompt need counts once."""
        return CacheCounters(self._num_queried, self._num_hit)
