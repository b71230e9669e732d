"""How can the emulated server be made to fail on purpose?"""

import asyncio
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tessera.emulator.refusals import Refusal


class FaultMode(StrEnum):
    """What goes wrong."""

    NONE = "none"
    REFUSE = "refuse"
    """The port takes no connection; open ones end with the answer they carry."""
    UNAVAILABLE = "503"
    """Generation is answered 503 before anything else."""
    HANG = "hang"
    """Generation stops answering, until the fault is lifted or the client goes."""
    CUT = "cut"
    """The connection of a generation ends in the middle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One kind of failure, and how long it lasts: until lifted where nothing limits it."""

    mode: FaultMode = FaultMode.NONE
    count: int | None = None
    """Generation requests that suffer it; not for ``refuse``."""
    after_tokens: int = 0
    """Tokens that a hang or a cut lets through first; at 0 not even the headers leave."""
    seconds: float | None = None
    """After so long it lifts itself."""

    def as_json(self) -> dict[str, Any]:
        """As the control route shows it."""
        return asdict(self)


NO_FAULT = Fault()

_LIMITS: dict[str, tuple[type[int] | type[float], float, float]] = {
    "count": (int, 1, 1_000_000),
    "after_tokens": (int, 0, 1_000_000),
    "seconds": (float, 0.001, 3600),
}


def read_fault(asked: Any) -> Fault:
    """The fault that a JSON object asks for.

    Raises:
        Refusal: unknown mode or field, or a number out of range.
    """
    if not isinstance(asked, dict) or "mode" not in asked:
        raise Refusal('Expected an object such as {"mode": "503", "count": 3}')
    try:
        mode = FaultMode(asked["mode"])
    except ValueError:
        raise Refusal(f"mode is {asked['mode']!r}, expected one of {', '.join(FaultMode)}", param="mode") from None
    fields: dict[str, Any] = {}
    for name, value in asked.items():
        if name == "mode" or value is None:
            continue
        if name not in _LIMITS:
            raise Refusal(f"unknown field {name!r}, expected one of mode, {', '.join(_LIMITS)}", param=name)
        fields[name] = _number(name, value)
    if mode is FaultMode.REFUSE and "count" in fields:
        raise Refusal("a port that refuses connections cannot count requests; give seconds", param="count")
    return Fault(mode=mode, **fields)


def _number(name: str, value: Any) -> int | float:
    kind, least, most = _LIMITS[name]
    is_number = isinstance(value, int | kind) and not isinstance(value, bool)
    if not is_number or not least <= value <= most:
        raise Refusal(f"{name} is {value!r}, expected a number in {least}..{most}", param=name)
    return kind(value)


class FaultSwitch:
    """The fault that is on, counted down by the requests that suffer it."""

    def __init__(self) -> None:
        self.current = NO_FAULT
        self._num_left: int | None = None
        self._lifted = asyncio.Event()

    def turn(self, fault: Fault) -> None:
        """Replace the fault; whoever hangs on the one before goes on."""
        self._lifted.set()
        self._lifted = asyncio.Event()
        self.current = fault
        self._num_left = fault.count

    def take(self) -> Fault:
        """The fault that the next generation request suffers."""
        fault = self.current
        if self._num_left is not None:
            if self._num_left == 0:
                return NO_FAULT
            self._num_left -= 1
        return fault

    async def lifted(self) -> None:
        """Wait until another fault, or none, is turned on."""
        await self._lifted.wait()

    def as_json(self) -> dict[str, Any]:
        """The fault with what is left of its count."""
        return {**self.current.as_json(), "left": self._num_left}
