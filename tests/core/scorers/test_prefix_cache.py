import pytest

from tessera.core.facts import PrefixMatch
from tessera.core.scorers.prefix_cache import PrefixCacheScorer


def candidates(build, *pairs):
    matches = [PrefixMatch(num_matched_tokens=matched, num_total_tokens=total) for matched, total in pairs]
    return [build.candidate(number, match=match) for number, match in enumerate(matches, 1)]


def test_the_share_of_the_prompt(build):
    assert PrefixCacheScorer().score(build.priced(10), candidates(build, (7, 10), (0, 10), (0, 0))) == [0.7, 0.0, 0.0]


@pytest.mark.parametrize(("matched", "score"), [(4096, 0.25 * 0.25 + 0.75 * 0.5), (8192, 0.25 + 0.75), (0, 0.0)])
def test_the_length_counts_by_its_square(build, matched, score):
    scorer = PrefixCacheScorer(match_length_weight=0.25)
    assert scorer.score(build.priced(), candidates(build, (matched, 8192))) == [score]


def test_a_long_match_counts_no_more_than_the_scale(build):
    scorer = PrefixCacheScorer(match_length_weight=1.0, match_length_scale_tokens=100)
    assert scorer.score(build.priced(), candidates(build, (50, 1000), (100, 1000), (999, 1000))) == [0.25, 1.0, 1.0]


def test_another_producer():
    scorer = PrefixCacheScorer(prefix_match_info_producer_name="mine")
    assert scorer.reads_of() == ((PrefixMatch, "mine"),)
