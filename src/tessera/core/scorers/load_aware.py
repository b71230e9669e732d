"""Which endpoint's waiting queue is well below a threshold?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import Load, facts_of, pessimistic
from tessera.core.plugin import Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("load-aware-scorer", reads=(Load,))
class LoadAwareScorer(Scorer):
    """Prefer endpoints with a short waiting queue, on a scale of its own.

    ``score = 0.5 * (1 - min(q, threshold) / threshold)``: 0.5 for an empty queue,
    0 from ``threshold`` on.
    """

    threshold: Annotated[int, Range(ge=1)] = 128
    """Waiting requests at which the score is 0."""

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate, 0..0.5."""
        queues = pessimistic([load.num_waiting for load in facts_of(Load, candidates)])
        limit = self.threshold
        return [0.5 * (1.0 - queue / limit) if queue < limit else 0.0 for queue in queues]
