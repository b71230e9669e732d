"""What does a flow want done?"""

from dataclasses import dataclass

from tessera.core.work import Work


@dataclass(frozen=True, slots=True)
class Encode:
    """Ask an encoder for one item."""

    item: int
    attempt: int
    endpoint: str
    body: bytes
    """A chat completion, whatever the client's dialect."""


@dataclass(frozen=True, slots=True)
class Prefill:
    """Ask a prefiller, at the path of the client's request."""

    attempt: int
    endpoint: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Decode:
    """Ask the engine behind us, at the path of the client's request."""

    attempt: int
    body: bytes
    num_cached_tokens: int | None = None
    """What the answer's usage must say, where a prefiller said how many tokens it had cached."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Pass the engine's answer on, from its status to its end."""

    stages: str
    """The value of the header ``x-tessera-stages``."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error of our own; nothing was sent before."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class Break:
    """End the answer that has begun with an error: an event of a stream, else the end of the connection."""

    message: str


@dataclass(frozen=True, slots=True)
class End:
    """The answer is complete."""


Reply = Relay | Refuse | Break | End
"""What the client gets: ``Refuse`` alone, or ``Relay`` and then ``End`` or ``Break``."""


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Say so when that time has come; replaces what was asked before."""

    at: float


@dataclass(frozen=True, slots=True)
class Cancel:
    """Give up a leg; whatever comes of it is not waited for."""

    stage: Work
    attempt: int
    item: int | None = None


Command = Encode | Prefill | Decode | Reply | WakeAt | Cancel
