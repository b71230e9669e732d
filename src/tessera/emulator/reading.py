"""What does a body ask of the engine, or why would vLLM refuse it?"""

import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from tessera.core.dialects.chat import ChatDialect
from tessera.core.dialects.completions import CompletionsDialect
from tessera.core.dialects.json_body import read_json
from tessera.core.draft import Draft, DraftMedia, DraftPart, DraftTokens
from tessera.core.errors import RequestError
from tessera.core.media.identity import Naming
from tessera.core.parts import MediaItem, Modality
from tessera.core.plugin import Dialect
from tessera.core.reading import naming_of
from tessera.core.rendering.prompt import MAX_TOKEN_ID, PromptTokens
from tessera.core.rendering.unrendered import Reason, Unrendered
from tessera.core.types import Basis, ModelProfile, PricedItem
from tessera.emulator import refusals
from tessera.emulator.bare_items import Grid, grids_of
from tessera.emulator.pictures import Pictures, PromptItem, SeenPictures
from tessera.emulator.prompts import (
    NUM_ANSWER_HEAD_TOKENS,
    NUM_MESSAGE_TOKENS,
    EnginePrompt,
    num_text_tokens,
    stand_ins,
)
from tessera.emulator.refusals import Refusal
from tessera.emulator.settings import EmulatorSettings
from tessera.emulator.transfer_params import TransferParams, read_transfer_params
from tessera.engine.roles import Role

MAX_CHOICES = 128
"""``n`` of one request."""
MAX_ENGINE_REQUESTS = 1024
"""Prompts x choices of one request."""
DEFAULT_COMPLETION_TOKENS = 16
"""``max_tokens`` of a text completion that does not say. Source: OpenAI's API reference."""

MAX_STAND_INS_PER_TOKEN = 16
"""Text of more than so many 4 bytes for each token of the model's context is refused before it is tokenised."""

PROFILE = ModelProfile()


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
    transfer: TransferParams = field(default_factory=TransferParams)
    """What other servers have done of it, or will do."""

    @property
    def num_prompt_tokens(self) -> int:
        """Over all prompts."""
        return sum(prompt.num_tokens for prompt in self.prompts)

    def num_block_tokens(self, block_size: int) -> int:
        """Tokens in full KV blocks of the prompts."""
        return sum(prompt.num_tokens // block_size * block_size for prompt in self.prompts)


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
    kv_transfer_params: Any = None
    ec_transfer_params: Any = None


class NoMemo:
    """Remembers no text's tokens."""

    def get(self, digest: bytes) -> Sequence[int] | None:
        """Nothing."""

    def put(self, digest: bytes, token_ids: Sequence[int]) -> None:
        """Let it go."""


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads bodies for one served model."""

    settings: EmulatorSettings
    seen: SeenPictures = field(default_factory=SeenPictures)

    def read(self, body: bytes, *, is_chat: bool, wall_at: float) -> Asked:
        """What the body asks; ``wall_at``, Unix seconds, is for chat templates that write the date.

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
        naming = naming_of(draft, ModelProfile(engine_model=self.settings.engine_model))
        num_messages = _num_messages(options.messages) if is_chat else 0
        transfer = read_transfer_params(options.kv_transfer_params, options.ec_transfer_params)
        grids = iter(_grids(options.messages) if is_chat else [])
        prompts = tuple(self._prompt(draft, parts, naming, num_messages, wall_at, grids) for parts in draft.prompts)
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
            transfer=transfer,
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

    def _prompt(
        self,
        draft: Draft,
        parts: Sequence[DraftPart],
        naming: Naming,
        num_messages: int,
        wall_at: float,
        grids: Iterator[Grid],
    ) -> EnginePrompt:
        limit = self.settings.max_model_len
        given = [token_id for part in parts if isinstance(part, DraftTokens) for token_id in part.token_ids]
        if given and not 0 <= min(given) <= max(given) <= MAX_TOKEN_ID:
            raise refusals.unknown_token(min(given) if min(given) < 0 else max(given))
        num_text = num_text_tokens(parts) + _num_template_tokens(num_messages)
        if num_text > limit * (MAX_STAND_INS_PER_TOKEN if self.settings.renderer else 1):
            raise refusals.too_long_text(limit)
        media = [part for part in parts if isinstance(part, DraftMedia)]
        items = Pictures(self.settings, self.seen).items(media, naming, grids)
        tokens = self._rendered(replace(draft, prompts=[list(parts)]), items, wall_at)
        if tokens.reason is None:
            ids, offsets = array("q", tokens.token_ids), tuple(span.offset for span in tokens.spans)
            items = tuple(items[span.index] for span in tokens.spans)
        elif num_text > limit:
            raise refusals.too_long_text(limit)
        else:
            ids, offsets = stand_ins(parts, items, num_messages)
        if not ids:
            raise Refusal("The decoder prompt cannot be empty")
        prompt = EnginePrompt(
            token_ids=ids, items=items, offsets=offsets, cache_salt=draft.cache_salt, stand_in=tokens.reason
        )
        if prompt.num_tokens - prompt.num_media_tokens > limit:
            raise refusals.too_long_text(limit)
        if prompt.num_tokens > limit:
            raise refusals.too_long_prompt(prompt.num_tokens, limit)
        return prompt

    def _rendered(self, draft: Draft, items: Sequence[PromptItem], wall_at: float) -> PromptTokens:
        """The model's own token ids, or why there are none. The engine's own names and sizes are certain."""
        if self.settings.renderer is None:
            return PromptTokens(reason=Reason.NO_RENDERER)
        priced = [
            PricedItem(
                index=index,
                item=MediaItem(
                    modality=Modality.IMAGE, format=None, identifier=each.identifier, is_identity_exact=True
                ),
                num_tokens=each.num_tokens,
                num_embeds=each.num_embeds,
                num_wrapper_tokens=each.num_wrapper_tokens,
                rule_basis=Basis.EXACT,
                size_basis=Basis.EXACT,
            )
            for index, each in enumerate(items)
        ]
        try:
            return self.settings.renderer.tokens(draft, priced, NoMemo(), wall_at)
        except Unrendered as unrendered:
            return PromptTokens(reason=unrendered.reason)

    def _output(self, options: Options, is_chat: bool, num_prompt_tokens: int) -> tuple[int, str]:
        """Answer tokens and why the answer will end there; an encoder's ends with its first, which is none."""
        if self.settings.profile.role is Role.ENCODE:
            return 1, "stop"
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


def _num_messages(messages: msgspec.Raw) -> int:
    try:
        listed = msgspec.json.decode(messages, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        raise refusals.invalid_field("messages", "list_type", "Input should be a valid list", {}) from None
    except msgspec.DecodeError:
        listed = json.loads(bytes(messages))
    if not listed:
        raise Refusal("Cannot apply chat template to an empty conversation. Provide at least one message.")
    return len(listed)


def _grids(messages: msgspec.Raw) -> list[Grid]:
    if b"image_embeds" not in bytes(messages):
        return []
    try:
        return grids_of(msgspec.json.decode(messages))
    except msgspec.DecodeError:
        return grids_of(json.loads(bytes(messages)))


def _num_template_tokens(num_messages: int) -> int:
    return num_messages * NUM_MESSAGE_TOKENS + NUM_ANSWER_HEAD_TOKENS if num_messages else 0
