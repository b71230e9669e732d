import pytest

from tessera.core.facts import PrefixMatch, num_uncached_tokens, pessimistic
from tessera.core.types import Candidate


@pytest.mark.parametrize(
    ("column", "expected"),
    [([], []), ([None], [0.0]), ([2, None, 5], [2.0, 5.0, 5.0]), ([0, None], [0.0, 0.0]), ([0.5], [0.5])],
)
def test_unknown_counts_as_the_worst_known(column, expected):
    assert pessimistic(column) == expected


def test_uncached_is_what_the_named_producer_does_not_match(build):
    def match(num):
        return PrefixMatch(num_matched_tokens=num, num_total_tokens=100)

    facts = {(PrefixMatch, PrefixMatch.producer): match(60), (PrefixMatch, "other"): match(120)}
    candidate, request = Candidate(build.endpoint(), facts), build.priced(100)
    assert num_uncached_tokens(request, candidate) == 40
    assert num_uncached_tokens(request, candidate, "other") == 0
    assert num_uncached_tokens(request, candidate, "unknown") == 100
