"""Which legs of a request come next? Encode all items at once, then compute the prompt, then answer.

This is the road of the sidecar where nobody is late: what it does beyond that, other
servers for those that fail and a time for each stage, is not simulated. Whoever drives
a road carries out the legs that it names and says how each ended, as the sidecar's
driver does with commands and events.
"""

from dataclasses import dataclass
from enum import Enum, auto

from tessera.sim.pools import Placed


@dataclass(frozen=True, slots=True)
class EncodeLeg:
    """An encoder does one item."""

    index: int
    """Among the distinct items."""


class PromptLeg(Enum):
    """A leg with the whole prompt."""

    PREFILL = auto()
    """Somebody computes it for the one that answers."""
    DECODE = auto()
    """It is answered; nothing comes behind."""


Leg = EncodeLeg | PromptLeg


class Road:
    """One request from its arrival to its answer."""

    __slots__ = ("_encoding", "_placed", "encoded", "is_prefilled")

    def __init__(self, placed: Placed) -> None:
        """Nothing has begun."""
        self.encoded: list[int] = []
        """Items that their encoders have done."""
        self.is_prefilled = False
        """Whether another server keeps the prompt's KV."""
        self._placed = placed
        self._encoding = set(placed.encoders)

    def start(self) -> list[Leg]:
        """The first legs."""
        return [EncodeLeg(index) for index in self._placed.encoders] or self._compute()

    def ended(self, leg: Leg, *, is_done: bool) -> list[Leg]:
        """The legs behind one that is over; what it has not done is left to the next."""
        match leg:
            case EncodeLeg(index):
                self._encoding.remove(index)
                if is_done:
                    self.encoded.append(index)
                return [] if self._encoding else self._compute()
            case PromptLeg.PREFILL:
                self.is_prefilled = is_done
                return [PromptLeg.DECODE]
            case PromptLeg.DECODE:
                return []

    def _compute(self) -> list[Leg]:
        return [PromptLeg.DECODE if self._placed.prefill is None else PromptLeg.PREFILL]
