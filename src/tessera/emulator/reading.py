"""What does a body ask of the engine, or why would vLLM refuse it?

Text counts a quarter of its UTF-8 bytes, rounded up in each stretch between two
pictures. A chat adds Qwen's template: 5 tokens a message (``<|im_start|>``, the
role, a newline; ``<|im_end|>``, a newline) and 3 for ``<|im_start|>assistant`` and
its newline; a picture adds its own tokens and 2 markers.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tessera.core.dialects.chat import ChatDialect
from tessera.core.dialects.completions import CompletionsDialect
from tessera.core.dialects.json_body import read_json
from tessera.core.draft import DraftMedia, DraftPart, DraftText, DraftTokens
from tessera.core.errors import RequestError
from tessera.core.plugin import Dialect
from tessera.core.types import ModelProfile
from tessera.emulator import refusals
from tessera.emulator.pictures import Pictures, ProcessorCache, PromptItem
from tessera.emulator.refusals import Refusal
from tessera.emulator.settings import EmulatorSettings

BYTES_PER_TOKEN = 4
NUM_MESSAGE_TOKENS = 5
NUM_ANSWER_HEAD_TOKENS = 3

MAX_CHOICES = 128
"""``n`` of one request."""
MAX_ENGINE_REQUESTS = 1024
"""Prompts x choices of one request."""
DEFAULT_COMPLETION_TOKENS = 16
"""``max_tokens`` of a text completion that does not say. Source: OpenAI's API reference."""

PROFILE = ModelProfile()


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrompt:
    """A prompt as the engine sees it."""

    num_text_tokens: int
    """The template's tokens included."""
    items: tuple[PromptItem, ...] = ()

    @property
    def num_tokens(self) -> int:
        """Text, pictures and their markers."""
        return self.num_text_tokens + sum(item.num_tokens + item.num_wrapper_tokens for item in self.items)

    @property
    def num_media_tokens(self) -> int:
        """Tokens of the pictures alone."""
        return sum(item.num_tokens for item in self.items)

    @property
    def num_embeds(self) -> int:
        """Encoder rows, a repeated picture once."""
        return sum({item.identifier: item.num_embeds for item in self.items}.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a body asks of the engine."""

    dialect: str
    prompts: tuple[EnginePrompt, ...]
    num_choices: int
    num_output_tokens: int
    """Answer tokens of each choice."""
    finish_reason: str
    """``length`` where the client set a limit, else ``stop``."""
    stream: bool
    include_usage: bool
    continuous_usage: bool

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(prompt.num_tokens for prompt in self.prompts)


class Options(msgspec.Struct):
    """The fields that the dialects leave to the engine, and the presence of those they read."""

    model: Any = None
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    stream: Any = None
    stream_options: Any = None
    n: Any = None
    max_tokens: Any = None
    max_completion_tokens: Any = None
    temperature: Any = None
    top_p: Any = None


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies for one served model."""

    settings: EmulatorSettings
    cache: ProcessorCache = field(default_factory=ProcessorCache)

    def read(self, body: bytes, *, is_chat: bool) -> Asked:
        """What the body asks.

        Raises:
            Refusal: vLLM would refuse it.
        """
        options = self._options(body)
        self._check_fields(options)
        needed = "messages" if is_chat else "prompt"
        if not getattr(options, needed):
            raise refusals.invalid_field(needed, "missing", "Field required", _fields(body))
        dialect: Dialect = ChatDialect() if is_chat else CompletionsDialect()
        draft = dialect.parse(body, PROFILE)
        num_template_tokens = _num_template_tokens(options.messages) if is_chat else 0
        prompts = tuple(self._prompt(parts, num_template_tokens) for parts in draft.prompts)
        if not prompts:
            raise Refusal("The prompt is empty; send a string or token ids.")
        num_choices = options.n or 1
        if len(prompts) * num_choices > MAX_ENGINE_REQUESTS:
            raise Refusal(f"{len(prompts)} prompts x {num_choices} choices are too many, at most {MAX_ENGINE_REQUESTS}")
        num_output_tokens, finish_reason = self._output(options, is_chat, max(p.num_tokens for p in prompts))
        stream_options = options.stream_options or {}
        return Asked(
            dialect=draft.dialect,
            prompts=prompts,
            num_choices=num_choices,
            num_output_tokens=num_output_tokens,
            finish_reason=finish_reason,
            stream=options.stream is True,
            include_usage=stream_options.get("include_usage") is True,
            continuous_usage=stream_options.get("continuous_usage_stats") is True,
        )

    def _options(self, body: bytes) -> Options:
        try:
            return read_json(body, Options, PROFILE)[0]
        except RequestError as error:
            try:
                json.loads(body)
            except json.JSONDecodeError as broken:
                raise refusals.invalid_json(broken.pos, broken.msg) from None
            except (ValueError, RecursionError):
                pass
            raise Refusal(error.message, status=error.status) from None

    def _check_fields(self, options: Options) -> None:
        _check_type(options, "model", str, "string_type", "Input should be a valid string")
        for name in ("temperature", "top_p"):
            _check_type(options, name, (int, float), "float_parsing", "Input should be a valid number")
        for name in ("n", "max_tokens", "max_completion_tokens"):
            _check_type(options, name, int, "int_parsing", "Input should be a valid integer")
        _check_type(options, "stream_options", dict, "model_attributes_type", "Input should be a valid dictionary")
        if options.n is not None and not 1 <= options.n <= MAX_CHOICES:
            raise Refusal(f"n must be in 1..{MAX_CHOICES}, got {options.n}.", param="n")
        if options.stream_options and options.stream is not True:
            raise Refusal("stream_options needs `stream: true`.", param="stream_options")
        if options.model and options.model != self.settings.model:
            raise refusals.unknown_model(options.model, self.settings.model)

    def _prompt(self, parts: Sequence[DraftPart], num_template_tokens: int) -> EnginePrompt:
        num_text_tokens = num_template_tokens + _num_text_tokens(parts)
        limit = self.settings.max_model_len
        if num_text_tokens > limit:
            raise refusals.too_long_text(limit)
        media = [part for part in parts if isinstance(part, DraftMedia)]
        items = Pictures(self.settings, self.cache).items(media)
        prompt = EnginePrompt(num_text_tokens=num_text_tokens, items=items)
        if prompt.num_tokens > limit:
            raise refusals.too_long_prompt(prompt.num_tokens, limit)
        return prompt

    def _output(self, options: Options, is_chat: bool, num_prompt_tokens: int) -> tuple[int, str]:
        """Answer tokens and why the answer will end there."""
        limit = self.settings.max_model_len
        asked = options.max_tokens
        if is_chat and options.max_completion_tokens is not None:
            asked = options.max_completion_tokens
        if asked is None and not is_chat:
            asked = DEFAULT_COMPLETION_TOKENS
        if asked is None:
            room = limit - num_prompt_tokens
            if room < 1:
                raise refusals.no_room(1, num_prompt_tokens, limit)
            num_answer_tokens = self.settings.num_answer_tokens
            return (num_answer_tokens, "stop") if num_answer_tokens <= room else (room, "length")
        if not 1 <= asked <= limit:
            raise refusals.bad_max_tokens(asked, limit)
        if num_prompt_tokens + asked > limit:
            raise refusals.no_room(asked, num_prompt_tokens, limit)
        return asked, "length"


def _fields(body: bytes) -> dict[str, msgspec.Raw]:
    """The fields that a body does have, unread; none where msgspec cannot read it."""
    try:
        return msgspec.json.decode(body, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def _check_type(options: Options, name: str, kind: type | tuple[type, ...], word: str, problem: str) -> None:
    value = getattr(options, name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, kind)):
        why = f"{problem}, unable to parse string as a number" if word.endswith("parsing") else problem
        raise refusals.invalid_field(name, word, why if isinstance(value, str) else problem, value)


def _num_template_tokens(messages: msgspec.Raw) -> int:
    try:
        listed = msgspec.json.decode(messages, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise refusals.invalid_field("messages", "list_type", "Input should be a valid list", {}) from None
    except msgspec.DecodeError:
        listed = json.loads(bytes(messages))
    num_messages = len(listed)
    if num_messages == 0:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    return num_messages * NUM_MESSAGE_TOKENS + NUM_ANSWER_HEAD_TOKENS


def _num_text_tokens(parts: Sequence[DraftPart]) -> int:
    total = stretch = 0
    for part in parts:
        if isinstance(part, DraftText):
            stretch += len(part.text if isinstance(part.text, bytes) else part.text.encode("utf-8", "surrogatepass"))
        elif isinstance(part, DraftTokens):
            total += len(part.token_ids)
        else:
            total += -(-stretch // BYTES_PER_TOKEN)
            stretch = 0
    return total + -(-stretch // BYTES_PER_TOKEN)
