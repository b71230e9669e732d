"""Where an item was encoded, as far as decisions and outcomes tell."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.facts import EncoderMatch, Joined, Left, Load, PrefixMatch, Scraped
from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.matching.mm_embeddings_cache import CACHE_SIZE_EMBEDS, MMEmbeddingsCacheProducer, uncovered_items
from tessera.core.media.size import Reason
from tessera.core.parts import MediaItem, Modality, TextPart
from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.pricing.token import TokenProducer
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.scheduler import Profile, Scheduler
from tessera.core.scorers.mm_embeddings_cache import MMEmbeddingsCacheScorer
from tessera.core.types import Ending, Outcome


def request_of(build, *names, request_id="r1", num_embeds=900, **fields):
    items = [build.item(num_embeds, identifier=name, index=i, num_wrapper_tokens=2) for i, name in enumerate(names)]
    return build.priced(100, items, request_id=request_id, **fields)


def decide(build, producer, priced, winner=1, *, match=None, others=(7,)):
    candidates = [build.candidate(winner, match=match), *(build.candidate(number) for number in others)]
    decision = build.decision(priced, build.stage(candidates))
    producer.record(decision)
    return decision


def outcome(decision, number=None, *, status=200, ending=Ending.FINISHED):
    return Outcome(
        request_id=decision.request.request_id,
        ending=ending,
        decision=decision,
        status=status,
        endpoint=None if number is None else f"10.0.0.{number}:8000",
        finished_at=2.0,
    )


def held_by(build, producer, *names, numbers=(1, 2, 3)):
    """Per endpoint, which of the names it is believed to hold."""
    facts = producer.match(request_of(build, *names), [build.endpoint(number) for number in numbers])
    return ["".join(sorted(fact.identifiers)) for fact in facts]


def joined(build, producer, *numbers):
    for number in numbers:
        producer.observe(Joined(at=0.0, endpoint=build.endpoint(number)))


def test_held_where_it_was_sent(build):
    producer = MMEmbeddingsCacheProducer()
    decide(build, producer, request_of(build, "a", "b"), 1)
    decide(build, producer, request_of(build, "b"), 2)
    assert held_by(build, producer, "a", "b", "c") == ["ab", "b", ""]


def test_a_request_without_media_matches_nothing_and_enters_nothing(build):
    producer = MMEmbeddingsCacheProducer()
    decide(build, producer, build.priced(10))
    assert producer.match(build.priced(10), [build.endpoint(1)] * 2) == [EncoderMatch(identifiers=frozenset())] * 2
    assert producer._held._caches == {}


def test_a_repeated_item_counts_once_and_weighs_its_embeddings(build):
    producer = MMEmbeddingsCacheProducer()
    decide(build, producer, request_of(build, "a", "b", "a"), 1)
    assert producer.num_embeds_of("10.0.0.1:8000") == 1800


def test_eighteen_720p_pictures_are_what_an_h200_holds(build):
    assert CACHE_SIZE_EMBEDS // 900 == 18
    producer = MMEmbeddingsCacheProducer()
    names = [chr(ord("a") + number) for number in range(19)]
    for name in names:
        decide(build, producer, request_of(build, name), 1)
    assert held_by(build, producer, *names, numbers=(1,)) == ["bcdefghijklmnopqrs"]


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({"cache_size_embeds": 1800}, "cd"),
        ({"cache_size_embeds": 1799}, "d"),
        ({"cache_size_in_mb_per_server": 6}, "bcd"),
        ({"cache_size_in_mb_per_server": 1}, "d"),
        ({"cache_size_in_mb_per_server": 2048}, "abcd"),
        ({"cache_size_in_mb_per_server": 6, "cache_size_embeds": 1800}, "cd"),
    ],
)
def test_the_size_in_embeddings_or_as_llm_d_counts(build, parameters, kept):
    producer = MMEmbeddingsCacheProducer(**parameters)
    decide(build, producer, request_of(build, *"abcd"), 1)
    assert held_by(build, producer, *"abcd", numbers=(1,)) == [kept]
    assert bool(list(producer.cautions())) == (len(parameters) == 2)


def test_matching_does_not_refresh(build):
    producer = MMEmbeddingsCacheProducer(cache_size_embeds=1800)
    decide(build, producer, request_of(build, "a", "b"), 1)
    held_by(build, producer, "a")
    decide(build, producer, request_of(build, "c"), 1)
    assert held_by(build, producer, *"abc", numbers=(1,)) == ["bc"]


@pytest.mark.parametrize(
    ("matched", "encoded"),
    [(0, "abc"), (901, "abc"), (902, "bc"), (1803, "bc"), (1804, "c"), (2705, "c"), (2706, "")],
)
def test_what_the_kv_match_covers_is_not_encoded(build, matched, encoded):
    request = request_of(build, *"abc")
    match = PrefixMatch(num_matched_tokens=matched + 50, num_total_tokens=2806, num_matched_media_tokens=matched)
    assert "".join(item.identifier for item in uncovered_items(request, match)) == encoded
    producer = MMEmbeddingsCacheProducer()
    decide(build, producer, request, 1, match=match)
    assert held_by(build, producer, *"abc", numbers=(1,)) == [encoded]


@pytest.mark.parametrize(
    ("matched", "encoded"), [(0, "abc"), (899, "abc"), (900, "bc"), (1799, "bc"), (1800, "c"), (2700, "")]
)
def test_an_exact_match_counts_no_wrappers(build, matched, encoded):
    match = PrefixMatch(
        num_matched_tokens=matched, num_total_tokens=2806, num_matched_media_tokens=matched, is_exact=True
    )
    assert "".join(item.identifier for item in uncovered_items(request_of(build, *"abc"), match)) == encoded


def test_what_the_kv_match_covers_is_not_refreshed(build):
    producer = MMEmbeddingsCacheProducer(cache_size_embeds=1800)
    decide(build, producer, request_of(build, "a"), 1)
    decide(build, producer, request_of(build, "b"), 1)
    match = PrefixMatch(num_matched_tokens=902, num_total_tokens=1002, num_matched_media_tokens=902)
    decide(build, producer, request_of(build, "a"), 1, match=match)
    decide(build, producer, request_of(build, "c"), 1)
    assert held_by(build, producer, *"abc", numbers=(1,)) == ["bc"]


def test_an_item_of_which_one_place_is_not_covered_is_encoded(build):
    match = PrefixMatch(num_matched_tokens=902, num_total_tokens=1904, num_matched_media_tokens=902)
    assert [item.index for item in uncovered_items(request_of(build, "a", "a"), match)] == [1]


def test_the_named_producers_match_is_read(build):
    producer = MMEmbeddingsCacheProducer(prefix_match_info_producer_name="precise")
    assert producer.optional_reads_of() == ((PrefixMatch, "precise"),)
    match = PrefixMatch(num_matched_tokens=902, num_total_tokens=1002, num_matched_media_tokens=902)
    decide(build, producer, request_of(build, "a"), 1, match=match)
    assert held_by(build, producer, "a", numbers=(1,)) == ["a"]


def test_an_encode_stage_encodes_whatever_kv_caches_hold(build):
    producer = MMEmbeddingsCacheProducer()
    match = PrefixMatch(num_matched_tokens=902, num_total_tokens=1002, num_matched_media_tokens=902)
    encode = build.stage([build.candidate(1, match=match)], profile="encode")
    decode = build.stage([build.candidate(2)], profile="decode")
    decision = build.decision(request_of(build, "a"), encode, decode)
    producer.record(decision)
    assert held_by(build, producer, "a") == ["a", "", ""]
    joined(build, producer, 2, 3)
    producer.settle(outcome(decision, 3))
    producer.settle(outcome(decision, 2, status=500))
    assert held_by(build, producer, "a") == ["a", "", ""]


def test_without_an_encoder_who_serves_encodes(build):
    producer = MMEmbeddingsCacheProducer()
    nobody = build.stage([build.candidate(1)], None, profile="encode")
    producer.record(build.decision(request_of(build, "a"), nobody, build.stage([build.candidate(2)], profile="decode")))
    assert held_by(build, producer, "a") == ["", "a", ""]


def test_the_fallback_that_served_holds_it_and_the_winner_does_not(build):
    producer = MMEmbeddingsCacheProducer()
    joined(build, producer, 1, 2)
    decision = decide(build, producer, request_of(build, "a"), 1, others=(2,))
    assert held_by(build, producer, "a") == ["a", "", ""]
    for _ in range(2):
        producer.settle(outcome(decision, 2))
        assert held_by(build, producer, "a") == ["", "a", ""]


def test_what_the_winner_held_before_or_was_sent_again_stays(build):
    producer = MMEmbeddingsCacheProducer()
    joined(build, producer, 1, 2)
    decision = decide(build, producer, request_of(build, "a", request_id="r1"), 1, others=(2,))
    decide(build, producer, request_of(build, "a", request_id="r2"), 1)
    producer.settle(outcome(decision, 2))
    assert held_by(build, producer, "a") == ["a", "a", ""]


@pytest.mark.parametrize(
    ("status", "ending", "held"),
    [
        (200, Ending.FINISHED, "a"),
        (None, Ending.FINISHED, "a"),
        (None, Ending.ABORTED, "a"),
        (400, Ending.FINISHED, ""),
        (503, Ending.FAILED, ""),
        (None, Ending.FAILED, ""),
    ],
)
def test_a_request_that_failed_has_encoded_nothing(build, status, ending, held):
    producer = MMEmbeddingsCacheProducer()
    decision = decide(build, producer, request_of(build, "a"), 1)
    producer.settle(outcome(decision, 1, status=status, ending=ending))
    assert held_by(build, producer, "a", numbers=(1,)) == [held]


def test_nothing_without_identity_is_ever_held(build):
    nothing = dataclasses.replace(build.item(900), item=build.media(identifier="none", reason=Reason.NO_CONTENT))
    priced = dataclasses.replace(build.priced(10), items=(nothing,))
    producer = MMEmbeddingsCacheProducer()
    decide(build, producer, priced, 1)
    decide(build, producer, request_of(build, "none"), 2)
    facts = producer.match(priced, [build.endpoint(1), build.endpoint(2)])
    assert [fact.identifiers for fact in facts] == [frozenset()] * 2
    assert held_by(build, producer, "none") == ["", "none", ""]


def test_who_left_or_started_anew_holds_nothing(build):
    producer = MMEmbeddingsCacheProducer()
    joined(build, producer, 1, 2)
    first = Scraped(at=0.0, endpoint_id="10.0.0.1:8000", load=Load(), process_start_at=5.0)
    producer.observe(first)
    for number in (1, 2):
        decide(build, producer, request_of(build, "a"), number)
    producer.observe(first)
    assert held_by(build, producer, "a", numbers=(1, 2)) == ["a", "a"]
    producer.observe(dataclasses.replace(first, process_start_at=6.0))
    producer.observe(Left(at=0.0, endpoint=build.endpoint(2)))
    assert held_by(build, producer, "a", numbers=(1, 2)) == ["", ""]


def test_ten_thousand_joins_and_leaves_leave_nothing_behind(build):
    producer = MMEmbeddingsCacheProducer()
    for number in range(10_000):
        endpoint = build.endpoint(number % 250, port=number + 1)
        producer.observe(Joined(at=0.0, endpoint=endpoint))
        priced = request_of(build, "a", request_id=f"r{number}")
        decision = build.decision(priced, build.stage([build.candidate(endpoint=endpoint)]))
        producer.record(decision)
        producer.observe(Left(at=0.0, endpoint=endpoint))
        producer.settle(dataclasses.replace(outcome(decision), endpoint=endpoint.id))
        producer.settle(dataclasses.replace(outcome(decision), endpoint="10.9.9.9:1"))
    assert producer._held._caches == {}


@settings(max_examples=50)
@given(
    sizes=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3000)), max_size=40),
    capacity=st.integers(1, 5000),
)
def test_never_over_its_bound(build, sizes, capacity):
    producer = MMEmbeddingsCacheProducer(cache_size_embeds=capacity)
    for name, num_embeds in sizes:
        decide(build, producer, request_of(build, str(name), num_embeds=num_embeds), 1)
        assert producer.num_embeds_of("10.0.0.1:8000") <= capacity
        assert held_by(build, producer, str(name), numbers=(1,)) == [str(name)]


@pytest.fixture
def router():
    """A router that looks at encoder caches alone."""
    held, ledger = MMEmbeddingsCacheProducer(), InflightLoadProducer()
    profile = Profile("default", (), ((MMEmbeddingsCacheScorer(), 1.0),), MaxScorePicker())
    scheduler = Scheduler({"default": profile}, SingleProfileHandler())
    return Router(pricer=TokenProducer(), producers=(held, ledger), scheduler=scheduler, memories=(held, ledger))


def asked(build, request_id, text, *names):
    pictures = [
        MediaItem(modality=Modality.IMAGE, format="png", identifier=name, width=1280, height=720) for name in names
    ]
    return build.request(request_id, prompts=((TextPart(num_bytes=len(text)), *pictures),))


def test_the_second_question_about_a_picture_goes_where_it_was_encoded(build, router):
    view = build.view([build.endpoint(1), build.endpoint(2)])
    for number in range(20):
        name = f"picture {number}"
        first = router.decide(asked(build, f"a{number}", "What is this?", name), view, 0.0, SeededRng(1, f"a{number}"))
        other = asked(build, f"b{number}", "Which colour has the roof?", name)
        second = router.decide(other, view, 0.0, SeededRng(1, f"b{number}"))
        winner = first.primary_stage.winner
        assert second.primary_stage.winner == winner
        stage = second.primary_stage
        row = stage.candidate_of(winner)
        assert row[EncoderMatch].identifiers == {name}
        ids = [candidate.endpoint.id for candidate in stage.candidates]
        scores = dict(zip(ids, stage.columns["mm-embeddings-cache-scorer"], strict=True))
        assert scores[winner.id] == 1.0
        assert sorted(scores.values()) == [0.0, 1.0]


def test_two_pictures_with_equal_text_share_nothing(build, router):
    view = build.view([build.endpoint(1), build.endpoint(2)])
    router.decide(asked(build, "a", "What is this?", "one"), view, 0.0, SeededRng(1, "a"))
    second = router.decide(asked(build, "b", "What is this?", "two"), view, 0.0, SeededRng(1, "b"))
    assert [c[EncoderMatch].identifiers for c in second.primary_stage.candidates] == [frozenset()] * 2
    assert second.primary_stage.columns["mm-embeddings-cache-scorer"] == (0.0, 0.0)
