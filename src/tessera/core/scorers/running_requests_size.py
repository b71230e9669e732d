"""Which endpoint runs the fewest requests?"""

from collections.abc import Sequence

from tessera.core.facts import Load, facts_of, pessimistic
from tessera.core.plugin import Scorer, plugin
from tessera.core.scorers.queue import relative_to_worst
from tessera.core.types import Candidate, PricedRequest


@plugin("running-requests-size-scorer", reads=(Load,))
class RunningRequestsSizeScorer(Scorer):
    """Prefer the endpoint whose metrics page shows the fewest running requests.

    ``score = (max - r) / (max - min)`` over the candidates; 1 where all are equal.
    An endpoint whose page is too old counts as the busiest known.
    """

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        return relative_to_worst(pessimistic([load.num_running for load in facts_of(Load, candidates)]))
