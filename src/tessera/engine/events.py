"""What does an engine tell? Events as they happen, and its state when asked."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class FailureReason(StrEnum):
    """Why a request can never be served."""

    PROMPT_TOO_LONG = "prompt-too-long"
    """Prompt and output exceed the model's context or the whole KV cache."""
    ITEM_TOO_LARGE = "item-too-large"
    """A media item has more embeddings than the encoder cache."""
    ITEM_LOST = "item-lost"
    """A media item came without content and nobody has its embeddings. vLLM 0.32 ends the process for it."""


@dataclass(frozen=True, slots=True)
class FirstToken:
    """A request's first output token leaves, of its first choice to have one."""

    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Finished:
    """A request's last output token leaves."""

    request_id: str
    at: float
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens found in the KV cache at the first admission, of the first choice."""
    num_completion_tokens: int
    """Of all choices; 0 where the server only encodes."""
    num_pulled_tokens: int = 0
    """Prompt tokens whose KV a peer had and this server had not, of the first choice."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A request was refused, or cannot go on; nothing of it is answered."""

    request_id: str
    at: float
    reason: FailureReason


@dataclass(frozen=True, slots=True)
class KVPulled:
    """All KV of a request that a peer kept has arrived: the peer may let it go."""

    request_id: str
    at: float


@dataclass(frozen=True, slots=True)
class BlocksStored:
    """The KV cache holds further blocks of a request, told at the end of the step that computes them.

    The keys are the engine's own names: a key is used for one content only; content
    that was removed and computed again may have another key. Output blocks are told too.
    Those of an aborted request are told until the end of the step that ran at its abort.
    """

    request_id: str
    at: float
    first_block: int
    """Index of the first of them among the request's blocks: its tokens begin at ``first_block * block_size``."""
    keys: range
    choice: int = 0
    """Which of the request's choices, 0 for all that share the prompt's blocks."""


@dataclass(frozen=True, slots=True)
class BlocksRemoved:
    """These blocks were evicted."""

    at: float
    keys: range


@dataclass(frozen=True, slots=True)
class CacheCleared:
    """The whole prefix cache was dropped."""

    at: float


KVEvent = BlocksStored | BlocksRemoved | CacheCleared
RequestEvent = FirstToken | Finished | Failed | KVPulled
EngineEvent = RequestEvent | KVEvent


class CacheCounters(NamedTuple):
    """What a cache was asked and what it had, since the engine's start."""

    num_queried: int
    num_hit: int


class EngineFacts(NamedTuple):
    """An engine's state, as its metrics page would tell it."""

    num_waiting: int
    """Sequences in the scheduler's queue (``vllm:num_requests_waiting``), deferred ones among them."""
    num_running: int
    """Sequences in the batch (``vllm:num_requests_running``)."""
    kv_usage_fraction: float
    """Share of KV blocks that running sequences hold, 0..1."""
    num_blocks: int
    """KV blocks of the engine."""
    block_size: int
    """Tokens a block holds."""
    num_first_tokens: int
    """Sequences that have had a first token, since the start (``vllm:time_to_first_token_seconds_count``)."""
    prefix_cache: CacheCounters
    """In tokens."""
    processor_cache: CacheCounters
    """In media items."""
    encoder_cache: CacheCounters
    """In media items; what the KV cache covers is not asked for."""
    num_preemptions: int
    num_prompt_tokens: int
    """Of prompts that have had a first token, since the start (``vllm:prompt_tokens_total``)."""
    num_generation_tokens: int
    """Since the start (``vllm:generation_tokens_total``)."""
    num_deferred: int = 0
    """Sequences that wait for embeddings or KV from elsewhere."""
    external_prefix_cache: CacheCounters = CacheCounters(0, 0)
    """In tokens, of prompts whose KV a peer kept: what the own cache lacked, and what was pulled of it."""
    num_cached_prompt_tokens: int = 0
    """Of ``num_prompt_tokens``, found in the KV cache."""
    num_pulled_prompt_tokens: int = 0
    """Of ``num_prompt_tokens``, sent by peers."""
    num_transferred_bytes: int = 0
    """Embeddings and KV read from elsewhere, since the start."""
