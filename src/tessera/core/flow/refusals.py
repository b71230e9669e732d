"""How is a client of each API told that its request failed, before its answer and in the middle of it?"""

from typing import Final

import msgspec

from tessera.core.flow.shapes import ErrorShape

_OPENAI_TYPES: Final = {
    400: "BadRequestError",
    403: "PermissionDeniedError",
    408: "RequestTimeoutError",
    413: "RequestTooLargeError",
    502: "BadGatewayError",
    503: "ServiceUnavailableError",
    504: "GatewayTimeoutError",
}
"""In vLLM's spelling."""
_ANTHROPIC_TYPES: Final = {
    400: "invalid_request_error",
    403: "permission_error",
    413: "request_too_large",
    503: "overloaded_error",
    504: "timeout_error",
}
"""Source: Anthropic's API reference, "Errors"; anything else is ``api_error``."""


def error_body(shape: ErrorShape, status: int, message: str, param: str | None = None) -> bytes:
    """The JSON of an answer with that status."""
    if shape is ErrorShape.ANTHROPIC:
        kind = _ANTHROPIC_TYPES.get(status, "api_error")
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})
    kind = _OPENAI_TYPES.get(status, "InternalServerError")
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})


def error_event(shape: ErrorShape, message: str) -> bytes:
    """What ends a stream that breaks: the API's error event, and what clients expect last."""
    match shape:
        case ErrorShape.ANTHROPIC:
            return b"event: error\ndata: " + error_body(shape, 502, message) + b"\n\n"
        case ErrorShape.RESPONSES:
            event = {"type": "error", "code": "server_error", "message": message, "param": None}
            return b"event: error\ndata: " + msgspec.json.encode(event) + b"\n\n"
        case ErrorShape.OPENAI:
            return b"data: " + error_body(shape, 502, message) + b"\n\ndata: [DONE]\n\n"
