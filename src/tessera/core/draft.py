"""What did the dialect see in the body? Text and media in prompt order, before anything is measured.

A Draft holds strings of the body, so it lives only for ``Router.read`` (and
``tokenise``): nothing that is kept refers to it.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tessera.core.parts import Modality


@dataclass(slots=True, kw_only=True)
class DraftText:
    """A run of text: one message's role and one text part, or the raw ``tools`` bytes."""

    text: str | bytes
    role: str = ""
    """Counted and hashed before the text, as llm-d does."""


@dataclass(slots=True, kw_only=True)
class DraftTokens:
    """A prompt that the client sent as token ids."""

    token_ids: list[int]


@dataclass(slots=True, kw_only=True)
class DraftMedia:
    """A media part: a URL (``data:`` or a link), bare base64, the bytes themselves, or only a uuid."""

    modality: Modality
    url: str | None = None
    base64: str | None = None
    """Bare base64 without a data-URI head (``input_audio.data``)."""
    content: memoryview | bytes | None = None
    """The bytes themselves, where the body carries them as they are: a file of a multipart form."""
    format: str | None = None
    """What the client says the format is; never trusted, only hashed."""
    uuid: str | None = None
    has_other_uuid: bool = False
    """Whether the client gave a uuid that is not kept as it stands: no text, or none of 1 to 1,024 characters."""
    is_embeds: bool = False
    """Whether the content is a tensor that stands in for the encoder's output: it has no format and no size."""
    num_tokens_declared: int | None = None
    """Prompt positions that the client says the item takes, at most the prompt's length."""
    placeholder_ids: list[int] = field(default_factory=list)
    """The token ids at these positions, where the client sent ids."""


DraftPart = DraftText | DraftTokens | DraftMedia


class Undrafted(Exception):
    """A conversation that cannot be told for certain."""

    def __init__(self, word: str = "message") -> None:
        """``word`` says why: a word of ``rendering.unrendered.Reason``."""
        super().__init__(word)
        self.word = word


@dataclass(slots=True, kw_only=True)
class DraftChat:
    """What a chat template is asked: a chat completion, or what the engine makes one of."""

    messages: list[Any]
    """In a chat completion's shape. Of media parts only the kind counts."""
    tools: list[Any] | None = None
    """In a chat completion's shape; nothing where there are none, which templates tell from an empty list."""
    documents: Any = None
    chat_template: Any = None
    """Never rendered."""
    chat_template_kwargs: Any = None
    add_generation_prompt: Any = None
    continue_final_message: Any = None
    reasoning_effort: Any = None
    is_thinking_disabled: bool = False
    """Whether the engine puts the effort that stands for no thinking in place of ``reasoning_effort``."""
    merges_systems: bool = False
    """Whether the engine puts all system text in front, where its templates take it nowhere else."""
    has_ordered_calls: bool = True
    """Whether the engine puts the fields of tool calls in an order of its own; else they keep the one they have."""


@dataclass(slots=True, kw_only=True)
class Draft:
    """Everything that a dialect reads from a body."""

    dialect: str
    model: str = ""
    prompts: list[list[DraftPart]] = field(default_factory=list)
    stream: bool = False
    max_output_tokens: int | None = None
    num_choices: int = 1
    cache_salt: str | None = None
    session_id: str | None = None
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    media_io_kwargs: Mapping[str, Any] = field(default_factory=dict)
    guesses: list[str] = field(default_factory=list)
    chat: Callable[[], DraftChat] | None = None
    """Makes what the prompt is rendered from, where it is a conversation; called in exact mode. Raises Undrafted."""
    adds_special_tokens: bool = False
    """Whether the engine puts the tokenizer's special tokens around the prompt's text."""
    unrendered: str | None = "dialect"
    """Why token ids cannot be told from the body, a word of ``rendering.unrendered.Reason``; nothing: they may be."""
