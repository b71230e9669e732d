"""Who must act when something is wrong: the operator, the client, nobody, or a remote endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class TesseraError(Exception):
    """Every error that Tessera raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a configuration."""

    path: str
    """Where: ``plugins[2].parameters.estimate.image.mode``; empty for the whole file."""
    message: str
    """What was seen, what was expected, what to change."""

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ConfigError(TesseraError):
    """The operator must change a file or a flag before start; exit code 2."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: Final = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class RequestError(TesseraError):
    """The client must change its request; answered as 4xx in OpenAI's JSON error shape."""

    def __init__(
        self, message: str, *, status: int = 400, code: str = "invalid_request_error", param: str | None = None
    ) -> None:
        self.message: Final = message
        self.status: Final = status
        self.code: Final = code
        self.param: Final = param
        super().__init__(message)


class DropReason(StrEnum):
    """llm-d's words for a request that is turned away, sent as ``x-llm-d-request-dropped-reason``; last, ours."""

    NO_ENDPOINTS = "rejected-no-endpoints"
    SATURATED = "rejected-saturated"
    SHUTTING_DOWN = "rejected-shutting-down"
    MEDIA_NOT_CACHED = "media_not_cached"
    """The media that the request names without sending it is gone: answered as a RequestError with this code."""

    @property
    def status(self) -> int:
        """422 where the client must change its request, 429 where waiting helps, 503 where an operator must act."""
        match self:
            case DropReason.MEDIA_NOT_CACHED:
                return 422
            case DropReason.SATURATED:
                return 429
        return 503


class Rejected(TesseraError):
    """Nobody is wrong, but the request cannot be served now: 429 or 503."""

    def __init__(
        self, reason: DropReason, message: str, *, retry_after_s: int | None = None, status: int | None = None
    ) -> None:
        self.reason: Final = reason
        self.message: Final = message
        self.retry_after_s: Final = retry_after_s
        self.status: Final = reason.status if status is None else status
        super().__init__(message)


class EndpointError(TesseraError):
    """A remote endpoint failed at one stage."""

    def __init__(self, endpoint: str, stage: str, message: str, *, retryable: bool) -> None:
        self.endpoint: Final = endpoint
        self.stage: Final = stage
        self.retryable: Final = retryable
        super().__init__(f"{endpoint} failed at {stage}: {message}")
