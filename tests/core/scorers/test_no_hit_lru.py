from tessera.core.facts import Left, PrefixMatch
from tessera.core.scorers.no_hit_lru import NoHitLRUScorer


def candidates(build, *matched):
    matches = [PrefixMatch(num_matched_tokens=tokens, num_total_tokens=10) for tokens in matched]
    return [build.candidate(number, match=match) for number, match in enumerate(matches, 1)]


def send(build, scorer, number, matched=(0, 0, 0, 0), extra=()):
    scorer.record(build.decision(None, *extra, build.stage(candidates(build, *matched), winner=number - 1)))


def cold(build, scorer):
    return scorer.score(build.priced(), candidates(build, 0, 0, 0, 0))


def test_never_used_first_then_the_least_recent(build):
    scorer = NoHitLRUScorer()
    assert cold(build, scorer) == [1.0, 1.0, 1.0, 1.0]
    for number in (1, 2, 1):
        send(build, scorer, number)
    assert cold(build, scorer) == [0.0, 1 - 2 / 3, 1.0, 1.0]
    for number in (3, 4):
        send(build, scorer, number)
    assert cold(build, scorer) == [1 - 1 / 3, 1.0, 1 - 2 / 3, 0.0]


def test_a_hit_anywhere_is_one_half_everywhere_and_is_not_remembered(build):
    scorer = NoHitLRUScorer()
    assert scorer.score(build.priced(), candidates(build, 0, 1, 0)) == [0.5] * 3
    send(build, scorer, 1, matched=(0, 1))
    assert cold(build, scorer) == [1.0] * 4


def test_the_winner_of_a_stage_named_prefill_is_remembered(build):
    scorer = NoHitLRUScorer()
    stages = [build.stage(candidates(build, 0, 0, 0), winner=1, profile=name) for name in ("encode", "prefill")]
    send(build, scorer, 1, extra=stages[1:])
    send(build, scorer, 3, extra=stages[:1])
    assert cold(build, scorer) == [1 - 2 / 3, 1 - 1 / 3, 0.0, 1.0]


def test_one_endpoint_and_none(build):
    scorer = NoHitLRUScorer()
    send(build, scorer, 1)
    assert scorer.score(build.priced(), candidates(build, 0)) == [1.0]
    assert scorer.score(build.priced(), []) == []


def test_it_forgets_who_leaves_and_the_oldest_beyond_its_size(build):
    scorer = NoHitLRUScorer(lru_size=2)
    for number in (1, 2, 3):
        send(build, scorer, number)
    assert cold(build, scorer) == [1.0, 1 - 2 / 3, 0.0, 1.0]
    scorer.observe(Left(at=0.0, endpoint=build.endpoint(2)))
    scorer.observe(Left(at=0.0, endpoint=build.endpoint(9)))
    assert cold(build, scorer) == [1.0, 1.0, 0.0, 1.0]
