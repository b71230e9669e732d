"""Into which parts does a request's work fall, who was to do each, and how did each end?"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_TOLD_CHARS: Final = 7_000
"""A header with who encodes what may be so long; HTTP servers refuse lines of 8,190."""


class Work(StrEnum):
    """A part of a request's work that may be done on an endpoint of its own."""

    ENCODE = "encode"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class EncodePlan:
    """Who encodes which media items of a request, where that is another endpoint than the one that needs them."""

    by_item: Mapping[str, str]
    """Identifier of each distinct item that is sent away -> ``ip:port``, prompt order; the others stay."""
    spares: tuple[str, ...] = ()
    """``ip:port`` of encoders to try where one fails."""
    is_told: bool = False
    """Whether the endpoint is told who gets which; else it knows the encoders alone and deals the items out in turn."""

    def items_of(self, endpoint_id: str) -> tuple[str, ...]:
        """Identifiers of the items that an endpoint encodes."""
        return tuple([name for name, encoder in self.by_item.items() if encoder == endpoint_id])


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEnded:
    """A part of a request's work is over, as the endpoint that faces the client says."""

    at: float
    request_id: str
    stage: Work
    endpoint_id: str
    """``ip:port`` that did it, or failed at it."""
    status: int
    """HTTP status; 0 where there was no answer."""
    seconds: float
    num_items: int = 0
    """Distinct media items that were encoded there; 0 for the other parts."""

    @property
    def is_done(self) -> bool:
        """Whether the work was done."""
        return 200 <= self.status < 300
