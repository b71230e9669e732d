"""Who works on a leg, until when, and would another server do better where it fails?"""

from dataclasses import dataclass
from typing import Final

from tessera.core.flow.events import Cause

NEVER: Final = float("inf")
"""A time that does not come."""
FINAL_CAUSES: Final = frozenset({Cause.REJECTED, Cause.NO_REFERENCE})
"""What every other server would say too."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One server's turn at a leg."""

    number: int
    """Which attempt at the leg, from 0."""
    endpoint: str
    started_at: float
    late_at: float
    """When it is given up."""


def failure_of(status: int) -> Cause:
    """Why an answer without success failed."""
    return Cause.STATUS if status in (408, 429) or status >= 500 else Cause.REJECTED
