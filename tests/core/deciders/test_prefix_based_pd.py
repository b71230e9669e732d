import pytest

from tessera.core.deciders.prefix_based_pd import PrefixBasedPDDecider
from tessera.core.facts import PrefixMatch
from tessera.core.types import Candidate


def match(num_tokens):
    return PrefixMatch(num_matched_tokens=num_tokens, num_total_tokens=1000)


@pytest.mark.parametrize(
    ("parameters", "cached", "expected"),
    [
        ({}, 0, False),  # llm-d: 0 is never
        ({"non_cached_tokens": 400}, 600, True),
        ({"non_cached_tokens": 400}, 601, False),
        ({"non_cached_tokens": 1000}, 0, True),
        ({"non_cached_tokens": 1001}, 0, False),
        ({"non_cached_tokens": 400, "prompt_tokens": 1000}, 600, True),
        ({"non_cached_tokens": 400, "prompt_tokens": 1001}, 600, False),
    ],
)
def test_by_the_uncached_tokens_at_the_winner_of_decode(build, parameters, cached, expected):
    rows = [build.candidate(1, match=match(1000)), build.candidate(2, match=match(cached))]
    assert PrefixBasedPDDecider(**parameters).wants(build.priced(1000), build.stage(rows, 1)) is expected


def test_the_named_producer_counts(build):
    facts = {(PrefixMatch, PrefixMatch.producer): match(1000), (PrefixMatch, "mine"): match(0)}
    stage = build.stage([Candidate(build.endpoint(), facts)])
    decider = PrefixBasedPDDecider(non_cached_tokens=1, prefix_match_info_producer_name="mine")
    assert decider.reads_of() == ((PrefixMatch, "mine"),)
    assert decider.wants(build.priced(1000), stage)
    assert not PrefixBasedPDDecider(non_cached_tokens=1).wants(build.priced(1000), stage)
