"""How does vLLM say no? Its error bodies, with the words that its clients see."""

from http import HTTPStatus
from typing import Any

import msgspec

from tessera.core.errors import TesseraError

ERROR_TYPES = {
    400: "BadRequestError",
    404: "NotFoundError",
    422: "UnprocessableEntityError",
    500: "InternalServerError",
    503: "ServiceUnavailableError",
}


class Refusal(TesseraError):
    """The server answers with an error status and OpenAI's error body."""

    def __init__(self, message: str, *, status: int = 400, type: str | None = None, param: str | None = None) -> None:
        self.message = message
        self.status = status
        self.type = type or ERROR_TYPES.get(status, HTTPStatus(status).phrase)
        self.param = param
        super().__init__(message)

    def body(self) -> bytes:
        """The JSON that is sent."""
        error: dict[str, Any] = {"message": self.message, "type": self.type, "param": self.param, "code": self.status}
        return msgspec.json.encode({"error": error})


def invalid_field(name: str, kind: str, problem: str, value: object) -> Refusal:
    """A field that vLLM's schema does not take; a dict is shown by its size."""
    shown = f"'<dict of {len(value)} items>'" if isinstance(value, dict) else repr(value)[:80]
    detail = f"{{'type': '{kind}', 'loc': 'body.{name}', 'msg': '{problem}', 'input': {shown}}}"
    return Refusal(f"1 validation error:\n  {detail}", type="Bad Request", param=f"body.{name}")


def invalid_json(position: int, problem: str) -> Refusal:
    """A body that is no JSON, broken at ``position``."""
    detail = (
        f"{{'type': 'json_invalid', 'loc': 'body.{position}', 'msg': 'JSON decode error', "
        f"'input': '<dict of 0 items>', 'ctx': {{'error': '{problem}'}}}}"
    )
    return Refusal(f"1 validation error:\n  {detail}", type="Bad Request", param=f"body.{position}")


def unknown_model(asked: str, served: str) -> Refusal:
    """A model name that this server does not serve."""
    message = f"The model `{asked[:256]}` does not exist. Valid aliases: {served}."
    return Refusal(message, status=404, param="model")


def wrong_media_type() -> Refusal:
    """A body that does not say it is JSON."""
    message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    return Refusal(message, type="Bad Request")


def too_many(modality: str, at_most: int) -> Refusal:
    """More items of a modality than a prompt may hold; 0 for what the server does not take at all."""
    message = f"At most {at_most} {modality}(s) may be provided in one prompt. (parameter={modality})"
    return Refusal(message, param=modality)


def too_large_item(modality: str, index: int, num_embeds: int, at_most: int) -> Refusal:
    """An item that the encoder cache could not hold."""
    message = (
        f"The {modality} at index {index} has {num_embeds} embeddings, which exceeds the encoder cache size {at_most}."
    )
    return Refusal(message, param=modality)


def dead_engine() -> Refusal:
    """A request to a server whose engine has ended, and the one that has ended it."""
    return Refusal("EngineCore encountered an issue. See stack trace (above) for the root cause.", status=500)


def unknown_token(token_id: int) -> Refusal:
    """A token id that no model has."""
    return Refusal(f"Token id {token_id} is out of vocabulary")


def too_long_text(max_model_len: int) -> Refusal:
    """Text that alone is longer than the model's context; vLLM stops counting one token behind it."""
    least = max_model_len + 1
    message = (
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
        f"{least} input tokens, which exceeds this limit even without any output tokens. "
        f"Please reduce the length of the input prompt. (parameter=input_tokens, value={least})"
    )
    return Refusal(message, param="input_tokens")


def too_long_prompt(num_tokens: int, max_model_len: int) -> Refusal:
    """A prompt that its pictures make longer than the model's context."""
    return Refusal(f"Input length ({num_tokens}) exceeds model's maximum context length ({max_model_len}).")


def bad_max_tokens(value: int, max_model_len: int) -> Refusal:
    """An answer length below 1 or beyond the model's context."""
    if value < 1:
        message = f"max_tokens must be at least 1, got {value}."
    else:
        message = (
            f"max_tokens={value} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens."
        )
    return Refusal(f"{message} (parameter=max_tokens, value={value})", param="max_tokens")


def no_room(num_output_tokens: int, num_tokens: int, max_model_len: int) -> Refusal:
    """A prompt and an answer that fit the context each, but not together."""
    message = (
        f"The prompt's {num_tokens} tokens and max_tokens={num_output_tokens} do not fit max_model_len={max_model_len} "
        f"together. Shorten the prompt or ask for fewer tokens. (parameter=input_tokens, value={num_tokens})"
    )
    return Refusal(message, param="input_tokens")
