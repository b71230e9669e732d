"""The share of a request's media that an endpoint holds, by hand."""

import pytest

from tessera.core.facts import EncoderMatch
from tessera.core.scorers.mm_embeddings_cache import MMEmbeddingsCacheScorer
from tessera.core.types import Candidate


def holder(build, number, *names, producer=EncoderMatch.producer):
    return Candidate(build.endpoint(number), {(EncoderMatch, producer): EncoderMatch(identifiers=frozenset(names))})


@pytest.fixture
def request_of_three(build):
    sizes = {"a": 900, "b": 100, "c": 0}
    items = [build.item(size, identifier=name, index=i) for i, (name, size) in enumerate(sizes.items())]
    return build.priced(50, [*items, build.item(900, identifier="a", index=3)])


def test_matched_over_total_by_embeddings(build, request_of_three):
    rows = [holder(build, 1), holder(build, 2, "a"), holder(build, 3, "b", "x"), holder(build, 4, "a", "b", "c")]
    assert MMEmbeddingsCacheScorer().score(request_of_three, rows) == [0.0, 0.9, 0.1, 1.0]


def test_matched_over_total_by_count_is_llm_ds(build, request_of_three):
    rows = [holder(build, 1), holder(build, 2, "a"), holder(build, 3, "b", "c"), holder(build, 4, "a", "b", "c")]
    scores = MMEmbeddingsCacheScorer(weigh_by="count").score(request_of_three, rows)
    assert scores == [0.0, 1 / 3, 2 / 3, 1.0]


@pytest.mark.parametrize("items", [0, 1])
def test_nothing_to_hold_is_0(build, items):
    request = build.priced(50, [build.item(0, identifier="a")] * items)
    assert MMEmbeddingsCacheScorer().score(request, [holder(build, 1), holder(build, 2, "a")]) == [0.0, 0.0]


def test_reads_the_producer_that_it_is_told(build, request_of_three):
    scorer = MMEmbeddingsCacheScorer(producer_name="mine")
    assert scorer.reads_of() == ((EncoderMatch, "mine"),)
    assert scorer.score(request_of_three, [holder(build, 1, "a", producer="mine")]) == [0.9]
