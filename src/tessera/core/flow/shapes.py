"""Where does each API keep its token limits, its number of answers and its usage?

Source: ``entrypoints`` of vLLM 0.32; llm-d's sidecar for chat, responses and generate.
"""

from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class ErrorShape(StrEnum):
    """How a client of the API is told that something failed."""

    OPENAI = "openai"
    RESPONSES = "responses"
    """OpenAI's, but for the event of a stream."""
    ANTHROPIC = "anthropic"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One API, as far as legs differ by it."""

    name: str
    """The dialect."""
    limit: str = "max_tokens"
    """The field that is set to 1 where an answer is not wanted."""
    other_limits: tuple[str, ...] = ()
    """Fields with the same meaning that count where the client sent them."""
    sampling: str | None = None
    """The field that holds limits and number of answers; nothing: the body itself."""
    dropped: tuple[str, ...] = ("stream_options",)
    """What a prefill must not be told."""
    cached: tuple[str, ...] = ("prompt_tokens_details", "cached_tokens")
    """Where in a usage the number of cached tokens is."""
    usages: tuple[tuple[str, ...], ...] = (("usage",),)
    """Where in an answer, or in an event of a stream, a usage may be."""
    errors: ErrorShape = ErrorShape.OPENAI


CHAT: Final = Shape(name="chat", other_limits=("max_completion_tokens",))
_SHAPES = (
    ("/v1/chat/completions", CHAT),
    ("/v1/completions", Shape(name="completions")),
    (
        "/v1/messages",
        Shape(
            name="messages",
            cached=("cache_read_input_tokens",),
            usages=(("usage",), ("message", "usage")),
            errors=ErrorShape.ANTHROPIC,
        ),
    ),
    (
        "/v1/responses",
        Shape(
            name="responses",
            limit="max_output_tokens",
            dropped=("stream_options", "background"),
            cached=("input_tokens_details", "cached_tokens"),
            usages=(("usage",), ("response", "usage")),
            errors=ErrorShape.RESPONSES,
        ),
    ),
    ("/inference/v1/generate", Shape(name="generate", sampling="sampling_params")),
)
SHAPES: Final = MappingProxyType(dict(_SHAPES))
"""By path: the requests whose stages may run apart."""
CHAT_PATH: Final = "/v1/chat/completions"
"""Where every encode job goes, whatever the client's API: there vLLM answers with references."""
