"""When has what a server reads from its peers arrived? One read after the other over one network."""

from collections import deque
from math import inf

from tessera.engine.profiles import Network
from tessera.engine.sequences import Sequence, Ticket

Job = Ticket | Sequence
"""Whose embeddings are read, or whose KV."""


class Transfers:
    """Reads in the order in which they were asked for.

    A read takes ``latency_s + num_bytes / bytes_per_s``; the bytes of the next begin when
    those of the one before have come, and latencies overlap.
    """

    __slots__ = ("_free_at", "_network", "_under_way", "num_bytes")

    def __init__(self, network: Network) -> None:
        """Nothing is under way."""
        self.num_bytes = 0
        """Read since the start, and asked for."""
        self._network = network
        self._free_at = 0.0
        self._under_way: deque[tuple[float, Job]] = deque()

    def push(self, job: Job, num_bytes: int, at: float) -> None:
        """Ask for so many bytes."""
        self.num_bytes += num_bytes
        self._free_at = max(self._free_at, at) + num_bytes / self._network.bytes_per_s
        self._under_way.append((self._free_at + self._network.latency_s, job))

    @property
    def next_at(self) -> float:
        """When the next read is complete; infinite where none is under way."""
        return self._under_way[0][0] if self._under_way else inf

    def pop(self) -> Job:
        """What has arrived at ``next_at``."""
        return self._under_way.popleft()[1]
