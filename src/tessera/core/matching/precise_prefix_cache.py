"""How much of this prompt do the engines say that their KV caches hold?"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar, Final

from tessera.core.facts import FleetEvent, Joined, KVCleared, KVEvent, KVRemoved, KVStored, Left, PrefixMatch, Scraped
from tessera.core.matching.approx_prefix_cache import ApproxPrefixCacheProducer
from tessera.core.matching.block_index import MAX_RANKS, BlockIndex
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, MediaSpan, block_key, extra_keys_of
from tessera.core.matching.divided import kv_stages
from tessera.core.matching.engine_keys import LORA_PATH, EngineKeys, KeyMode, adopted, can_verify, candidates
from tessera.core.matching.kv_parameters import IndexerConfig, KVEventsConfig, TokenProcessorConfig
from tessera.core.plugin import GoDuration, Producer, plugin
from tessera.core.types import Decision, Ending, Endpoint, Finding, Outcome, PricedRequest

MAX_BLOCK_SIZES: Final = 4
"""Block sizes that one request's keys are computed for; endpoints with a further one match nothing."""
_ROUNDING = 1e-9
"""Weights such as 0.8 are no binary fractions: five of them are four blocks."""


@dataclass(slots=True)
class _Engines:
    """What is known of the engines behind one endpoint."""

    keys: dict[int, EngineKeys] = field(default_factory=dict)
    """By data-parallel rank."""
    block_size: int | None = None
    process_start_at: float | None = None


@plugin("precise-prefix-cache-producer")
class PrecisePrefixCacheProducer(Producer):
    """Match prompts against what the engines' KV events say that they hold.

    A request's token ids become the block hashes that the engine will compute. For a
    request without token ids the match is the approximate producer's, and says so
    (``is_exact`` is false). A match is the longest run of blocks from the prompt's
    start, each block at the weight of its best tier, and never the whole prompt,
    because an engine computes its last token in any case.

    Memory: ``indexerConfig.kvBlockIndexConfig.inMemoryConfig.size`` blocks of at most 176
    bytes; see ``engine_keys`` for engines whose hashes are not the ones that ``hashSeed``
    leads to.
    """

    produces = PrefixMatch
    names_as_engine: ClassVar[bool] = True

    hash_seed: str = ""
    """The engines' PYTHONHASHSEED; empty where they run without."""
    token_processor_config: TokenProcessorConfig = TokenProcessorConfig()
    """Until events tell more."""
    indexer_config: IndexerConfig = IndexerConfig()
    """Size and tiers of the index."""
    kv_events_config: KVEventsConfig = KVEventsConfig()
    """Where events come from."""
    speculative_indexing: bool = False
    """Whether the endpoint of a decision is expected to hold the prompt at once."""
    speculative_ttl: Annotated[float, GoDuration()] = 2.0
    """How long that is expected where no event confirms it."""

    def __post_init__(self) -> None:
        tiers = {each.name: each.weight for each in self.indexer_config.kv_cache_backend_configs}
        size = self.indexer_config.kv_block_index_config.in_memory_config.size
        self.index = BlockIndex(tiers=tiers, max_blocks=size)
        self._candidates = candidates(self.hash_seed or self.token_processor_config.hash_seed)
        # By value, and fast: until an engine is seen whose own hashes can be computed.
        self._hasher = next(each for each in self._candidates if each.algorithm is HashAlgorithm.XXHASH_CBOR)
        # What it makes once, it makes now: the first request must not wait for it.
        self._hasher.hashes((0,), 1)
        self._is_adopted = False
        self._sizes: tuple[int, ...] = ()
        """Block sizes that engines were seen to use, at most MAX_BLOCK_SIZES, the newest first."""
        self._engines: dict[str, _Engines] = {}
        self.num_unkeyed = 0
        """Blocks that engines stored and that got no key, since the start."""
        self.num_miscounted = 0
        """Prompts of which engines counted another number of tokens than were foreseen, since the start."""
        self._approximate = ApproxPrefixCacheProducer()
        self._last: tuple[PricedRequest, dict[int, tuple[int, ...]]] | None = None

    def check(self) -> Iterator[tuple[str, str]]:
        """An index outside this process is not there."""
        if self.indexer_config.kv_block_index_config.redis_config is not None:
            path = "indexerConfig.kvBlockIndexConfig.redisConfig"
            yield path, "got an index in Redis, expected inMemoryConfig: each replica keeps its own"

    def cautions(self) -> Iterable[tuple[str, str]]:
        """An address that engines would connect to is not there."""
        if self.kv_events_config.zmq_endpoint:
            yield "kvEventsConfig.zmqEndpoint", "nothing listens there: each endpoint is subscribed to at its own port"

    def prepare(self, request: PricedRequest) -> Mapping[Hashable, tuple[int, ...]]:
        """The request's keys for each block size that engines were seen to use."""
        hasher, sizes = self._hasher, self._sizes or (self.token_processor_config.block_size_tokens,)
        return {(hasher, size): block_keys(request, size, hasher) for size in sizes}

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[PrefixMatch]:
        """Each endpoint's exact match; for a request without token ids the approximate one."""
        if request.token_ids is None:
            return self._approximate.match(request, endpoints)
        matched: dict[str, int] = {}
        for block_size, ids in self._by_block_size(endpoints).items():
            num_usable = max(0, len(request.token_ids) - 1) // block_size
            keys = self._keys(request, block_size)[:num_usable]
            found = self.index.match(ids, keys, request.request.at)
            matched |= {name: int(each.weight + _ROUNDING) * block_size for name, each in zip(ids, found, strict=True)}
        facts = {num_tokens: _fact(request, num_tokens) for num_tokens in set(matched.values())}
        return [facts[matched[endpoint.id]] for endpoint in endpoints]

    def record(self, decision: Decision) -> None:
        """Expect the blocks where the prompt was sent, and remember it approximately, too."""
        self._approximate.record(decision)
        if not self.speculative_indexing or decision.priced.token_ids is None:
            return
        for stage in kv_stages(decision):
            if stage.winner is not None and stage.winner.id in self._engines:
                keys = self._keys(decision.priced, self._block_size(stage.winner.id))
                until = decision.at + self.speculative_ttl
                self.index.speculate(stage.winner.id, keys, at=decision.at, until=until)

    def observe(self, event: FleetEvent) -> None:
        """Follow the engines' caches, and endpoints that come, go and start anew."""
        match event:
            case KVStored() | KVRemoved() | KVCleared():
                self._follow(event)
                return
            case Joined(endpoint=endpoint):
                self._engines.setdefault(endpoint.id, _Engines())
            case Left(endpoint=endpoint):
                self._engines.pop(endpoint.id, None)
                self.index.clear(endpoint.id)
            case Scraped(endpoint_id=endpoint_id, process_start_at=start) if start is not None:
                self._started(endpoint_id, start)
        self._approximate.observe(event)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Tell the approximate belief, whose matches stand under our name; say once where token ids are wrong."""
        self._approximate.name = self.name
        return [*self._approximate.settle(outcome), *self._miscounted(outcome)]

    def close(self) -> None:
        """Forget everything."""
        self.__post_init__()

    def key_modes(self) -> dict[tuple[str, int], KeyMode]:
        """How each engine's hashes become keys, by endpoint id and rank."""
        return {(name, rank): keys.mode for name, known in self._engines.items() for rank, keys in known.keys.items()}

    @property
    def hash_algorithm(self) -> HashAlgorithm | None:
        """The algorithm that the engines were found to use; nothing before any was seen."""
        return self._hasher.algorithm if self._is_adopted else None

    def _miscounted(self, outcome: Outcome) -> Iterator[Finding]:
        """What an operator should read where the engine counted another number of tokens than there are ids."""
        decision, usage = outcome.decision, outcome.usage
        if decision is None or usage is None or outcome.ending is not Ending.FINISHED:
            return
        facts = (each.fact(PrefixMatch, self.name) for each in decision.primary_stage.candidates)
        fact = next(facts, None)
        if fact is None or not fact.is_exact or fact.num_total_tokens == usage.prompt_tokens:
            return
        self.num_miscounted += 1
        if self.num_miscounted == 1:
            seen = f"the engine counted {usage.prompt_tokens} prompt tokens, {fact.num_total_tokens} were foreseen"
            why = "what token-producer's tokenizer says is not what it was started with, and exact matches are wrong"
            yield Finding(message=f"model {decision.request.model!r}: {seen}: {why}")

    def _by_block_size(self, endpoints: Sequence[Endpoint]) -> dict[int, list[str]]:
        """Ids of the endpoints by the size of their blocks."""
        ids: dict[int, list[str]] = {}
        for endpoint in endpoints:
            ids.setdefault(self._block_size(endpoint.id), []).append(endpoint.id)
        return ids

    def _keys(self, request: PricedRequest, block_size: int) -> tuple[int, ...]:
        """The keys of all full blocks; those of the last request are kept, since it is matched and recorded."""
        if self._last is None or self._last[0] is not request:
            self._last = (request, {})
        by_size = self._last[1]
        if block_size not in by_size:
            if len(by_size) >= MAX_BLOCK_SIZES:
                return ()
            ready = request.block_keys.get((self._hasher, block_size))
            by_size[block_size] = block_keys(request, block_size, self._hasher) if ready is None else ready
        return by_size[block_size]

    def _block_size(self, endpoint_id: str) -> int:
        """An endpoint's own, else that of the engine that was seen last: keys of it are there already."""
        known = self._engines.get(endpoint_id)
        usual = self._sizes[0] if self._sizes else self.token_processor_config.block_size_tokens
        return (known and known.block_size) or usual

    def _follow(self, event: KVEvent) -> None:
        known = self._engines.get(event.endpoint_id)
        if known is None:
            return
        if isinstance(event, KVCleared):
            known.keys.pop(event.rank, None)
            self.index.clear(event.endpoint_id, event.rank)
        elif isinstance(event, KVStored):
            if (engine := self._engine(known, event)) is not None:
                self._store(engine, event)
        elif (engine := known.keys.get(event.rank)) is not None:
            self._remove(engine, event)

    def _store(self, engine: EngineKeys, event: KVStored) -> None:
        before = engine.num_unkeyed
        self.index.store(event.endpoint_id, event.rank, engine.stored(event), event.tier)
        self.num_unkeyed += engine.num_unkeyed - before
        if dropped := engine.take_dropped():
            self.index.drop(event.endpoint_id, event.rank, dropped)

    def _remove(self, engine: EngineKeys, event: KVRemoved) -> None:
        if engine.is_foreign(event.group):
            return
        if engine.is_direct:
            self.index.remove(event.endpoint_id, event.rank, event.block_hashes, event.tier)
            return
        for block_hash in event.block_hashes:
            if (key := engine.key_of(block_hash)) is not None:
                self.index.remove(event.endpoint_id, event.rank, (key,), event.tier)
                if not self.index.holds(event.endpoint_id, event.rank, key):
                    engine.forget(block_hash)

    def _engine(self, known: _Engines, event: KVStored) -> EngineKeys | None:
        """The engine that stored blocks; a new one where its blocks turn out to be larger than they seemed."""
        engine = known.keys.get(event.rank)
        is_new = engine is None or engine.mode is KeyMode.UNKNOWN
        can_adopt = is_new and not self._is_adopted and can_verify(event)
        if can_adopt and (hasher := adopted(event, self._candidates)) is not None:
            self._adopt(hasher)
            engine = None
        if engine is None and len(known.keys) >= MAX_RANKS:
            return None
        if engine is None or engine.block_size < event.block_size:
            self.index.clear(event.endpoint_id, event.rank)
            engine = known.keys[event.rank] = EngineKeys(self._hasher, event.block_size)
            known.block_size = event.block_size
            others = [size for size in self._sizes if size != event.block_size]
            self._sizes = (event.block_size, *others)[:MAX_BLOCK_SIZES]
        return engine

    def _adopt(self, hasher: BlockHasher) -> None:
        """Compute keys as the engines do from here on; once, and what was chained otherwise before is forgotten."""
        self._hasher, self._is_adopted, self._last = hasher, True, None
        for endpoint_id, known in self._engines.items():
            known.keys.clear()
            self.index.clear(endpoint_id)

    def _started(self, endpoint_id: str, start: float) -> None:
        known = self._engines.get(endpoint_id)
        if known is None:
            return
        if known.process_start_at not in {None, start}:
            known.keys.clear()
            self.index.clear(endpoint_id)
        known.process_start_at = start


def _fact(request: PricedRequest, num_tokens: int) -> PrefixMatch:
    """The exact match of an endpoint that holds the prompt's first ``num_tokens`` tokens."""
    ends = [(span.offset, min(span.offset + span.num_tokens, num_tokens)) for span in request.spans]
    media = sum(end - start for start, end in ends if end > start)
    return PrefixMatch(
        num_matched_tokens=num_tokens,
        num_total_tokens=len(request.token_ids or ()),
        num_matched_text_tokens=num_tokens - media,
        num_matched_media_tokens=media,
        is_exact=True,
    )


def block_keys(request: PricedRequest, block_size: int, hasher: BlockHasher) -> tuple[int, ...]:
    """The keys of a request's full blocks; none without token ids, or with ids that no engine takes."""
    token_ids = request.token_ids
    if token_ids is None:
        return ()
    spans = [MediaSpan(request.items[each.index].identifier, each.offset, each.num_tokens) for each in request.spans]
    asked = request.request
    extra_keys = extra_keys_of(
        spans,
        len(token_ids) // block_size,
        block_size,
        lora=(asked.lora, LORA_PATH) if asked.lora else None,
        cache_salt=asked.cache_salt,
    )
    try:
        return tuple(map(block_key, hasher.hashes(token_ids, block_size, extra_keys)))
    except OverflowError:
        return ()
