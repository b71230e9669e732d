"""What can happen to a flow? Every event says when."""

from dataclasses import dataclass
from enum import StrEnum


class Cause(StrEnum):
    """Why a leg failed, or why a stage ran here though it could have run elsewhere."""

    UNREACHABLE = "unreachable"
    """No connection."""
    CUT = "cut"
    """The connection ended before the answer did."""
    LATE = "late"
    """No answer within its time."""
    STATUS = "status"
    """An answer of 429 or of 500 and more: another server may do better."""
    REJECTED = "rejected"
    """Another status than success: every server would say the same."""
    BAD_ANSWER = "bad-answer"
    """An answer that is no JSON object, or larger than is read."""
    NO_REFERENCE = "no-reference"
    """Success, but nothing in the answer by which the work can be fetched."""
    SEVERAL_SEQUENCES = "several-sequences"
    """Several answers or prompts in one request: the blocks of a prefill are handed over once."""
    UNREAD = "unread"
    """The body could not be read."""
    TRANSFER = "transfer"
    """The engine could not use what it was referred to."""


@dataclass(frozen=True, slots=True)
class Started:
    """The request is there."""

    at: float


@dataclass(frozen=True, slots=True)
class EncodeAnswered:
    """An encoder answered in full."""

    at: float
    item: int
    attempt: int
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class EncodeFailed:
    """An encoder gave no answer."""

    at: float
    item: int
    attempt: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class PrefillAnswered:
    """A prefiller answered in full."""

    at: float
    attempt: int
    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PrefillFailed:
    """A prefiller gave no answer."""

    at: float
    attempt: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class DecodeHeaders:
    """The engine began to answer."""

    at: float
    attempt: int
    status: int


@dataclass(frozen=True, slots=True)
class DecodeEnded:
    """The engine's answer is complete."""

    at: float
    attempt: int


@dataclass(frozen=True, slots=True)
class DecodeFailed:
    """The engine gave no answer, or stopped in the middle of it."""

    at: float
    attempt: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Woken:
    """The time of a WakeAt has come."""

    at: float


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client does not wait any more."""

    at: float


Event = (
    Started
    | EncodeAnswered
    | EncodeFailed
    | PrefillAnswered
    | PrefillFailed
    | DecodeHeaders
    | DecodeEnded
    | DecodeFailed
    | Woken
    | ClientGone
)
