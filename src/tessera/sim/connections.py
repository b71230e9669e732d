"""Over which connection does a client send, where connections and not requests are balanced?"""

from collections import deque
from dataclasses import dataclass
from random import Random
from typing import Final

NUM_WORKERS: Final = 16
"""Processes of the load generator, each with connections of its own."""
IDLE_S: Final = 5.0
"""How long a connection is kept that nobody uses. Source: inference-perf's client, of the fit."""


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection of a worker."""

    worker: int
    id: str
    """Of no other connection of any run."""


class Connections:
    """Keep-alive connections: each request draws a worker, which takes its last returned connection or opens one.

    Memory: the connections that were in use at one time.
    """

    def __init__(self, seed: int, *, num_workers: int = NUM_WORKERS, idle_s: float = IDLE_S) -> None:
        self._rng = Random(f"{seed}/connections")
        self._seed = seed
        self._idle_s = idle_s
        self._idle: list[deque[tuple[Connection, float]]] = [deque() for _ in range(num_workers)]
        """By worker: each with the instant at which it was returned, the last one at the right."""
        self._num_opened = 0

    def take(self, at: float) -> Connection:
        """The connection for a request sent at ``at``."""
        worker = self._rng.randrange(len(self._idle))
        idle = self._idle[worker]
        while idle and idle[0][1] + self._idle_s < at:
            idle.popleft()
        if idle:
            return idle.pop()[0]
        self._num_opened += 1
        return Connection(worker, f"{self._seed}-{worker}-{self._num_opened}")

    def give_back(self, connection: Connection, at: float) -> None:
        """The response over it has ended; a connection that was cut is not given back."""
        self._idle[connection.worker].append((connection, at))
