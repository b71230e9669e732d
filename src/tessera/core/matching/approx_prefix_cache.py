"""Which endpoint's KV cache is believed to hold how much of this prompt, by what this router sent where?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tessera.core.facts import FleetEvent, Joined, Left, Load, PrefixMatch, Scraped
from tessera.core.matching.atoms import Chain, chains
from tessera.core.matching.divided import kv_stages, prefill_apart, prefill_failed
from tessera.core.matching.prefix_index import PrefixIndex
from tessera.core.plugin import Producer, Range, plugin
from tessera.core.types import Candidate, Decision, Ending, Endpoint, Finding, Outcome, PricedRequest, Stage, Usage

MAX_CAPACITY_TOKENS: Final = 1 << 26
"""A metrics page that claims a larger cache is taken at this."""

_INDEX_BLOCK_TOKENS = 64
_DEFAULT_BLOCK_TOKENS = 16


@dataclass(slots=True)
class _Engine:
    """What is known of the engine behind an endpoint."""

    capacity: int
    """Tokens, as last told."""
    process_start_at: float | None = None
    num_first_tokens: int | None = None


@plugin("approx-prefix-cache-producer", optional_reads=(Load,))
class ApproxPrefixCacheProducer(Producer):
    """Remember which prompts went to which endpoint, and match new prompts against that.

    A prompt is a chain of atoms: 64 bytes of text, 16 token ids, one media item by its
    identifier. A match is contiguous from the start and counted in the tokens of the
    asking request; one shorter than a block (with ``indexBlocks`` at least 64 tokens) is
    none, because no cache holds less: the word ``user`` before two pictures is no reason
    to send them to one place. Model, LoRA adapter and ``cache_salt`` separate prompts.

    The index follows the engine: it is charged for the prompt at the decision and for
    the answer at the end, forgets the least recently used first and a prompt's tail
    before its head, keeps to the engine's capacity, and is cleared for an endpoint
    whose engine started anew. Where an engine denies what was believed (``usage``'s
    cached tokens, of requests of one prompt), what lies beyond is dropped, unless a
    later request has entered it again.

    Memory: at most 262,144 entries an endpoint, about 170 bytes each, and no more tokens than its cache holds;
    one index entry stands for 16 tokens of text or a whole media item.
    """

    produces = PrefixMatch

    auto_tune: bool = True
    """Take the cache's size from the endpoint's metrics page where it says it."""
    block_size_tokens: Annotated[int, Range(ge=0)] = _DEFAULT_BLOCK_TOKENS
    """Tokens a KV block holds, where the page does not say it. Atoms do not follow it."""
    max_prefix_tokens_to_match: Annotated[int, Range(ge=0)] = 131_072
    """Tokens of a prompt that are looked at; 0: ``maxPrefixBlocksToMatch`` says it."""
    max_prefix_blocks_to_match: Annotated[int, Range(ge=0)] = 2048
    """The same in blocks of at least 64 tokens, where the token limit is 0; both 0: no limit but 65,536 atoms."""
    lru_capacity_per_server: Annotated[int, Range(ge=1)] = 31_250
    """Blocks of an endpoint's cache, where the page does not say it."""
    capacity_unit: Literal["engineBlocks", "indexBlocks"] = "engineBlocks"
    """``engineBlocks``: the engine's own count of tokens, else its blocks times its block size.
    ``indexBlocks``: llm-d's counting, in which each block stands for at least 64 tokens."""

    def __post_init__(self) -> None:
        self._index = PrefixIndex()
        self._engines: dict[str, _Engine] = {}
        self._last: tuple[PricedRequest, tuple[Chain, ...]] | None = None

    def check(self) -> Iterator[tuple[str, str]]:
        """Whether there is a block size."""
        if not self.auto_tune and self.block_size_tokens < 1:
            yield "blockSizeTokens", "got 0 with autoTune: false, expected 1 or more"

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[PrefixMatch]:
        """Each endpoint's match, summed over the request's prompts; of one, less than a block and not all is none."""
        least = self._block_counted()
        ids = [endpoint.id for endpoint in endpoints]
        made = self._chains(request)
        total = sum(chain.num_tokens for chain in made)
        matched, media = [0] * len(ids), [0] * len(ids)
        for chain in made:
            for row, depth in enumerate(self._index.depths(chain.keys, ids)):
                if depth and chain.ends[depth - 1] >= min(least, chain.num_tokens):
                    matched[row] += chain.ends[depth - 1]
                    media[row] += chain.media_ends[depth - 1]
        held = list(zip(matched, media, strict=True))
        # Most endpoints hold the same, which is nothing: they share a fact.
        facts = {
            (tokens, of_media): PrefixMatch(
                num_matched_tokens=tokens,
                num_total_tokens=total,
                num_matched_text_tokens=tokens - of_media,
                num_matched_media_tokens=of_media,
            )
            for tokens, of_media in set(held)
        }
        return [facts[each] for each in held]

    def record(self, decision: Decision) -> None:
        """Enter the prompt for who computes it, and for who decodes it: its KV goes to both."""
        made = self._chains(decision.priced)
        for stage in kv_stages(decision):
            if stage.winner is not None:
                candidate = stage.candidate_of(stage.winner)
                self._engine(candidate).capacity = self._capacity(candidate)
                self._enter(stage.winner.id, made, decision.at)

    def observe(self, event: FleetEvent) -> None:
        """Follow endpoints that come and go, and engines that start anew."""
        if isinstance(event, Joined):
            self._index.add(event.endpoint.id)
            self._engines.setdefault(event.endpoint.id, _Engine(self._default_capacity()))
        elif isinstance(event, Left):
            self._index.remove(event.endpoint.id)
            self._engines.pop(event.endpoint.id, None)
        elif isinstance(event, Scraped) and (engine := self._engines.get(event.endpoint_id)):
            if _is_new(engine, event):
                self._index.clear(event.endpoint_id)
            if event.process_start_at is not None:
                engine.process_start_at = event.process_start_at
            if event.num_first_tokens is not None:
                engine.num_first_tokens = event.num_first_tokens

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Charge the answer's tokens to who gave it, and drop what its engine did not hold."""
        decision, usage = outcome.decision, outcome.usage
        if decision is None or decision.rejection is not None or usage is None or outcome.ending is not Ending.FINISHED:
            return ()
        stage, prefill = decision.primary_stage, prefill_apart(decision)
        if prefill is not None and prefill_failed(outcome):
            self._not_computed(prefill, decision)
        winner = stage.winner.id if stage.winner else None
        server = outcome.endpoint or winner
        engine = self._engines.get(server) if server else None
        if server is None or engine is None:
            return ()
        if server != winner:
            self._enter(server, self._chains(decision.priced), decision.at)
        elif prefill is None:
            self._correct(stage, decision, usage)
        self._index.charge(server, usage.completion_tokens or 0, engine.capacity)
        return ()

    def close(self) -> None:
        """Forget everything."""
        self.__post_init__()

    def _correct(self, stage: Stage, decision: Decision, usage: Usage) -> None:
        """Drop what was believed at the decision beyond what the engine says it had."""
        priced, cached = decision.priced, usage.cached_tokens
        assert stage.winner is not None
        candidate = stage.candidate_of(stage.winner)
        believed = candidate.fact(PrefixMatch, self.name)
        if cached is None or believed is None or usage.prompt_tokens <= 0:
            return
        scale = priced.num_prompt_tokens / usage.prompt_tokens
        held, claimed = round(min(cached, usage.prompt_tokens) * scale), believed.num_matched_tokens
        # An engine counts whole blocks, and of a prompt that it holds entirely not the last one.
        allowed = held + round(2 * self._block_size(_load(candidate)) * scale)
        made = self._chains(priced)
        if len(made) != 1:
            return
        kept = made[0].num_starting_before(allowed)
        if kept < len(made[0].keys) and claimed > (made[0].ends[kept - 1] if kept else 0):
            self._index.drop(stage.winner.id, made[0].keys[kept:], decision.at)

    def _not_computed(self, stage: Stage, decision: Decision) -> None:
        """Drop what a stage's winner was expected to compute and did not."""
        assert stage.winner is not None
        believed = stage.candidate_of(stage.winner).fact(PrefixMatch, self.name)
        made = self._chains(decision.priced)
        claimed = believed.num_matched_tokens if believed is not None and len(made) == 1 else 0
        for chain in made:
            kept = chain.num_starting_before(claimed) if claimed else 0
            self._index.drop(stage.winner.id, chain.keys[kept:], decision.at)

    def _chains(self, priced: PricedRequest) -> tuple[Chain, ...]:
        """The request's chains; those of the last one asked for are kept, since it is matched and recorded."""
        if self._last is None or self._last[0] is not priced:
            self._last = (priced, chains(priced, self._max_tokens()))
        return self._last[1]

    def _max_tokens(self) -> int:
        block = max(_INDEX_BLOCK_TOKENS, self.block_size_tokens)
        return self.max_prefix_tokens_to_match or self.max_prefix_blocks_to_match * block or 1 << 62

    def _enter(self, endpoint_id: str, made: Sequence[Chain], at: float) -> None:
        capacity = self._engines[endpoint_id].capacity
        for chain in made:
            self._index.insert(endpoint_id, chain.keys, chain.weights(), capacity, at)

    def _engine(self, candidate: Candidate) -> _Engine:
        return self._engines.setdefault(candidate.endpoint.id, _Engine(self._default_capacity()))

    def _capacity(self, candidate: Candidate) -> int:
        """Tokens of the endpoint's cache; what was last told where its page is too old or says nothing."""
        load = _load(candidate)
        if not self.auto_tune or (load.num_blocks is None and load.num_cache_tokens is None):
            return self._engine(candidate).capacity
        if self.capacity_unit == "indexBlocks":
            blocks = load.num_blocks or self.lru_capacity_per_server
            told = blocks * max(_INDEX_BLOCK_TOKENS, self._block_size(load))
        else:
            told = load.num_cache_tokens or (load.num_blocks or 0) * self._block_size(load)
        return min(told, MAX_CAPACITY_TOKENS) or self._default_capacity()

    def _default_capacity(self) -> int:
        return min(self.lru_capacity_per_server * self._block_counted(), MAX_CAPACITY_TOKENS)

    def _block_counted(self) -> int:
        """Tokens of a block, as ``capacityUnit`` counts them, where no page says more."""
        block = self._block_size(Load())
        return max(_INDEX_BLOCK_TOKENS, block) if self.capacity_unit == "indexBlocks" else block

    def _block_size(self, load: Load) -> int:
        told = load.block_size if self.auto_tune else None
        return told or self.block_size_tokens or _DEFAULT_BLOCK_TOKENS


def _load(candidate: Candidate) -> Load:
    known: Load | None = candidate.fact(Load, Load.producer)
    return known or Load()


def _is_new(engine: _Engine, event: Scraped) -> bool:
    """Whether another process answers than before: another start, or a counter that fell."""
    before, now = engine.process_start_at, event.process_start_at
    if before is not None and now is not None and before != now:
        return True
    counted, counts = engine.num_first_tokens, event.num_first_tokens
    return counted is not None and counts is not None and counts < counted
