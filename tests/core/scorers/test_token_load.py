import pytest

from tessera.core.facts import InFlightLoad, PrefixMatch
from tessera.core.scorers.token_load import TokenLoadScorer


@pytest.mark.parametrize(
    ("limit", "own", "queued", "scores"),
    [
        (1000, 0, [0, 250, 1000, 2000], [1.0, 0.75, 0.0, 0.0]),
        (1000, 100, [0, 250, 900], [0.9, 0.65, 0.0]),
        (1000, 2000, [0], [0.0]),
        (1, 0, [0, 1], [1.0, 0.0]),
    ],
)
def test_own_and_queued_tokens_against_the_threshold(build, limit, own, queued, scores):
    scorer = TokenLoadScorer(queue_threshold_tokens=limit)
    candidates = build.in_flight(num_uncached_tokens=queued)
    assert scorer.score(build.priced(own), candidates) == pytest.approx(scores, abs=1e-12)


def test_the_default_threshold_is_llmds(build):
    score = TokenLoadScorer().score(build.priced(1 << 21), build.in_flight(num_uncached_tokens=[0]))
    assert score == [0.5]


def test_media_counts_and_what_a_cache_holds_does_not(build):
    request = build.priced(100, items=[build.item(898, num_wrapper_tokens=2)])
    cached = build.candidate(match=PrefixMatch(num_matched_tokens=600, num_total_tokens=1000))
    too_well_cached = build.candidate(match=PrefixMatch(num_matched_tokens=1001, num_total_tokens=1000))
    busy = build.candidate(in_flight=InFlightLoad(num_uncached_tokens=500))
    scorer = TokenLoadScorer(queue_threshold_tokens=2000)
    assert scorer.score(request, [build.candidate(), cached, too_well_cached, busy]) == [0.5, 0.8, 1.0, 0.25]
