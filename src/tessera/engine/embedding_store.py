"""Which embeddings does a server keep in host memory, for its peers or from them?"""

from collections import OrderedDict


class EmbeddingStore:
    """Embeddings by item, bounded in bytes: the first to come are the first to go.

    An item that is larger than the whole is not kept. A server that only encodes never
    looks here for its own sake: a picture that its GPU has let go is encoded again.
    Source: vLLM 0.32, ``ECCPUConnector``, whose region is evicted in the order in which
    entries became evictable; pins are left out.
    """

    __slots__ = ("_size_of", "max_bytes", "num_bytes")

    def __init__(self, max_bytes: int) -> None:
        """An empty store of ``max_bytes``; with 0 it stays so."""
        self.max_bytes = max_bytes
        self.num_bytes = 0
        self._size_of: OrderedDict[str, int] = OrderedDict()

    def __contains__(self, identifier: str) -> bool:
        return identifier in self._size_of

    def bytes_of(self, identifier: str) -> int | None:
        """What an item takes; nothing where it is not there."""
        return self._size_of.get(identifier)

    def put(self, identifier: str, num_bytes: int) -> None:
        """Keep an item; evict what must go for it. One that is there stays where it is in the row."""
        if identifier in self._size_of or num_bytes > self.max_bytes:
            return
        while self.num_bytes + num_bytes > self.max_bytes:
            self.num_bytes -= self._size_of.popitem(last=False)[1]
        self._size_of[identifier] = num_bytes
        self.num_bytes += num_bytes

    def clear(self) -> None:
        """Forget all items."""
        self._size_of.clear()
        self.num_bytes = 0
