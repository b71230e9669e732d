"""Which endpoint's encoder cache holds this picture, clip or sound already?

vLLM has no metric of its encoder cache, so this is a belief: an item is held where
it was last encoded, until as many embeddings as the cache has room for came after it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Annotated, Final

from tessera.core.facts import EncoderMatch, FirstToken, FleetEvent, PrefixMatch
from tessera.core.matching.claimed_hits import ClaimedHits
from tessera.core.matching.divided import computing_stage, kept_items, prefill_failed, row_of, sent_away
from tessera.core.matching.held_media import HeldMedia, has_failed
from tessera.core.media.size import Reason
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.types import Decision, Endpoint, Finding, Outcome, PricedItem, PricedRequest, Stage
from tessera.core.work import StageEnded, Work

CACHE_SIZE_EMBEDS: Final = 16_384
"""Embeddings an encoder cache has room for.

Source: vLLM 0.32 sizes it as max(max_num_batched_tokens, tokens of the largest item);
for Qwen3-VL on an H200 that is the largest item, 16,384 (18 pictures of 1280x720).
"""
MB_PER_ENTRY: Final = 2
"""What llm-d takes for an item's size. Source: ``mm-embeddings-cache-producer`` of llm-d-router."""
SHRUNK_BY: Final = 0.9
"""What a hit that was none leaves of an endpoint's size."""
GROWN_BY: Final = 1.01
"""What a hit that was one adds to it again: where one claim in ten fails, the size stays."""
LEAST_FRACTION: Final = 1 / 16
"""Of the size that was configured: it shrinks no further."""


def identified(items: Iterable[PricedItem]) -> tuple[PricedItem, ...]:
    """Of these items those that can be known again: with content, a link or a uuid."""
    return tuple([each for each in items if each.item.reason != Reason.NO_CONTENT])


def uncovered_items(request: PricedRequest, match: PrefixMatch | None) -> Iterator[PricedItem]:
    """The items that are not inside of what the KV cache holds, prompt order: the ones that are encoded.

    The match runs from the prompt's start, so it covers the first items whose tokens
    (an approximate match counts their wrappers too) add up to no more than its media
    tokens.
    """
    if match is None or match.num_matched_media_tokens == 0:
        yield from request.items
        return
    left = match.num_matched_media_tokens
    for each in request.items:
        left -= each.num_tokens + (0 if match.is_exact else each.num_wrapper_tokens)
        if left < 0:
            yield each


@plugin("mm-embeddings-cache-producer", optional_reads=(PrefixMatch,))
class MMEmbeddingsCacheProducer(Producer):
    """Remember which media items each endpoint has encoded, as long as its encoder cache would.

    One LRU for each endpoint, bounded in embeddings as the engine's cache is; an item
    weighs its embeddings. An item is entered for the endpoint that encodes it: the
    encoder that it was sent to where that is done apart, else the endpoint that computes
    the prompt, and there an item that the predicted KV match covers is not encoded, so
    it is neither entered nor refreshed. What a failed request entered is taken back, and
    an endpoint that leaves or starts anew holds nothing. Where it is told how stages
    ended, what an encoder did not do is taken from it and entered where it was done,
    and what it did is entered for the endpoint that got it, too. Where
    ``ttft-cost-producer`` predicts first tokens, those behind claimed hits correct the
    size: a request that had its endpoint to itself and took as long as if it had encoded
    shrinks the endpoint's cache by a tenth, down to a sixteenth; one that was as fast as
    claimed lets it grow by a hundredth, up to what was configured. Memory: at most ``cacheSizeEmbeds``
    identifiers of at most 1,024 characters for each endpoint; far fewer with real
    media, whose items have tens to thousands of embeddings. One entry for each request
    in flight whose media is encoded apart.
    """

    produces = EncoderMatch

    cache_size_embeds: Annotated[int, Range(ge=1)] | None = None
    """Embeddings that an endpoint's encoder cache has room for; 16,384 where neither size is given."""
    cache_size_in_mb_per_server: Annotated[int, Range(ge=1)] | None = None
    """llm-d's size: an item counts as 2 MiB, whatever it is. Not read beside ``cacheSizeEmbeds``."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches say what need not be encoded."""

    def __post_init__(self) -> None:
        megabytes = self.cache_size_in_mb_per_server
        self._counts_entries = megabytes is not None and self.cache_size_embeds is None
        entries = max(1, (megabytes or 0) // MB_PER_ENTRY)
        self._apart: dict[str, _Apart] = {}
        self._held = HeldMedia(entries if self._counts_entries else self.cache_size_embeds or CACHE_SIZE_EMBEDS)
        self._claims = ClaimedHits()

    def optional_reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def cautions(self) -> Iterator[tuple[str, str]]:
        """Whether two sizes are given."""
        if self.cache_size_embeds is not None and self.cache_size_in_mb_per_server is not None:
            yield "cacheSizeInMBPerServer", "not read beside cacheSizeEmbeds; remove one of them"

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[EncoderMatch]:
        """The items of this request that each endpoint is believed to hold."""
        names = [each.identifier for each in identified(request.distinct_items())]
        rows = self._held.held_of(names, [endpoint.id for endpoint in endpoints])
        facts = {row: EncoderMatch(identifiers=frozenset(compress(names, row))) for row in set(rows)}
        return [facts[row] for row in rows]

    def num_embeds_of(self, endpoint_id: str) -> int:
        """Embeddings that the endpoint is believed to hold; entries where the size is llm-d's."""
        return self._held.weight(endpoint_id)

    def room_of(self, endpoint_id: str) -> int:
        """Embeddings that the endpoint is believed to have room for; entries where the size is llm-d's."""
        return self._held.room(endpoint_id)

    def record(self, decision: Decision) -> None:
        """Enter what each endpoint will encode."""
        self._claims.sent(decision)
        if not decision.priced.items:
            return
        request_id, away = decision.request.request_id, sent_away(decision)
        stage = computing_stage(decision)
        if stage.winner is not None:
            self._enter_needed(decision, stage.winner.id)
        for encoder, items in away.items():
            self._enter(encoder, items, request_id)
        if away and stage.winner is not None:
            self._apart[request_id] = _Apart(stage.winner.id, away)

    def observe(self, event: FleetEvent) -> None:
        """Follow endpoints that leave or start anew, what encoders did, and first tokens."""
        if isinstance(event, StageEnded):
            if event.stage is Work.ENCODE and (apart := self._apart.get(event.request_id)):
                self._encoded(apart, event)
            return
        self._held.observe(event)
        if isinstance(event, FirstToken):
            self._claims.first_token(event.request_id)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Take back what was not encoded where it was expected, and enter it where it was; learn from claimed hits."""
        apart = self._apart.pop(outcome.request_id, None)
        decision, was_held = outcome.decision, self._claims.held(outcome)
        if was_held is not None and decision is not None and decision.primary_stage.winner is not None:
            factor = GROWN_BY if was_held else SHRUNK_BY
            self._held.resize(decision.primary_stage.winner.id, factor, LEAST_FRACTION)
        if decision is None or not decision.priced.items:
            return ()
        if apart is not None and outcome.stages:
            for encoder in list(apart.open):
                self._lose(apart, encoder, outcome.request_id)
        stage = computing_stage(decision)
        if stage.winner is None:
            return ()
        failed, served = has_failed(outcome), self._computed_by(outcome, stage)
        if failed or served != stage.winner.id:
            names = [each.identifier for each in kept_items(decision)]
            self._held.withdraw(stage.winner.id, names, outcome.request_id)
        if failed or not self._held.knows(served):
            return ()
        if served != stage.winner.id:
            self._enter_needed(decision, served)
        if apart is not None:
            self._enter(served, apart.lost, outcome.request_id)
        return ()

    @staticmethod
    def _computed_by(outcome: Outcome, stage: Stage) -> str:
        """Who computed the prompt: a prefill that failed was done by who served."""
        assert stage.winner is not None
        if stage.work is Work.PREFILL and not prefill_failed(outcome):
            return stage.winner.id
        return outcome.endpoint or stage.winner.id

    def _encoded(self, apart: "_Apart", event: StageEnded) -> None:
        """An encoder is through, or failed. Of what it did in part, nobody knows which part."""
        items = apart.open.get(event.endpoint_id)
        if items is None and event.is_done and apart.lost and event.num_items == len(apart.lost):
            items, apart.lost = apart.lost, ()
            self._enter(event.endpoint_id, items, event.request_id)
        elif items is None:
            return
        elif not event.is_done or event.num_items < len(items):
            self._lose(apart, event.endpoint_id, event.request_id)
            return
        apart.open.pop(event.endpoint_id, None)
        self._enter(apart.for_id, items, event.request_id)

    def _lose(self, apart: "_Apart", encoder: str, request_id: str) -> None:
        items = apart.open.pop(encoder)
        apart.lost += items
        self._held.withdraw(encoder, [each.identifier for each in items], request_id)

    def _enter_needed(self, decision: Decision, endpoint_id: str) -> None:
        """Enter what an endpoint encodes that computes the prompt."""
        row = row_of(decision, endpoint_id)
        match = row.fact(PrefixMatch, self.prefix_match_info_producer_name) if row is not None else None
        kept = kept_items(decision)
        needed: Iterable[PricedItem] = uncovered_items(decision.priced, match)
        if len(kept) < len(decision.priced.distinct_items()):
            names = {each.identifier for each in kept}
            needed = [each for each in needed if each.identifier in names]
        self._enter(endpoint_id, needed, decision.request.request_id)

    def _enter(self, endpoint_id: str, items: Iterable[PricedItem], request_id: str) -> None:
        weights = {each.identifier: 1 if self._counts_entries else each.num_embeds for each in identified(items)}
        if weights:
            self._held.enter(endpoint_id, weights, request_id)


@dataclass(slots=True)
class _Apart:
    """What a request in flight has sent to encoders."""

    for_id: str
    """The endpoint that needs it."""
    open: dict[str, tuple[PricedItem, ...]]
    """By encoder that nothing was heard of."""
    lost: tuple[PricedItem, ...] = ()
    """What encoders failed at, and nobody is known to have done."""
