"""Which endpoints say of themselves that they have room?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import Load, facts_of
from tessera.core.plugin import Filter, GoDuration, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("utilization-detector", reads=(Load,))
class UtilizationDetector(Filter):
    """Keep endpoints whose queue and KV cache are below their thresholds; keep all where none is.

    load = ``max(waiting / queueDepthThreshold, kv usage / kvCacheUtilThreshold)``,
    dropped above ``1 + headroom``. An endpoint whose metrics are unknown or older
    than ``metricsStalenessThreshold`` counts as full.
    """

    queue_depth_threshold: Annotated[int, Range(ge=1)] = 5
    """Waiting requests that fill an endpoint."""
    kv_cache_util_threshold: Annotated[float, Range(gt=0, le=1)] = 0.8
    """KV cache usage, 0..1, that fills an endpoint."""
    metrics_staleness_threshold: Annotated[float, GoDuration()] = 0.2
    """Age from which a metrics page is not believed, 200ms for example."""
    headroom: Annotated[float, Range(ge=0)] = 0.0
    """Share above the limit that is still let through."""

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates with room, in their order; all where that would leave none."""
        at, limit = request.request.at, 1.0 + self.headroom
        max_age_s = self.metrics_staleness_threshold
        queue, cache = self.queue_depth_threshold, self.kv_cache_util_threshold
        kept = [
            candidate
            for candidate, load in zip(candidates, facts_of(Load, candidates), strict=True)
            if load.at is not None
            and at - load.at <= max_age_s
            and load.num_waiting is not None
            and load.num_waiting / queue <= limit
            and load.kv_usage_fraction is not None
            and load.kv_usage_fraction / cache <= limit
        ]
        return kept or list(candidates)
