"""Who hears what the engines say of their KV caches?

Each ``precise-prefix-cache-producer`` of the router, and nobody else: events come by
the ten thousand a second, so they pass by everything that has no use for them.
"""

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from tessera.core.facts import Joined, KVEvent, Left
from tessera.core.matching.engine_keys import KeyMode
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer
from tessera.core.router import Router
from tessera.live.kv_events import KVEvents
from tessera.telemetry.metrics import GaugeFamily

QUIET_S: Final = 1.0
"""From one logged fault to the next."""

_COUNTS: Final = {
    "num_batches": ("tessera_kv_batches_total", "Batches of KV events."),
    "num_events": ("tessera_kv_events_total", "KV events of known kinds."),
    "num_skipped_events": ("tessera_kv_skipped_events_total", "KV events of unknown kinds."),
    "num_malformed": ("tessera_kv_malformed_batches_total", "Messages that are no batch of KV events."),
    "num_gaps": ("tessera_kv_gaps_total", "Times at which batches were missing."),
    "num_replayed": ("tessera_kv_replayed_batches_total", "Batches that replays brought."),
    "num_losses": ("tessera_kv_losses_total", "Gaps that no replay filled: what an engine held was forgotten."),
    "num_restarts": ("tessera_kv_restarts_total", "Times at which an engine counted its batches anew."),
}

_log = logging.getLogger("tessera.kv_events")


class KVFeed:
    """Subscribes to the fleet's engines for each producer that matches exactly; without one it holds nothing."""

    def __init__(self, router: Router, *, clock: Callable[[], float], failed: Callable[[str], None]) -> None:
        """``clock`` tells seconds; ``failed`` counts a fault of ours by where it was."""
        producers = [each for each in router.memories if isinstance(each, PrecisePrefixCacheProducer)]
        self._clock = clock
        self._failed = failed
        self._quiet_until = float("-inf")
        self._feeds = [
            (each, KVEvents(partial(self._tell, each), each.kv_events_config, clock=clock)) for each in producers
        ]

    def observe(self, event: Joined | Left) -> None:
        """Follow an endpoint or leave it. The router's plugins have observed the event before."""
        for _, events in self._feeds:
            if isinstance(event, Joined):
                events.follow(event.endpoint)
            else:
                events.unfollow(event.endpoint.id)

    async def close(self) -> None:
        """Drop every subscription."""
        for _, events in self._feeds:
            await events.close()

    def gauges(self) -> Iterator[GaugeFamily]:
        """The subscriptions, what they brought, and the indexes made of it, for the metrics page."""
        if self._feeds:
            yield from self._subscriptions()
            yield from self._counts()
            yield from self._keys()
            yield from self._indexes()

    def _tell(self, producer: PrecisePrefixCacheProducer, event: KVEvent) -> None:
        try:
            producer.observe(event)
        except Exception:
            # A fault must not end a subscription: it would come back with the replay.
            self._failed("kv-events")
            now = self._clock()
            if now >= self._quiet_until:
                self._quiet_until = now + QUIET_S
                _log.exception("%s: a KV event of %s failed", producer.name, event.endpoint_id)

    def _subscriptions(self) -> Iterator[GaugeFamily]:
        now = self._clock()
        labels = ("producer", "endpoint", "rank")
        found = [
            ((producer.name, each.endpoint_id, str(each.rank)), each)
            for producer, events in self._feeds
            for each in events.subscriptions()
        ]
        connected = [(row, float(each.is_connected)) for row, each in found]
        yield "tessera_kv_connected", "1 where the engine's publisher of KV events is connected.", labels, connected
        ages = [(row, now - each.heard_at) for row, each in found if each.heard_at is not None]
        yield "tessera_kv_heard_age_seconds", "Age of each engine's last batch, where any came.", labels, ages

    def _counts(self) -> Iterator[GaugeFamily]:
        for field, (name, text) in _COUNTS.items():
            rows = [((producer.name,), float(getattr(events.counts, field))) for producer, events in self._feeds]
            yield name, text, ("producer",), rows

    def _keys(self) -> Iterator[GaugeFamily]:
        modes = [
            ((producer.name, endpoint_id, str(rank), str(mode)), float(mode is used))
            for producer, _ in self._feeds
            for (endpoint_id, rank), used in producer.key_modes().items()
            for mode in KeyMode
        ]
        text = "1 for the way in which an engine's hashes become keys."
        yield "tessera_kv_key_mode", text, ("producer", "endpoint", "rank", "mode"), modes
        found = [(producer.name, producer.hash_algorithm) for producer, _ in self._feeds]
        algorithms = [((name, str(algorithm)), 1.0) for name, algorithm in found if algorithm is not None]
        text = "1 for the engines' hash, once it is found out."
        yield "tessera_kv_hash_algorithm", text, ("producer", "algorithm"), algorithms
        unkeyed = [((producer.name,), float(producer.num_unkeyed)) for producer, _ in self._feeds]
        text = "Stored blocks without a key, by which no prompt can match."
        yield "tessera_kv_unkeyed_blocks_total", text, ("producer",), unkeyed
        wrong = [((producer.name,), float(producer.num_miscounted)) for producer, _ in self._feeds]
        text = "Prompts whose tokens by usage are not as many as the token ids that were foreseen."
        yield "tessera_kv_miscounted_prompts_total", text, ("producer",), wrong

    def _indexes(self) -> Iterator[GaugeFamily]:
        indexes = [((producer.name,), producer.index) for producer, _ in self._feeds]
        held = [(row, float(index.num_blocks)) for row, index in indexes]
        yield "tessera_kv_index_blocks", "Blocks in the index, once for each engine and tier.", ("producer",), held
        most = [(row, float(index.max_blocks)) for row, index in indexes]
        yield "tessera_kv_index_max_blocks", "Blocks that the index holds at most.", ("producer",), most
        gone = [(row, float(index.num_evicted)) for row, index in indexes]
        yield "tessera_kv_index_evicted_blocks_total", "Blocks given up for the bound.", ("producer",), gone
