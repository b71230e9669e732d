import pytest

from tessera.core.facts import CacheSource, PrefixMatch
from tessera.core.matching.p2p_source import P2PSourceProducer
from tessera.core.types import Candidate


def rows(build, *matched):
    made = []
    for number, tokens in enumerate(matched, 1):
        facts = {(PrefixMatch, PrefixMatch.producer): PrefixMatch(num_matched_tokens=tokens, num_total_tokens=1000)}
        made.append(Candidate(build.endpoint(number), facts))
    return made


def with_sources(producer, table, request):
    facts = producer.derive(request, table)
    key = (CacheSource, producer.name)
    return [Candidate(row.endpoint, {**row.facts, key: fact}) for row, fact in zip(table, facts, strict=True)]


@pytest.mark.parametrize(
    ("matched", "delta", "expected"),
    [
        ((0, 0), 1, [None, None]),
        ((100, 400, 400), 1, [2, None, None]),
        ((100, 400), 300, [2, None]),
        ((100, 400), 301, [None, None]),
    ],
)
def test_the_peer_that_holds_enough_more(build, matched, delta, expected):
    producer = P2PSourceProducer(min_cached_token_delta=delta)
    facts = producer.derive(build.priced(1000), rows(build, *matched))
    assert [fact.endpoint_id for fact in facts] == [f"10.0.0.{n}:8000" if n else None for n in expected]
    assert facts[0].num_more_tokens == (300 if expected[0] else 0)


@pytest.mark.parametrize(
    ("stages", "expected"),
    [
        ({"decode": 0}, {"x-kv-cache-source-host-port": "10.0.0.3:8000"}),
        ({"decode": 2}, {}),
        # Who prefills computes, so its own cache counts.
        ({"decode": 2, "prefill": 1}, {"x-kv-cache-source-host-port": "10.0.0.3:8000"}),
        ({"decode": 0, "prefill": 2}, {}),
        ({"decode": 0, "prefill": None}, {"x-kv-cache-source-host-port": "10.0.0.3:8000"}),
    ],
)
def test_told_for_the_endpoint_that_computes_the_prompt(build, stages, expected):
    producer, request = P2PSourceProducer(), build.priced(1000)
    table = with_sources(producer, rows(build, 100, 200, 400), request)
    made = [build.stage(table, winner, name) for name, winner in stages.items()]
    assert producer.request_headers(build.decision(request, *made, primary="decode")) == expected
