"""Which of an engine's batches was missed? Sequence numbers, told one by one."""

from enum import Enum, auto


class Heard(Enum):
    """What a batch's number means."""

    NEXT = auto()
    """The one that was due."""
    KNOWN = auto()
    """A replay has told it already."""
    GAP = auto()
    """Batches before it are missing."""
    BACKWARDS = auto()
    """The engine counts anew: it was restarted, and its cache is empty."""


class BatchSequence:
    """Where we are in one engine's batches, which it numbers from 0."""

    __slots__ = ("_last_heard", "due")

    def __init__(self) -> None:
        self.due = 0
        """The number of the next batch to be applied."""
        self._last_heard = -1

    def hear(self, number: int) -> Heard:
        """Take the number of a batch that the subscription brought; those come in order, each once."""
        is_backwards = number <= self._last_heard
        self._last_heard = number
        if is_backwards:
            self.due = 0
            return Heard.BACKWARDS
        if number < self.due:
            return Heard.KNOWN
        return Heard.NEXT if number == self.due else Heard.GAP

    def applied(self, number: int) -> None:
        """A batch was applied, or given up."""
        self.due = number + 1
