"""How often does a request's media find its embeddings where it is encoded?

llm-d's names. Its hits count every endpoint that is believed to hold an item; these
count only the endpoint that served, so that hits over queries are the share of items
that were not encoded again, as far as the belief is right.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from tessera.core.facts import EncoderMatch
from tessera.core.matching.mm_embeddings_cache import encoding_stage, identified_items
from tessera.core.types import Candidate, Decision, Ending, Outcome

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
        items = identified_items(decision.priced)
        row = _encoder(decision, outcome.endpoint)
        match = next((fact for (kind, _), fact in row.facts.items() if kind is EncoderMatch), None) if row else None
        if row is None or match is None or not items:
            return
        endpoint = self._endpoint_label(row.endpoint.id)
        num_hits = 0
        for each in items:
            modality = str(each.item.modality)
            self._queries.labels(modality).inc()
            if each.identifier in match.identifiers:
                num_hits += 1
                self._hits.labels(endpoint, modality).inc()
        self._ratio.observe(num_hits / len(items))


def _encoder(decision: Decision, served: str | None) -> Candidate | None:
    """The endpoint that encoded: who served, unless a stage of its own did; as the decision saw it."""
    stage = encoding_stage(decision)
    if stage.winner is None:
        return None
    is_own_stage = stage is not decision.primary_stage
    endpoint_id = stage.winner.id if is_own_stage or served is None else served
    return next((each for each in stage.candidates if each.endpoint.id == endpoint_id), None)
