"""Which endpoint's processor cache holds this picture, clip or sound already?

An engine's front end turns each item into what its encoder reads, on the CPU, and keeps
the result by the item's identifier. It does so for every request, whatever its KV and
encoder caches hold.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from tessera.core.facts import FleetEvent, ProcessorMatch
from tessera.core.matching.divided import sent_away
from tessera.core.matching.held_media import HeldMedia, has_failed
from tessera.core.matching.mm_embeddings_cache import identified
from tessera.core.plugin import Producer, Range, plugin
from tessera.core.types import Decision, Endpoint, Finding, Outcome, PricedItem, PricedRequest
from tessera.core.work import Work

MIN_EMBEDS: Final = 64
"""What the smallest item counts as, so that tiny ones cannot fill the memory: 20 GiB are 27,306 names then."""


@plugin("processor-cache-producer")
class ProcessorCacheProducer(Producer):
    """Remember which media items each endpoint has preprocessed, as long as its processor cache would.

    One LRU for each endpoint, bounded in bytes as the engine's cache is. An item is
    entered for the winner of every stage, where media is encoded apart for who encodes
    it; what a failed request entered is taken back, what a fallback served is entered
    there, and an endpoint that leaves or starts anew holds nothing. No engine tells this:
    it is a belief. Memory: for each endpoint at most one identifier of at most 1,024
    characters for 64 embeddings that fit.
    """

    produces = ProcessorMatch

    cache_size_gb: Annotated[float, Range(gt=0, le=1024)] = 4.0
    """GiB of an endpoint's cache: the engine's ``--mm-processor-cache-gb``, whose default is 4."""
    bytes_per_embed: Annotated[int, Range(ge=64)] = 12_288
    """Bytes that the cache stores for each embedding of an item. Default: Qwen3-VL's patches in bf16,
    4 patches x 3 channels x 2 frames x 16 x 16 pixels x 2 bytes."""

    def __post_init__(self) -> None:
        self._held = HeldMedia(max(1, int(self.cache_size_gb * (1 << 30)) // self.bytes_per_embed))

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[ProcessorMatch]:
        """The items of this request that each endpoint is believed to hold."""
        names = [each.identifier for each in identified(request.distinct_items())]
        if not names:
            return [_NOTHING] * len(endpoints)
        held = [self._held.names(endpoint.id) for endpoint in endpoints]
        found = [[name for name in names if name in mine] for mine in held]
        return [ProcessorMatch(identifiers=frozenset(each)) if each else _NOTHING for each in found]

    def num_embeds_of(self, endpoint_id: str) -> int:
        """Embeddings of the items that the endpoint is believed to hold, small ones counted as 64."""
        return self._held.weight(endpoint_id)

    def record(self, decision: Decision) -> None:
        """Enter what the winners will preprocess."""
        for encoder, items in sent_away(decision).items():
            self._enter(encoder, items, decision)
        for stage in decision.stages:
            if stage.winner is not None and stage.work is not Work.ENCODE:
                self._enter(stage.winner.id, decision.priced.items, decision)

    def observe(self, event: FleetEvent) -> None:
        """Forget what an endpoint held that is gone or started anew."""
        self._held.observe(event)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Take back what was not preprocessed where it was expected, and enter it where it was."""
        decision = outcome.decision
        if decision is None or not decision.priced.items or not decision.stages:
            return ()
        winner = decision.primary_stage.winner
        if winner is None:
            return ()
        failed, served = has_failed(outcome), outcome.endpoint or winner.id
        if failed or served != winner.id:
            names = [each.identifier for each in decision.priced.items]
            self._held.withdraw(winner.id, names, outcome.request_id)
        if not failed and served != winner.id and self._held.knows(served):
            self._enter(served, decision.priced.items, decision)
        return ()

    def _enter(self, endpoint_id: str, items: Sequence[PricedItem], decision: Decision) -> None:
        weights = {each.identifier: max(MIN_EMBEDS, each.num_embeds) for each in identified(items)}
        if weights:
            self._held.enter(endpoint_id, weights, decision.request.request_id)


_NOTHING = ProcessorMatch(identifiers=frozenset())
