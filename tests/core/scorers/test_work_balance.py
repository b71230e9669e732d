import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import FirstTokenCost, Joined, Left, MediaRates
from tessera.core.scorers.ttft_cost import TTFTCostScorer
from tessera.core.scorers.work_balance import WorkBalanceScorer
from tessera.core.types import Candidate


def row(build, number, own, queued=0.0):
    fact = FirstTokenCost(queued_s=queued, prefill_s=own)
    return Candidate(build.endpoint(number), {(FirstTokenCost, FirstTokenCost.producer): fact})


def give(build, scorer, number, own, at=0.0):
    scorer.record(build.decision(None, build.stage([row(build, number, own)]), at=at))


def work(scorer, number, at):
    return scorer.work_s(f"10.0.0.{number}:8000", at)


def test_work_fades_to_an_eth_in_tau(build):
    scorer = WorkBalanceScorer(tau_s=10.0, request_s=0.5)
    give(build, scorer, 1, 1.5)
    assert work(scorer, 1, 0.0) == 2.0
    assert work(scorer, 1, 10.0) == pytest.approx(2.0 / math.e)
    give(build, scorer, 1, 0.0, at=10.0)
    assert work(scorer, 1, 10.0) == pytest.approx(2.0 / math.e + 0.5)
    assert work(scorer, 1, 9.0) == work(scorer, 1, 10.0), "a request that was read before is not asked about the past"


def test_seconds_behind_the_one_with_the_least_work(build):
    """30 s more work over 60 s are 2 * 30 / 60 = 1 s, a tenth of the range."""
    scorer = WorkBalanceScorer(balance_s=2.0, tau_s=60.0, request_s=0.0, range_s=10.0)
    give(build, scorer, 1, 50.0)
    give(build, scorer, 2, 20.0)
    give(build, scorer, 3, 400.0)
    table = [row(build, number, 0.0) for number in (1, 2, 3)]
    assert scorer.score(build.priced(at=0.0), table) == pytest.approx([0.9, 1.0, 0.0])


@given(
    queued=st.lists(st.floats(0, 5), min_size=3, max_size=3),
    own=st.lists(st.floats(0, 1), min_size=3, max_size=3),
    past=st.lists(st.floats(0, 60), min_size=3, max_size=3),
)
def test_both_scores_add_up_as_seconds(build, queued, own, past):
    """The sum orders endpoints as ``queued + 5 own + 2 (work - mean) / 60`` does."""
    scorer = WorkBalanceScorer(request_s=0.0)
    for number, seconds in enumerate(past, 1):
        give(build, scorer, number, seconds)
    table = [row(build, number, own[number - 1], queued[number - 1]) for number in (1, 2, 3)]
    request = build.priced(at=0.0)
    columns = TTFTCostScorer(own_work_price=4.0).score(request, table), scorer.score(request, table)
    totals = [sum(each) for each in zip(*columns, strict=True)]
    mean = sum(past) / 3
    seconds = [q + 5 * o + 2 * (w - mean) / 60 for q, o, w in zip(queued, own, past, strict=True)]
    best = min(seconds)
    assert [max(totals) - total for total in totals] == pytest.approx([(s - best) / 60 for s in seconds], abs=1e-9)


def test_who_joins_begins_with_the_mean_and_who_leaves_is_forgotten(build):
    scorer = WorkBalanceScorer(tau_s=10.0, request_s=0.0)
    for number in (1, 2):
        scorer.observe(Joined(at=0.0, endpoint=build.endpoint(number)))
    give(build, scorer, 1, 4.0)
    scorer.observe(Joined(at=10.0, endpoint=build.endpoint(3)))
    scorer.observe(Joined(at=10.0, endpoint=build.endpoint(1)))
    assert [work(scorer, number, 10.0) for number in (1, 2, 3)] == pytest.approx([4 / math.e, 0.0, 2 / math.e])
    scorer.observe(Left(at=10.0, endpoint=build.endpoint(1)))
    assert work(scorer, 1, 10.0) == 0.0
    assert len(scorer) == 2


def test_ten_thousand_joins_and_leaves_leave_nothing_behind(build):
    scorer = WorkBalanceScorer()
    for number in range(10_000):
        endpoint = build.endpoint(number % 250, port=number + 1)
        scorer.observe(Joined(at=0.0, endpoint=endpoint))
        fact = FirstTokenCost(prefill_s=0.1)
        made = Candidate(endpoint, {(FirstTokenCost, FirstTokenCost.producer): fact})
        scorer.record(build.decision(None, build.stage([made])))
        scorer.observe(Left(at=0.0, endpoint=endpoint))
    assert len(scorer) == 0


def test_a_stage_without_winner_gives_nobody_work(build):
    scorer = WorkBalanceScorer()
    scorer.record(build.decision(None, build.stage([row(build, 1, 1.0)], winner=None)))
    assert len(scorer) == 0


def test_of_stages_apart_each_endpoint_has_its_own_part(build):
    rates = MediaRates(
        encode_s_per_item=0.5, encode_s_per_embed=0.0, encode_s_per_embed_squared=0.0, processing_s_per_megapixel=0.0
    )
    cost = FirstTokenCost(prefill_s=2.0, encode_s=0.5, rates=rates)
    facts = {(FirstTokenCost, FirstTokenCost.producer): cost}
    rows = [Candidate(build.endpoint(number), facts) for number in (1, 2, 3)]
    stages = [build.stage(rows, index, name) for index, name in enumerate(("decode", "prefill", "encode"))]
    scorer = WorkBalanceScorer(request_s=0.1)
    scorer.record(build.decision(build.priced(10, [build.item()]), *stages, primary="decode"))
    works = [scorer.work_s(row.endpoint.id, 0.0) for row in rows]
    assert works == [pytest.approx(0.1), pytest.approx(2.0), pytest.approx(0.5)]
