"""How often does a request's media find its embeddings where it is encoded?

llm-d's names. Its hits count every endpoint that is believed to hold an item; these
count only the endpoint that served, so that hits over queries are the share of items
that were not encoded again, as far as the belief is right.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram

from tessera.core.facts import EncoderMatch
from tessera.core.matching.divided import computing_stage, encoder_of, row_of
from tessera.core.matching.mm_embeddings_cache import identified
from tessera.core.types import Candidate, Decision, Ending, Outcome, PricedItem

HIT_RATIO_BUCKETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


class EncoderCacheMetrics:
    """Three families; silent where no producer says what endpoints hold."""

    def __init__(self, registry: CollectorRegistry, endpoint_label: Callable[[str], str]) -> None:
        """Register the families; ``endpoint_label`` bounds the labels that are endpoints."""
        self._endpoint_label = endpoint_label
        self._queries = Counter(
            "llm_d_epp_encoder_cache_queries_total",
            "Distinct media items of requests that were served.",
            ("modality",),
            registry=registry,
        )
        self._hits = Counter(
            "llm_d_epp_encoder_cache_hits_total",
            "Those of them that the endpoint which encodes was believed to hold.",
            ("pod", "modality"),
            registry=registry,
        )
        self._ratio = Histogram(
            "llm_d_epp_encoder_cache_hit_ratio",
            "Share of a request's distinct media items that were believed to be held.",
            buckets=HIT_RATIO_BUCKETS,
            registry=registry,
        )

    def settled(self, outcome: Outcome) -> None:
        """Count a request that an endpoint served."""
        decision = outcome.decision
        if decision is None or not decision.priced.items or outcome.ending is Ending.FAILED:
            return
        num_hits = num_items = 0
        for row, item in _encoders(decision, outcome.endpoint):
            match = next((fact for (kind, _), fact in row.facts.items() if kind is EncoderMatch), None)
            if match is None:
                continue
            modality = str(item.item.modality)
            num_items += 1
            self._queries.labels(modality).inc()
            if item.identifier in match.identifiers:
                num_hits += 1
                self._hits.labels(self._endpoint_label(row.endpoint.id), modality).inc()
        if num_items:
            self._ratio.observe(num_hits / num_items)


def _encoders(decision: Decision, served: str | None) -> Iterator[tuple[Candidate, PricedItem]]:
    """Each distinct item that can be known again with the endpoint that encodes it, as the decision saw it.

    An encoder apart, else who computes the prompt: who served, unless prefill is apart.
    """
    stage = computing_stage(decision)
    away = encoder_of(decision)
    here = stage.winner.id if stage.winner else None
    if stage is decision.primary_stage and served is not None:
        here = served
    for item in identified(decision.priced.distinct_items()):
        row = row_of(decision, away.get(item.identifier, here or ""))
        if row is not None:
            yield row, item
