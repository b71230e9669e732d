"""What every scorer holds to, whatever it scores by."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.plugin import Scorer, registered

discover()

SCORERS = {cls.type: cls for cls in registered(Scorer).values()}
every_scorer = pytest.mark.parametrize("type_name", SCORERS)

count = st.integers(0, 1000)
row = st.tuples(
    st.none() | count,
    st.none() | count,
    st.none() | st.floats(0, 1),
    count,
    st.integers(0, 10_000_000),
    st.integers(0, 100),
)
rows = st.lists(row, max_size=8)
NUM_LOADS = 5
"""The first columns of a row are load, the last one is a cache match."""


def request_of(build, size):
    return build.priced(size, items=[build.item(7, identifier="m0")])


@every_scorer
@settings(max_examples=40)
@given(drawn=rows, size=st.integers(0, 100_000))
def test_one_score_in_range_for_each_candidate(type_name, build, table, drawn, size):
    candidates = [table(number, each) for number, each in enumerate(drawn)]
    scores = SCORERS[type_name]().score(request_of(build, size), candidates)
    assert len(scores) == len(candidates)
    assert all(0.0 <= score <= 1.0 for score in scores)


@every_scorer
@settings(max_examples=40)
@given(drawn=rows, chance=st.randoms(use_true_random=False))
def test_scores_permute_with_the_candidates(type_name, build, table, drawn, chance):
    candidates = [table(number, each) for number, each in enumerate(drawn)]
    order = list(range(len(candidates)))
    chance.shuffle(order)
    scorer, request = SCORERS[type_name](), request_of(build, 100)
    scores = scorer.score(request, candidates)
    assert scorer.score(request, [candidates[index] for index in order]) == [scores[index] for index in order]
    assert scorer.score(request, candidates) == scores


@every_scorer
@settings(max_examples=40)
@given(
    drawn=st.lists(row, min_size=1, max_size=8), which=st.integers(0, 7), column=st.integers(0, 4), more=st.floats(0, 1)
)
def test_more_load_never_raises_the_score_of_its_endpoint(type_name, build, table, drawn, which, column, more):
    which %= len(drawn)
    value = drawn[which][column]
    if value is None:
        return
    heavier = list(drawn[which])
    heavier[column] = value + more * (1 - value) if column == 2 else value + int(more * 1000)
    scorer, request = SCORERS[type_name](), request_of(build, 100)
    before = scorer.score(request, [table(number, each) for number, each in enumerate(drawn)])
    drawn = [*drawn[:which], tuple(heavier), *drawn[which + 1 :]]
    after = scorer.score(request, [table(number, each) for number, each in enumerate(drawn)])
    assert after[which] <= before[which]


@every_scorer
def test_nothing_is_known(type_name, build, table):
    candidates = [table(number, (None, None, None, 0, 0, 0)) for number in range(3)]
    scores = SCORERS[type_name]().score(build.priced(), candidates)
    assert len(set(scores)) == 1, "where nothing is known all endpoints are equal"
