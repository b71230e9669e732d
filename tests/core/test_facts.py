import pytest

from tessera.core.facts import Load, PrefixMatch, Table, facts_of, num_uncached_tokens, pessimistic, uncached_tokens
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
    alone = Candidate(build.endpoint(), {(PrefixMatch, "precise"): match(70)})
    assert num_uncached_tokens(request, alone) == num_uncached_tokens(request, alone, "unknown") == 30


def test_uncached_tokens_of_a_whole_table(build):
    matches = [PrefixMatch(num_matched_tokens=num, num_total_tokens=100) for num in (0, 60, 100, 101)]
    candidates = [build.candidate(number, match=match) for number, match in enumerate(matches, 1)]
    nobody_knows = Candidate(build.endpoint(9), {})
    assert uncached_tokens(build.priced(100), [*candidates, nobody_knows]) == [100, 40, 0, 0, 100]


def test_a_table_has_the_columns_of_its_rows(build):
    candidates = build.loads(num_waiting=[3, None, 1])
    table = Table(candidates)
    assert list(table) == candidates
    assert [load.num_waiting for load in facts_of(Load, table)] == [3, None, 1]
    assert list(facts_of(Load, table)) == list(facts_of(Load, candidates))
    assert facts_of(Load, table) is facts_of(Load, table), "looked up once"
    assert [load.num_waiting for load in facts_of(Load, Table(table[1:]))] == [None, 1]
    assert facts_of(Load, Table([])) == ()


def test_an_absent_fact_is_a_key_error_in_a_table_too(build):
    candidates = [Candidate(build.endpoint(), {})]
    for rows in (candidates, Table(candidates)):
        with pytest.raises(KeyError):
            facts_of(Load, rows)
