"""Which endpoint's encoder cache holds this picture, clip or sound already?

vLLM has no metric of its encoder cache, so this is a belief: an item is held where
it was last encoded, until as many embeddings as the cache has room for came after it.
"""

from collections.abc import Iterator, Sequence
from itertools import compress
from typing import Annotated, Final

from tessera.core.facts import EncoderMatch, FirstToken, FleetEvent, PrefixMatch
from tessera.core.matching.claimed_hits import ClaimedHits
from tessera.core.matching.held_media import HeldMedia, has_failed
from tessera.core.media.size import Reason
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.types import Decision, Endpoint, Finding, Outcome, PricedItem, PricedRequest, Stage

ENCODE: Final = "encode"
"""Name of the profile whose winner encodes for the others, where there is one."""
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


def encoding_stage(decision: Decision) -> Stage:
    """The stage whose winner runs the encoder: ``encode`` where that chose somebody, else the primary one."""
    chosen = (stage for stage in decision.stages if stage.profile == ENCODE and stage.winner is not None)
    return next(chosen, decision.primary_stage)


def identified_items(request: PricedRequest) -> tuple[PricedItem, ...]:
    """The distinct items that can be known again, prompt order: those with content, a link or a uuid."""
    return tuple([each for each in request.distinct_items() if each.item.reason != Reason.NO_CONTENT])


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
    winner of the stage ``encode`` where there is one, else the endpoint that serves.
    An item that the predicted KV match covers is not encoded, so it is neither entered
    nor refreshed. What a failed request entered is taken back, and an endpoint that
    leaves or starts anew holds nothing. Where ``ttft-cost-producer`` predicts first tokens,
    those behind claimed hits correct the size: a request that had its endpoint to itself and
    took as long as if it had encoded shrinks the endpoint's cache by a tenth, down to a
    sixteenth; one that was as fast as claimed lets it grow by a hundredth, up to what was
    configured. Memory: at most ``cacheSizeEmbeds``
    identifiers of at most 1,024 characters for each endpoint; far fewer with real
    media, whose items have tens to thousands of embeddings.
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
        names = [each.identifier for each in identified_items(request)]
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
        """Enter what the winner will encode."""
        stage = encoding_stage(decision)
        self._claims.sent(decision)
        if decision.priced.items and stage.winner is not None:
            self._enter(decision, stage, stage.winner.id)

    def observe(self, event: FleetEvent) -> None:
        """Forget what an endpoint held that is gone or started anew."""
        self._held.observe(event)
        if isinstance(event, FirstToken):
            self._claims.first_token(event.request_id)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Take back what was not encoded where it was expected, and enter it where it was; learn from claimed hits.

        Who served says nothing of a stage of its own that encodes.
        """
        decision, was_held = outcome.decision, self._claims.held(outcome)
        if was_held is not None and decision is not None and decision.primary_stage.winner is not None:
            factor = GROWN_BY if was_held else SHRUNK_BY
            self._held.resize(decision.primary_stage.winner.id, factor, LEAST_FRACTION)
        if decision is None or not decision.priced.items:
            return ()
        stage = encoding_stage(decision)
        if stage.winner is None or stage is not decision.primary_stage:
            return ()
        failed = has_failed(outcome)
        served = outcome.endpoint or stage.winner.id
        if failed or served != stage.winner.id:
            names = [each.identifier for each in decision.priced.items]
            self._held.withdraw(stage.winner.id, names, outcome.request_id)
        if not failed and served != stage.winner.id and self._held.knows(served):
            self._enter(decision, stage, served)
        return ()

    def _enter(self, decision: Decision, stage: Stage, endpoint_id: str) -> None:
        match = None
        if stage.profile != ENCODE:
            candidates = (each for each in stage.candidates if each.endpoint.id == endpoint_id)
            row = next(candidates, None)
            match = row.fact(PrefixMatch, self.prefix_match_info_producer_name) if row is not None else None
        weights = {
            each.identifier: 1 if self._counts_entries else each.num_embeds
            for each in uncovered_items(decision.priced, match)
            if each.item.reason != Reason.NO_CONTENT
        }
        if weights:
            self._held.enter(endpoint_id, weights, decision.request.request_id)
