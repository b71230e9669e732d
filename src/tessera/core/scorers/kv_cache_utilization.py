"""Which endpoint has the most free KV cache?"""

from collections.abc import Sequence

from tessera.core.facts import Load, facts_of, pessimistic
from tessera.core.plugin import Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("kv-cache-utilization-scorer", reads=(Load,))
class KVCacheUtilizationScorer(Scorer):
    """Prefer the endpoint with the most free KV cache: ``score = 1 - usage``.

    An endpoint whose page is too old counts as the fullest known.
    """

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        usages = pessimistic([load.kv_usage_fraction for load in facts_of(Load, candidates)])
        return [1.0 - usage for usage in usages]
