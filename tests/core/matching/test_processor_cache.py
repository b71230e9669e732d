"""What was preprocessed where, as far as decisions and outcomes tell."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import Joined, Left, Load, PrefixMatch, ProcessorMatch, Scraped
from tessera.core.matching.processor_cache import ProcessorCacheProducer
from tessera.core.types import Ending, Outcome
from tessera.core.work import EncodePlan

GIB = 1 << 30


def request_of(build, *names, num_embeds=1000, request_id="r1"):
    items = [build.item(num_embeds, identifier=name, index=i) for i, name in enumerate(names)]
    return build.priced(100, items, request_id=request_id)


def decide(build, producer, priced, winner=1, *, match=None, others=(7,)):
    candidates = [build.candidate(winner, match=match), *(build.candidate(number) for number in others)]
    decision = build.decision(priced, build.stage(candidates))
    producer.record(decision)
    return decision


def outcome(decision, number, *, status=200, ending=Ending.FINISHED):
    return Outcome(
        request_id=decision.request.request_id,
        ending=ending,
        decision=decision,
        status=status,
        endpoint=f"10.0.0.{number}:8000",
        finished_at=2.0,
    )


def held_by(build, producer, *names, numbers=(1, 2)):
    facts = producer.match(request_of(build, *names), [build.endpoint(number) for number in numbers])
    return ["".join(sorted(fact.identifiers)) for fact in facts]


def test_held_where_it_was_sent_also_what_the_kv_cache_covers(build):
    producer = ProcessorCacheProducer()
    match = PrefixMatch(num_matched_tokens=1000, num_total_tokens=2100, num_matched_media_tokens=1000)
    decide(build, producer, request_of(build, "a", "b"), 1, match=match)
    assert held_by(build, producer, "a", "b", "c") == ["ab", ""]


def test_without_media_nothing_matches_and_nothing_is_entered(build):
    producer = ProcessorCacheProducer()
    decide(build, producer, build.priced(10))
    assert producer.match(build.priced(10), [build.endpoint(1)]) == [ProcessorMatch(identifiers=frozenset())]
    assert producer.num_embeds_of("10.0.0.1:8000") == 0


@pytest.mark.parametrize(("gib", "kept"), [(3000 * 12_288 / GIB, "bcd"), (2999 * 12_288 / GIB, "cd")])
def test_the_size_is_bytes_over_those_of_an_embedding(build, gib, kept):
    producer = ProcessorCacheProducer(cache_size_gb=gib)
    decide(build, producer, request_of(build, *"abcd"), 1)
    assert held_by(build, producer, *"abcd", numbers=(1,)) == [kept]


def test_four_gib_are_388_pictures_of_720p():
    assert 4 * GIB // 12_288 // 900 == 388


def test_every_stages_winner_preprocesses(build):
    producer = ProcessorCacheProducer()
    stages = [build.stage([build.candidate(1)], profile="encode"), build.stage([build.candidate(2)], profile="decode")]
    producer.record(build.decision(request_of(build, "a"), *stages))
    assert held_by(build, producer, "a") == ["a", "a"]


def test_the_fallback_that_served_holds_it_and_the_winner_does_not(build):
    producer = ProcessorCacheProducer()
    for number in (1, 2):
        producer.observe(Joined(at=0.0, endpoint=build.endpoint(number)))
    decision = decide(build, producer, request_of(build, "a"), 1, others=(2,))
    for _ in range(2):
        producer.settle(outcome(decision, 2))
        assert held_by(build, producer, "a") == ["", "a"]


@pytest.mark.parametrize(
    ("status", "ending", "held"),
    [(200, Ending.FINISHED, "a"), (400, Ending.FINISHED, ""), (None, Ending.FAILED, ""), (None, Ending.ABORTED, "a")],
)
def test_what_a_request_entered_that_failed_is_taken_back(build, status, ending, held):
    producer = ProcessorCacheProducer()
    producer.settle(outcome(decide(build, producer, request_of(build, "a"), 1), 1, status=status, ending=ending))
    assert held_by(build, producer, "a", numbers=(1,)) == [held]


def test_who_left_or_started_anew_holds_nothing(build):
    producer = ProcessorCacheProducer()
    page = Scraped(at=0.0, endpoint_id="10.0.0.1:8000", load=Load(), process_start_at=5.0)
    for number in (1, 2):
        producer.observe(Joined(at=0.0, endpoint=build.endpoint(number)))
        decide(build, producer, request_of(build, "a"), number)
    producer.observe(page)
    assert held_by(build, producer, "a") == ["a", "a"]
    producer.observe(dataclasses.replace(page, process_start_at=6.0))
    producer.observe(Left(at=0.0, endpoint=build.endpoint(2)))
    assert held_by(build, producer, "a") == ["", ""]
    assert "10.0.0.2:8000" not in producer._held._caches


@given(sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000)), max_size=40))
def test_never_over_its_bound_and_tiny_items_count_as_64(build, sizes):
    producer = ProcessorCacheProducer(cache_size_gb=2000 * 12_288 / GIB)
    for name, num_embeds in sizes:
        decide(build, producer, request_of(build, str(name), num_embeds=num_embeds), 1)
        assert producer.num_embeds_of("10.0.0.1:8000") <= 2000
        assert len(producer._held.names("10.0.0.1:8000")) <= 2000 // 64
        assert held_by(build, producer, str(name), numbers=(1,)) == [str(name)]


def test_an_encoder_prepares_what_it_gets_and_the_others_everything(build):
    producer, rows = ProcessorCacheProducer(), [build.candidate(number) for number in (1, 2, 3)]
    items = [build.item(100, identifier=name, index=index) for index, name in enumerate("ab")]
    plan = EncodePlan({"b": "10.0.0.3:8000"}, is_told=True)
    stages = (
        build.stage(rows, 0, "decode"),
        build.stage(rows, 1, "prefill"),
        build.stage(rows, 2, "encode", encodes=plan),
    )
    priced = build.priced(10, items)
    producer.record(build.decision(priced, *stages, primary="decode"))
    held = producer.match(priced, [each.endpoint for each in rows])
    assert ["".join(sorted(each.identifiers)) for each in held] == ["ab", "ab", "b"]
