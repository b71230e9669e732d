"""What is known of endpoints: facts for one decision, and the events by which the fleet changes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tessera.core.types import Candidate, Endpoint, F, FactKey, FirstTokenSource, PricedItem, PricedRequest
from tessera.core.work import StageEnded


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What an endpoint's own metrics page said at its last scrape.

    A field is ``None`` where the page does not say it, or where the page is too
    old to be believed.
    """

    producer: ClassVar[str] = "core-metrics-extractor"

    num_waiting: int | None = None
    num_running: int | None = None
    kv_usage_fraction: float | None = None
    """Share of KV blocks in use, 0..1."""
    block_size: int | None = None
    """Tokens a KV block holds."""
    num_blocks: int | None = None
    """KV blocks of the endpoint."""
    num_cache_tokens: int | None = None
    """The engine's own count of KV capacity in tokens."""
    running_loras: tuple[str, ...] = ()
    """LoRA adapters of running requests."""
    waiting_loras: tuple[str, ...] = ()
    """LoRA adapters of waiting requests."""
    max_loras: int | None = None
    """LoRA adapters that fit into one batch."""
    at: float | None = None
    """When the scrape that told it began, seconds on the driver's clock."""


UNKNOWN_LOAD = Load()


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlightLoad:
    """What this router has sent to an endpoint and not yet seen the end of."""

    producer: ClassVar[str] = "inflight-load-producer"

    num_requests: int = 0
    num_uncached_tokens: int = 0
    """Prompt tokens that no cache is believed to hold, of requests before their first token."""
    num_items: int = 0
    media_bytes: int = 0
    encode_embeds: int = 0
    """Encoder rows still to be computed, of requests before their first token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMatch:
    """How much of this request's prompt an endpoint's KV cache is believed to hold."""

    producer: ClassVar[str] = "approx-prefix-cache-producer"

    num_matched_tokens: int
    num_total_tokens: int
    num_matched_text_tokens: int = 0
    num_matched_media_tokens: int = 0
    is_exact: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EncoderMatch:
    """Which of this request's media items an endpoint's encoder cache is believed to hold."""

    producer: ClassVar[str] = "mm-embeddings-cache-producer"

    identifiers: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorMatch:
    """Which of this request's media items an endpoint's processor cache is believed to hold."""

    producer: ClassVar[str] = "processor-cache-producer"

    identifiers: frozenset[str]


PIXELS_PER_EMBED = 1024
"""What an item of unknown size is taken to have. Source: Qwen3-VL merges 2 x 2 patches of 16 x 16 pixels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MediaRates:
    """How long an endpoint takes for a media item; by default as Qwen3-VL-32B on two H200 does."""

    encode_s_per_item: float = 0.003
    encode_s_per_embed: float = 10.1e-6
    encode_s_per_embed_squared: float = 5.5e-9
    processing_s_per_megapixel: float = 0.0293
    factor: float = 1.0
    """All of it times this, as was learned."""

    def encode_s(self, item: PricedItem) -> float:
        """Encoder time of an item."""
        num = item.num_embeds
        each = self.encode_s_per_embed + self.encode_s_per_embed_squared * num
        return self.factor * (self.encode_s_per_item + each * num)

    def processing_s(self, item: PricedItem) -> float:
        """CPU time of an item; where its size is unknown, by its embeddings."""
        width, height, frames = item.item.width, item.item.height, item.item.num_frames
        known = width * height * (frames or 1) if width and height else item.num_embeds * PIXELS_PER_EMBED
        return self.factor * self.processing_s_per_megapixel * known / 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstTokenCost:
    """What stands between an endpoint and this request's first token, in predicted seconds."""

    producer: ClassVar[str] = "ttft-cost-producer"

    queued_s: float = 0.0
    """Work of requests that were sent there and have no first token yet."""
    num_waiting: int = 0
    """Those requests."""
    prefill_s: float = 0.0
    """Computing the prompt tokens that no KV cache holds."""
    encode_s: float = 0.0
    """Encoding the media items that neither the KV cache nor the encoder cache holds."""
    processing_s: float = 0.0
    """Preparing the media items that the processor cache lacks, on the CPU."""
    held_encode_s: float = 0.0
    """Encoding that the encoder cache is believed to spare; no part of the others."""
    ttft_s: float = 0.0
    """The predicted time to the first token: all that stands ahead and what every request takes."""
    rates: MediaRates = field(default=MediaRates(), repr=False)
    """What encoding and preparing of an item would take there."""

    @property
    def own_s(self) -> float:
        """This request's own work there."""
        return self.prefill_s + self.encode_s + self.processing_s


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheSource:
    """Who holds more of this request's prompt in its KV cache than an endpoint does, and could give it."""

    producer: ClassVar[str] = "p2p-source-producer"

    endpoint_id: str | None = None
    """``ip:port``; nothing where nobody holds enough more."""
    num_more_tokens: int = 0
    """Prompt tokens that it holds beyond the endpoint's own."""


def uncached_tokens(
    request: PricedRequest, candidates: Sequence[Candidate], producer: str = PrefixMatch.producer
) -> list[int]:
    """Prompt tokens that each of ``candidates`` would have to prefill; all of them where no producer knows.

    Where there is no producer of that name, the only one there is counts: an exact one stands alone.
    """
    total = request.num_prompt_tokens
    key: FactKey = (PrefixMatch, producer)
    if candidates and key not in candidates[0].facts:
        others = [each for each in candidates[0].facts if each[0] is PrefixMatch]
        key = others[0] if len(others) == 1 else key
    matches: list[PrefixMatch | None] = [candidate.facts.get(key) for candidate in candidates]
    matched = [match.num_matched_tokens if match else 0 for match in matches]
    return [total - tokens if tokens < total else 0 for tokens in matched]


def num_uncached_tokens(request: PricedRequest, candidate: Candidate, producer: str = PrefixMatch.producer) -> int:
    """The same of one candidate."""
    return uncached_tokens(request, [candidate], producer)[0]


class Table(tuple[Candidate, ...]):
    """Candidates in their order, as filters and scorers get them: many of these read the same facts of all of them."""

    def __init__(self, candidates: Iterable[Candidate]) -> None:
        self._columns: dict[FactKey, tuple[Any, ...]] = {}

    def column(self, key: FactKey) -> tuple[Any, ...]:
        """One fact for each candidate, looked up when it is first asked for."""
        if key not in self._columns:
            self._columns[key] = tuple([candidate.facts[key] for candidate in self])
        return self._columns[key]


def facts_of(kind: type[F], candidates: Sequence[Candidate], producer: str | None = None) -> Sequence[F]:
    """One fact for each candidate, same order: the default producer's, or that of the named one.

    Absent facts are a ``KeyError``, as for ``Candidate``.
    """
    key = (kind, producer or kind.producer)
    if isinstance(candidates, Table):
        return candidates.column(key)
    return [candidate.facts[key] for candidate in candidates]


def pessimistic(column: Sequence[float | None]) -> list[float]:
    """The column with every unknown value replaced by the worst known one; zeros where none is known.

    An endpoint that does not answer its scrape must not look idle; a pool where
    nobody answers must look equal, so that our own counts decide.

    >>> pessimistic([3.0, None, 1.0])
    [3.0, 3.0, 1.0]
    >>> pessimistic([None, None])
    [0.0, 0.0]
    """
    known = [value for value in column if value is not None]
    if len(known) == len(column):
        return known
    worst = max(known, default=0.0)
    return [worst if value is None else value for value in column]


@dataclass(frozen=True, slots=True)
class EndpointState:
    """An endpoint and its last scrape."""

    endpoint: Endpoint
    load: Load = UNKNOWN_LOAD


@dataclass(frozen=True, slots=True)
class FleetView:
    """The fleet at one instant, immutable."""

    endpoints: tuple[EndpointState, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """An endpoint came, or came back with other labels or ports."""

    at: float
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """An endpoint is gone."""

    at: float
    endpoint: Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Scraped:
    """An endpoint's metrics page was read."""

    at: float
    """When the answer had come, seconds on the driver's clock."""
    endpoint_id: str
    load: Load
    num_first_tokens: int | None = None
    """The engine's running count of first tokens (``time_to_first_token_seconds_count``)."""
    process_start_at: float | None = None
    """Unix seconds at which the engine's process started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstToken:
    """A request's prompt is computed: its first token was seen or inferred."""

    at: float
    request_id: str
    source: FirstTokenSource


ExtraKey = str | bytes | tuple[str, int]
"""A block's extra key as the engine publishes it: an adapter's name or a salt; the digest of prompt
embeddings; a media item's identifier and its offset from the block's start."""
ExtraKeysOfBlock = tuple[ExtraKey | None, ...]
"""In the engine's order; ``None`` for a key of a kind that we do not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVStored:
    """An engine's KV cache now holds these blocks."""

    at: float
    endpoint_id: str
    rank: int = 0
    """Which of the endpoint's data-parallel engines."""
    block_hashes: tuple[int, ...]
    """The engine's hashes, their last 64 bits; consecutive blocks of one prompt."""
    parent_block_hash: int | None = None
    """The hash of the block before the first; nothing at a prompt's start."""
    token_ids: tuple[int, ...] = ()
    """Of all blocks; empty where only a further tier is told."""
    block_size: int
    """Tokens a block holds."""
    extra_keys: tuple[ExtraKeysOfBlock | None, ...] | None = None
    """For each block; nothing where no block has any."""
    tier: str = "gpu"
    lora: str | None = None
    """The adapter's name."""
    group: int | None = None
    """The engine's KV cache group."""
    attention: str | None = None
    """The group's kind; nothing is ``full_attention``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KVRemoved:
    """An engine's KV cache gave up one copy of each of these blocks."""

    at: float
    endpoint_id: str
    rank: int = 0
    block_hashes: tuple[int, ...]
    tier: str = "gpu"
    group: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCleared:
    """An engine's KV cache is empty, or what we know of it is no longer true."""

    at: float
    endpoint_id: str
    rank: int = 0


KVEvent = KVStored | KVRemoved | KVCleared

FleetEvent = Joined | Left | Scraped | FirstToken | StageEnded | KVEvent
