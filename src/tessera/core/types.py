"""The spine: what was asked, what it weighs, what was chosen, what came of it; frozen, each holds the one before it."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, Protocol, TypeVar

from tessera.core.errors import DropReason
from tessera.core.headers import KEPT_HEADERS
from tessera.core.parts import MediaItem, Prompt, TextTokens
from tessera.core.work import EncodePlan, StageEnded, Work


class Basis(IntEnum):
    """How well a quantity is known; a larger value is the weaker knowledge."""

    EXACT = 0
    LEARNED = 1
    DECLARED = 2
    DEFAULT = 3

    @property
    def word(self) -> str:
        """The name in JSON: ``exact``, ``learned``, ``declared`` or ``default``."""
        return self.name.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """What the client asks for beyond an answer."""

    priority: int = 0
    fairness_id: str | None = None
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceRequest:
    """What was asked."""

    request_id: str
    """Ours, unique in this process; the client's ``x-request-id`` is only a label."""
    at: float
    """Seconds on the driver's clock."""
    wall_at: float
    """Unix seconds."""
    dialect: str
    """``chat``, ``completions``, ...; ``opaque`` for a request that is routed unread."""
    model: str = ""
    engine_model: str = ""
    """The engine's ``--model`` string, where it is known."""
    prompts: tuple[Prompt, ...] = ()
    cache_salt: str | None = None
    lora: str | None = None
    stream: bool = False
    max_output_tokens: int | None = None
    num_choices: int = 1
    session_id: str | None = None
    mm_processor_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the model's processor, as far as they are kept."""
    media_io_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """How media is to be loaded, by modality (``{"video": {"num_frames": 32}}``), as far as it is kept."""
    subset: tuple[str, ...] | None = None
    """``ip:port`` of the endpoints that the gateway allows; nothing where it does not restrict."""
    objective: Objective = Objective()
    headers: Mapping[str, str] = field(default_factory=dict)
    """The headers that are kept, names in lower case."""
    body_bytes: int = 0
    guesses: tuple[str, ...] = ()
    """What reading fell back to, ``body-reread`` for example."""

    @property
    def num_engine_requests(self) -> int:
        """How many requests the engine makes of it: choices x prompts."""
        return self.num_choices * max(1, len(self.prompts))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What is known of the served model and what a body may hold; immutable, swapped whole."""

    engine_model: str = ""
    """The engine's ``--model`` string."""
    names_as_engine: bool = True
    """Whether items get the engine's own identifiers where they can be had; else a hash of ours, at half the cost."""
    mm_hasher_algorithm: str = "blake3"
    """The engine's ``--mm-hasher-algorithm``: ``blake3``, ``sha256`` or ``sha512``."""
    media_io_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """The engine's ``--media-io-kwargs``, by modality."""
    url_keys_ignored: frozenset[str] = frozenset()
    """Keys of a link's query that do not tell one item from another."""
    adapters: frozenset[str] = frozenset()
    """Models that are LoRA adapters, by the names that requests have for them."""
    dialects: frozenset[str] | None = None
    """Names of the dialects that are read; nothing: all that there are."""
    kept_headers: frozenset[str] = KEPT_HEADERS
    """Names, in lower case, of the headers that are kept of a request."""
    max_items: int = 1024
    """Media items a request may carry (vLLM's own default is 999 for each modality)."""
    max_parts: int = 65_536
    """Parts of all prompts: runs of text, id lists, media items."""
    max_structure: int = 500_000
    """JSON objects and arrays a body may hold."""
    max_values: int = 4_000_000
    """Commas a body may hold, which bounds its numbers and keys."""
    tokenizer: TextTokens | None = None
    """Counts text exactly; nothing: a quarter of its bytes."""
    renders_prompts: bool = False
    """Whether prompts are tokenised as a whole after they are read: their text is not counted part by part then."""
    uses_pillow: bool = False
    """Whether Pillow is asked about pictures that no parser of ours knows. Never on an event loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedItem:
    """What one media item weighs in the served model."""

    index: int
    """Position among the request's items, prompt order."""
    item: MediaItem
    num_tokens: int
    """Prompt positions of the expanded item."""
    num_embeds: int
    """Encoder output rows: what the encoder computes and its cache stores."""
    num_wrapper_tokens: int = 0
    """Markers that the chat template puts around it."""
    rule_basis: Basis
    """Is the rule the served model's?"""
    size_basis: Basis
    """Is the size known?"""
    reason: str | None = None

    @property
    def basis(self) -> Basis:
        """The weaker of the rule's and the size's basis."""
        return max(self.rule_basis, self.size_basis)

    @property
    def identifier(self) -> str:
        """What the engine will call the item."""
        return self.item.identifier


@dataclass(frozen=True, slots=True)
class ItemSpan:
    """Where a media item's tokens lie among a prompt's token ids."""

    index: int
    """Position of the item among the request's items."""
    offset: int
    """Index of its first token."""
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PricedRequest:
    """What the request weighs."""

    request: InferenceRequest
    items: tuple[PricedItem, ...] = ()
    num_text_tokens: int = 0
    text_basis: Basis = Basis.DEFAULT
    """How well the text's tokens are known."""
    num_template_tokens: int = 0
    """The model's template constant."""
    token_ids: Sequence[int] | None = field(default=None, repr=False)
    """The prompt as the engine will see it, media expanded; nothing outside exact mode."""
    spans: tuple[ItemSpan, ...] = ()
    """Where the items lie in ``token_ids``, prompt order."""
    block_keys: Mapping[Hashable, tuple[int, ...]] = field(default_factory=dict, repr=False)
    """What producers computed of ``token_ids`` beforehand, each under a key of its own."""
    untokenised: str | None = None
    """Why there are no ``token_ids``, where they were asked for."""

    num_prompt_tokens: int = field(init=False)
    """Text, items, wrappers and the template constant, over all prompts."""
    num_embeds: int = field(init=False)
    """Encoder rows of all distinct items."""
    _distinct: tuple[PricedItem, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        media = sum([item.num_tokens + item.num_wrapper_tokens for item in self.items])
        first: dict[str, int] = {}
        distinct = [item for at, item in enumerate(self.items) if first.setdefault(item.identifier, at) == at]
        object.__setattr__(self, "num_prompt_tokens", self.num_text_tokens + self.num_template_tokens + media)
        object.__setattr__(self, "num_embeds", sum([item.num_embeds for item in distinct]))
        object.__setattr__(self, "_distinct", tuple(distinct))

    def distinct_items(self) -> tuple[PricedItem, ...]:
        """The first item of each identifier, prompt order."""
        return self._distinct


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One server that can be chosen: an address and a port."""

    address: str
    port: int
    name: str = ""
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    metrics_port: int | None = None
    kv_events_port: int | None = None
    kv_replay_port: int | None = None
    id: str = field(init=False)
    """``ip:port``, the name by which gateways and ledgers know it."""

    def __post_init__(self) -> None:
        host = f"[{self.address}]" if ":" in self.address else self.address
        object.__setattr__(self, "id", f"{host}:{self.port}")


FactKey = tuple[type, str]
"""A fact's type and the name of the producer it comes from."""


class Fact(Protocol):
    """Knowledge of one endpoint for one request; the class names its default producer."""

    producer: ClassVar[str]


F = TypeVar("F", bound=Fact)


class Candidate:
    """One endpoint under consideration, with what the producers know of it.

    ``candidate[Load]`` is the default producer's fact; ``candidate.fact(PrefixMatch, name)`` that of a named one.
    Absent facts are a ``KeyError``: the loader makes sure that a plugin's facts have a producer.
    """

    __slots__ = ("endpoint", "facts")

    def __init__(self, endpoint: Endpoint, facts: Mapping[FactKey, Any]) -> None:
        self.endpoint = endpoint
        self.facts = facts

    def __getitem__(self, kind: type[F]) -> F:
        return self.facts[kind, kind.producer]  # type: ignore[no-any-return]

    def fact(self, kind: type[F], producer: str) -> F | None:
        """The fact of that kind from the producer of that name, if it made one."""
        return self.facts.get((kind, producer))


@dataclass(frozen=True, slots=True)
class Note:
    """What a filter says of its own part in a decision."""

    text: str
    """One sentence for the operator; where the filter left nobody, for the client too."""
    guess: str | None = None
    """The word for it among the Decision's guesses, where the filter had to guess."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One profile's run: the whole table and what was taken from it."""

    profile: str
    candidates: tuple[Candidate, ...]
    """Every endpoint of the view, in the view's order."""
    filtered_by: tuple[str | None, ...]
    """Per candidate: the name of the filter that dropped it, if one did."""
    scored: tuple[int, ...]
    """Indices of the candidates that passed every filter; the rows of ``columns``."""
    columns: Mapping[str, tuple[float, ...]]
    """Per scorer name: one score in 0..1 for each entry of ``scored``."""
    totals: tuple[float, ...]
    """Weighted sums, one for each entry of ``scored``."""
    winners: tuple[Endpoint, ...]
    """What the picker took, best first; empty where filters left nobody."""
    runner_up: Endpoint | None
    fallbacks: tuple[Endpoint, ...]
    """By total, behind the winners."""
    notes: Mapping[str, Note] = field(default_factory=dict)
    """By filter name: what it did and why, of those that say it."""
    work: Work | None = None
    """The part of the work that its winners do; nothing where one endpoint does all of it."""
    encodes: EncodePlan | None = None
    """Of a stage that encodes: who gets which item."""

    @property
    def winner(self) -> Endpoint | None:
        """The endpoint the request is charged to."""
        return self.winners[0] if self.winners else None

    def candidate_of(self, endpoint: Endpoint) -> Candidate:
        """The candidate of an endpoint of this table."""
        return next(c for c in self.candidates if c.endpoint is endpoint or c.endpoint.id == endpoint.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """Why nobody was chosen."""

    reason: DropReason
    filter: str | None
    """The filter that left nobody; nothing where the pool was empty before."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What was chosen, and why."""

    priced: PricedRequest
    at: float
    stages: tuple[Stage, ...]
    primary: str
    """The profile whose winner receives the client's request."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """Profile, or where media is encoded apart a media index -> ``ip:port``."""
    guesses: tuple[str, ...] = ()
    """Each fallback and each piece of missing knowledge that this decision stands on."""
    rejection: Rejection | None = None
    entrance: str | None = None
    """``ip:port`` through which the winner is reached, where that is not its own; then nobody else is tried."""

    @property
    def request(self) -> InferenceRequest:
        """What was asked."""
        return self.priced.request

    @property
    def primary_stage(self) -> Stage:
        """The stage whose winner receives the client's request."""
        return next(stage for stage in self.stages if stage.profile == self.primary)

    def stage_of(self, work: Work) -> Stage | None:
        """The stage that chose somebody for that part of the work, if one did."""
        return next((stage for stage in self.stages if stage.work is work and stage.winners), None)

    @property
    def destinations(self) -> tuple[Endpoint, ...]:
        """Winners, then fallbacks: the list that the proxy tries in order."""
        return (stage := self.primary_stage).winners + stage.fallbacks


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What the engine counted."""

    prompt_tokens: int
    completion_tokens: int | None = None
    cached_tokens: int | None = None


class Ending(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    FAILED = "failed"
    """The engine or the connection to it failed."""
    ABORTED = "aborted"
    """The client went away after the decision."""
    CANCELLED = "cancelled"
    """The stream ended before a decision; nothing was recorded."""
    REJECTED = "rejected"


class FirstTokenSource(StrEnum):
    """How the instant of the first token was learned, best first."""

    BODY = "body"
    COUNTER = "counter"
    PREDICTED = "predicted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of it."""

    request_id: str
    ending: Ending
    decision: Decision | None = None
    status: int | None = None
    endpoint: str | None = None
    """``ip:port`` that really served, where the proxy says so; else the winner."""
    usage: Usage | None = None
    first_token_at: float | None = None
    """Seconds on the driver's clock."""
    first_token_source: FirstTokenSource | None = None
    finished_at: float
    num_attempts: int | None = None
    """Upstream attempts of the proxy, where it says so."""
    refusal: str | None = None
    """The error's code, where the router itself answered the client."""
    stages: tuple[StageEnded, ...] = ()
    """How each part of the work ended, as far as it was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that ``settle`` noticed and an operator should read."""

    message: str
