"""Which endpoint has this request's LoRA adapter loaded, or a free place for it?"""

from collections.abc import Sequence

from tessera.core.facts import Load, facts_of
from tessera.core.plugin import Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("lora-affinity-scorer", reads=(Load,))
class LoraAffinityScorer(Scorer):
    """Prefer endpoints that run this request's adapter.

    1.0 where it runs; 0.8 where running and waiting adapters leave a place; 0.6 where
    it waits; else 0, as where the page says nothing of adapters. The adapter is the
    model that the request names.
    """

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        adapter = request.request.lora or request.request.model
        return [
            _rating(load, adapter) if load.running_loras or load.waiting_loras or load.max_loras else 0.0
            for load in facts_of(Load, candidates)
        ]


def _rating(load: Load, adapter: str) -> float:
    if adapter in load.running_loras:
        return 1.0
    if len(load.running_loras) + len(load.waiting_loras) < (load.max_loras or 0):
        return 0.8
    return 0.6 if adapter in load.waiting_loras else 0.0
