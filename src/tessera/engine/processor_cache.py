"""Which media items has the API server's processor already turned into pixels?"""

from collections import OrderedDict

from tessera.engine.events import CacheCounters


class ProcessorCache:
    """Least recently used first, bounded in bytes. An item larger than the whole is not kept.

    Source: vLLM 0.32, ``vllm/multimodal/cache.py``.
    """

    __slots__ = ("_num_hit", "_num_queried", "_size_of", "max_bytes", "num_bytes")

    def __init__(self, max_bytes: int) -> None:
        """An empty cache of ``max_bytes``."""
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._size_of: OrderedDict[str, int] = OrderedDict()
        self._num_queried = 0
        self._num_hit = 0

    def touch(self, identifier: str, num_bytes: int) -> bool:
        """Whether the item is there; afterwards it is."""
        self._num_queried += 1
        if identifier in self._size_of:
            self._size_of.move_to_end(identifier)
            self._num_hit += 1
            return True
        if num_bytes <= self.max_bytes:
            self._size_of[identifier] = num_bytes
            self.num_bytes += num_bytes
            while self.num_bytes > self.max_bytes:
                self.num_bytes -= self._size_of.popitem(last=False)[1]
        return False

    def clear(self) -> None:
        """Forget all items."""
        self._size_of.clear()
        self.num_bytes = 0

    @property
    def counters(self) -> CacheCounters:
        """In items."""
        return CacheCounters(self._num_queried, self._num_hit)
