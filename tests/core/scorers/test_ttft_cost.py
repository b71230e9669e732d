import pytest

from tessera.core.facts import FirstTokenCost
from tessera.core.scorers.ttft_cost import TTFTCostScorer
from tessera.core.types import Candidate


def rows(build, *costs, waiting=(0, 0, 0)):
    """Candidates by (queued, prefill, encode, processing) seconds, and how many wait at each."""
    made = []
    for number, (queued, prefill, encode, processing) in enumerate(costs, 1):
        ahead = {"queued_s": queued, "num_waiting": waiting[number - 1]}
        fact = FirstTokenCost(**ahead, prefill_s=prefill, encode_s=encode, processing_s=processing)
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


@pytest.mark.parametrize(("waiting", "price"), [((0, 0), 0.5), ((3, 0), 2.0), ((7, 8), 8.0), ((40, 2), 12.0)])
def test_own_work_is_dear_where_many_wait(build, waiting, price):
    """0.27 s of work elsewhere against 0.07 s here: the queue here may be (1 + price) x 0.2 s longer."""
    border = (1 + price) * 0.2
    for queued, winner in ((border - 0.01, 0), (border + 0.01, 1)):
        table = rows(build, (queued, 0.07, 0, 0), (0, 0.17, 0.05, 0.05), waiting=waiting)
        scores = TTFTCostScorer().score(build.priced(), table)
        assert scores.index(max(scores)) == winner
        assert scores[1 - winner] == pytest.approx(1 - 0.01 / 60)


def test_a_least_price_above_the_greatest_is_told():
    assert [name for name, _ in TTFTCostScorer(own_work_price=13).cautions()] == ["ownWorkPrice"]
    assert list(TTFTCostScorer(own_work_price=12).cautions()) == []


def test_nobody_is_rated_as_nobody(build):
    assert TTFTCostScorer().score(build.priced(), []) == []
