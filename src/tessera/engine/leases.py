"""Until when are the KV blocks of finished requests kept for their peers?"""

from heapq import heappop, heappush
from math import inf


class Leases:
    """Instants at which leases end, soonest first. Memory is that of the leases that have not ended."""

    __slots__ = ("_by_end", "_end_of")

    def __init__(self) -> None:
        """No lease."""
        self._by_end: list[tuple[float, str]] = []
        self._end_of: dict[str, float] = {}

    def add(self, request_id: str, ends_at: float) -> None:
        """A request's blocks are kept until then; a later end takes the place of one before."""
        self._end_of[request_id] = ends_at
        heappush(self._by_end, (ends_at, request_id))

    def remove(self, request_id: str) -> None:
        """It is over before its time. One that is unknown is ignored."""
        self._end_of.pop(request_id, None)

    def end_of(self, request_id: str) -> float | None:
        """When a request's lease ends; nothing where it has none."""
        return self._end_of.get(request_id)

    @property
    def next_at(self) -> float:
        """When the next lease ends; infinite where there is none."""
        while self._by_end and self._end_of.get(self._by_end[0][1]) != self._by_end[0][0]:
            heappop(self._by_end)
        return self._by_end[0][0] if self._by_end else inf

    def pop(self) -> str:
        """The request whose lease ends at ``next_at``."""
        request_id = heappop(self._by_end)[1]
        del self._end_of[request_id]
        return request_id
