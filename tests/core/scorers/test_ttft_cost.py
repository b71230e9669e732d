import pytest

from tessera.core.facts import FirstTokenCost
from tessera.core.scorers.ttft_cost import TTFTCostScorer
from tessera.core.types import Candidate


def rows(build, *costs):
    """Candidates by (queued, prefill, encode, processing) seconds."""
    made = []
    for number, (queued, prefill, encode, processing) in enumerate(costs, 1):
        fact = FirstTokenCost(queued_s=queued, prefill_s=prefill, encode_s=encode, processing_s=processing)
        made.append(Candidate(build.endpoint(number), {(FirstTokenCost, FirstTokenCost.producer): fact}))
    return made


@pytest.mark.parametrize(
    ("price", "scores"),
    [
        # queued 1 + own 0.5; queued 0 + own 1; queued 12 + own 0
        (0.0, [0.95, 1.0, 0.0]),
        (1.0, [1.0, 1.0, 0.0]),
        (4.0, [1.0, 0.85, 0.15]),
    ],
)
def test_seconds_behind_the_best_with_own_work_at_its_price(build, price, scores):
    scorer = TTFTCostScorer(own_work_price=price, range_s=10.0)
    table = rows(build, (1.0, 0.2, 0.2, 0.1), (0.0, 1.0, 0.0, 0.0), (12.0, 0.0, 0.0, 0.0))
    assert scorer.score(build.priced(), table) == pytest.approx(scores)


def test_at_the_shipped_price_a_spill_must_spare_nine_times_its_work(build):
    """0.27 s of work elsewhere against 0.07 s here: the queue here may be 9 x 0.2 = 1.8 s longer."""
    for queued, winner in ((1.79, 0), (1.81, 1)):
        scores = TTFTCostScorer().score(build.priced(), rows(build, (queued, 0.07, 0, 0), (0, 0.17, 0.05, 0.05)))
        assert scores.index(max(scores)) == winner
        assert scores[1 - winner] == pytest.approx(1 - 0.01 / 60)


def test_nobody_is_rated_as_nobody(build):
    assert TTFTCostScorer().score(build.priced(), []) == []
