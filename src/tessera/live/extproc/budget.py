"""Is there room for one more body? One account for all streams of the process."""

from dataclasses import dataclass


@dataclass(slots=True)
class BodyBudget:
    """Bytes of bodies that are held between their arrival and the end of ``read``."""

    limit_bytes: int
    """Most bytes held at once, ``routing.maxBodiesInFlightBytes``."""
    per_body_bytes: int
    """Most bytes of one body, ``routing.maxBodyBytes``."""
    held_bytes: int = 0

    def take(self, num_bytes: int) -> bool:
        """Charge ``num_bytes``; False, and nothing charged, where they do not fit."""
        if self.held_bytes + num_bytes > self.limit_bytes:
            return False
        self.held_bytes += num_bytes
        return True

    def give(self, num_bytes: int) -> None:
        """Give ``num_bytes`` back."""
        assert num_bytes <= self.held_bytes, f"{num_bytes} bytes given back of {self.held_bytes}"
        self.held_bytes -= num_bytes
