"""Which endpoint's own waiting queue is shortest?"""

from collections.abc import Sequence

from tessera.core.facts import Load, facts_of, pessimistic
from tessera.core.plugin import Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


def relative_to_worst(column: Sequence[float]) -> list[float]:
    """``(max - x) / (max - min)`` for each value; 1 everywhere where all are equal.

    >>> relative_to_worst([0.0, 5.0, 10.0]), relative_to_worst([3.0, 3.0])
    ([1.0, 0.5, 0.0], [1.0, 1.0])
    """
    worst = max(column, default=0.0)
    spread = worst - min(column, default=0.0)
    return [(worst - value) / spread for value in column] if spread else [1.0] * len(column)


@plugin("queue-scorer", reads=(Load,))
class QueueScorer(Scorer):
    """Prefer the endpoint whose metrics page shows the fewest waiting requests.

    ``score = (max - q) / (max - min)`` over the candidates; 1 where all are equal.
    An endpoint whose page is too old counts as the longest queue known.
    """

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        return relative_to_worst(pessimistic([load.num_waiting for load in facts_of(Load, candidates)]))
