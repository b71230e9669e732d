"""What became of each stage: who did it, how often, how long, and what was done here instead?"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tessera.core.flow.events import Cause
from tessera.core.work import Work

MAX_ENTRIES: Final = 64
"""Entries of the header; the rest is left out."""


@dataclass(slots=True)
class StageEntry:
    """What one server did at one stage, with one status."""

    num_items: int = 0
    started_at: float = float("inf")
    ended_at: float = 0.0

    @property
    def seconds(self) -> float:
        """From the start of its first job to the end of its last."""
        return max(0.0, self.ended_at - self.started_at)


@dataclass(slots=True)
class FlowReport:
    """What a flow did, for metrics and for the router."""

    num_encode_requested: int = 0
    """Distinct items that were to be encoded elsewhere."""
    num_encoded: int = 0
    """Of these, items that an encoder confirmed."""
    num_transferred: int = 0
    """Of these, items whose reference was given to the engine that uses them."""
    is_handed_over: bool = False
    """Whether the engine was told where to fetch the blocks of a prefill."""
    fell_back: Counter[tuple[Work, Cause]] = field(default_factory=Counter)
    """Items, or for prefill requests, that were worked on here, by cause."""
    retried: Counter[tuple[Work, Cause]] = field(default_factory=Counter)
    """Legs that failed and were given to another server, by cause."""
    seconds: dict[Work, float] = field(default_factory=dict)
    """How long each stage took in all, retries included; decode: until the answer's end."""
    entries: dict[tuple[Work, str, int], StageEntry] = field(default_factory=dict)
    """By stage, server and HTTP status, 0 where there was no answer."""

    def ended(self, stage: Work, endpoint: str, status: int, started_at: float, at: float, num_items: int = 0) -> None:
        """Take note of a leg's end."""
        entry = self.entries.setdefault((stage, endpoint, status), StageEntry())
        entry.num_items += num_items
        entry.started_at = min(entry.started_at, started_at)
        entry.ended_at = max(entry.ended_at, at)

    def header(self) -> str:
        """``encode=ip:port,items,status,seconds;prefill=...``: an entry for each stage, server and status."""
        return ";".join(list(self._texts())[:MAX_ENTRIES])

    def _texts(self) -> Iterator[str]:
        for (stage, endpoint, status), entry in self.entries.items():
            yield f"{stage}={endpoint},{entry.num_items},{status},{entry.seconds:.6f}"
