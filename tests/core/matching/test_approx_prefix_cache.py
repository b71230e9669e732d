"""The belief about KV caches: matched from the start, following the engine, corrected by what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import Joined, Left, Load, PrefixMatch, Scraped
from tessera.core.matching.approx_prefix_cache import ApproxPrefixCacheProducer
from tessera.core.media.digests import text_digests
from tessera.core.parts import MediaItem, Modality, TextPart
from tessera.core.types import Candidate, Ending, Outcome, PricedRequest, Usage
from tessera.core.work import StageEnded, Work


def text(content):
    data = content.encode()
    return TextPart(num_bytes=len(data), digests=text_digests(data))


def image(name):
    return MediaItem(modality=Modality.IMAGE, format=None, identifier=name)


def ask(build, *prompts, request_id="r1", item_tokens=100, **fields):
    """A request of these prompts; a string stands for one run of text, 16 tokens for each 64 bytes."""
    made = tuple(tuple(text(part) if isinstance(part, str) else part for part in prompt) for prompt in prompts)
    media = [part for prompt in made for part in prompt if isinstance(part, MediaItem)]
    items = tuple(build.item(item_tokens, identifier=each.identifier, index=n) for n, each in enumerate(media))
    num_bytes = sum(part.num_bytes for prompt in made for part in prompt if isinstance(part, TextPart))
    request = build.request(request_id, prompts=made, **fields)
    return PricedRequest(request=request, items=items, num_text_tokens=num_bytes // 4)


def decide(build, producer, priced, number=1, *, load=None, profile="default", extra=(), **fields):
    """Match, let endpoint ``number`` win, record."""
    candidates = []
    endpoints = [build.endpoint(number), build.endpoint(number + 100)]
    for endpoint, match in zip(endpoints, producer.match(priced, endpoints), strict=True):
        facts = {(Load, Load.producer): load or Load(), (PrefixMatch, producer.name): match}
        candidates.append(Candidate(endpoint, facts))
    stages = (*extra, build.stage(candidates, profile=profile))
    decision = build.decision(priced, *stages, **fields)
    producer.record(decision)
    return decision


def finish(producer, decision, *, usage=None, endpoint=None, ending=Ending.FINISHED):
    outcome = Outcome(
        request_id=decision.request.request_id,
        ending=ending,
        decision=decision,
        usage=usage,
        endpoint=endpoint,
        finished_at=1.0,
    )
    assert producer.settle(outcome) == ()


def matched(build, producer, priced, number=1):
    return producer.match(priced, [build.endpoint(number)])[0].num_matched_tokens


def scraped(build, number=1, **fields):
    return Scraped(at=1.0, endpoint_id=build.endpoint(number).id, load=Load(), **fields)


A, B, C, D = ("a" * 64, "b" * 64, "c" * 64, "d" * 64)


def test_an_exact_repeat_matches_whole_and_others_their_common_prefix(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, [A, image("x"), B]))
    (here, there) = producer.match(ask(build, [A, image("x"), B]), [build.endpoint(1), build.endpoint(2)])
    assert here == PrefixMatch(
        num_matched_tokens=132, num_total_tokens=132, num_matched_text_tokens=32, num_matched_media_tokens=100
    )
    assert there == PrefixMatch(num_matched_tokens=0, num_total_tokens=132)
    assert matched(build, producer, ask(build, [A, image("x"), C])) == 116
    assert matched(build, producer, ask(build, [A, image("y"), B])) == 16
    assert matched(build, producer, ask(build, [B, A])) == 0
    assert matched(build, producer, ask(build, [A, image("x"), B], cache_salt="s")) == 0


def test_a_match_counts_in_the_tokens_of_who_asks(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, [image("x"), A]))
    assert matched(build, producer, ask(build, [image("x"), B], item_tokens=70)) == 70


@pytest.mark.parametrize(
    ("unit", "num_common", "num_matched"),
    [("engineBlocks", 15, 0), ("engineBlocks", 16, 16), ("indexBlocks", 63, 0), ("indexBlocks", 64, 64)],
)
def test_less_than_a_block_in_common_is_nothing(build, unit, num_common, num_matched):
    producer = ApproxPrefixCacheProducer(capacity_unit=unit)
    common = "u" * 4 * num_common
    decide(build, producer, ask(build, [common, image("x")]))
    (match,) = producer.match(ask(build, [common, image("y")]), [build.endpoint(1)])
    assert match == PrefixMatch(
        num_matched_tokens=num_matched, num_total_tokens=num_common + 100, num_matched_text_tokens=num_matched
    )


def test_several_prompts_are_summed(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, [A], [B]))
    (match,) = producer.match(ask(build, [A, C], [B], [D]), [build.endpoint(1)])
    assert (match.num_matched_tokens, match.num_total_tokens) == (32, 64)


@given(runs=st.lists(st.text(max_size=200) | st.sampled_from("xyz").map(image), min_size=1, max_size=8))
def test_an_exact_repeat_is_whole_whatever_the_prompt(build, runs):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, runs)
    decide(build, producer, priced)
    (match,) = producer.match(ask(build, runs, request_id="r2"), [build.endpoint(1)])
    assert match.num_matched_tokens == match.num_total_tokens
    assert match.num_total_tokens in (priced.num_prompt_tokens, 0)


def test_the_winners_of_the_primary_stage_and_of_prefill_hold_it(build):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A])
    extra = [build.stage([build.candidate(number)], profile=name) for number, name in ((5, "prefill"), (6, "encode"))]
    decide(build, producer, priced, 1, profile="decode", extra=extra)
    assert [matched(build, producer, priced, number) for number in (1, 5, 6, 101)] == [16, 16, 0, 0]


def test_asking_remembers_nothing(build):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A])
    for _ in range(2):
        assert matched(build, producer, priced) == 0
    assert len(producer._index) == 0


def test_a_long_prompt_is_cut_and_a_repeat_of_it_is_whole(build):
    producer = ApproxPrefixCacheProducer(max_prefix_tokens_to_match=40)
    priced = ask(build, [A, B, C])
    decide(build, producer, priced)
    (match,) = producer.match(priced, [build.endpoint(1)])
    assert (match.num_matched_tokens, match.num_total_tokens, priced.num_prompt_tokens) == (32, 32, 48)


@pytest.mark.parametrize(
    ("limits", "total"),
    [
        ({"max_prefix_blocks_to_match": 1}, 64),
        ({"max_prefix_blocks_to_match": 0}, 160),
        ({"block_size_tokens": 0}, 160),
    ],
)
def test_without_a_token_limit_blocks_say_it(build, limits, total):
    producer = ApproxPrefixCacheProducer(max_prefix_tokens_to_match=0, **limits)
    assert producer.match(ask(build, ["x" * 640]), [build.endpoint(1)])[0].num_total_tokens == total


LOAD = Load(num_blocks=10, block_size=32, num_cache_tokens=300, at=0.0)


@pytest.mark.parametrize(
    ("parameters", "load", "capacity"),
    [
        ({}, LOAD, 300),
        ({}, Load(num_blocks=10, block_size=32), 320),
        ({}, Load(num_blocks=10), 160),
        ({}, Load(), 31_250 * 16),
        ({"lru_capacity_per_server": 7, "block_size_tokens": 8}, Load(), 56),
        ({"auto_tune": False, "lru_capacity_per_server": 7}, LOAD, 112),
        ({"capacity_unit": "indexBlocks"}, LOAD, 640),
        ({"capacity_unit": "indexBlocks"}, Load(num_blocks=10, block_size=128), 1280),
        ({"capacity_unit": "indexBlocks"}, Load(), 31_250 * 64),
        ({"capacity_unit": "indexBlocks", "lru_capacity_per_server": 7}, Load(num_cache_tokens=5), 448),
        ({"capacity_unit": "indexBlocks", "auto_tune": False, "lru_capacity_per_server": 7}, LOAD, 448),
        ({}, Load(num_cache_tokens=1 << 53), 1 << 26),
    ],
)
def test_both_units_of_capacity(build, parameters, load, capacity):
    producer = ApproxPrefixCacheProducer(**parameters)
    decide(build, producer, ask(build, [A]), load=load)
    assert producer._engines[build.endpoint(1).id].capacity == capacity


def test_eviction_is_by_tokens_the_oldest_first_and_the_tail_before_the_head(build):
    producer = ApproxPrefixCacheProducer()
    load = Load(num_cache_tokens=64)
    first, second = ask(build, [A, B]), ask(build, [C])
    for priced in (first, second, ask(build, [D, D])):
        decide(build, producer, priced, load=load)
    assert [matched(build, producer, priced) for priced in (first, second)] == [16, 16]
    # A page too old to be believed does not make the cache larger.
    decide(build, producer, ask(build, [D, D, D]), load=Load())
    assert [matched(build, producer, priced) for priced in (first, second)] == [0, 16]


def test_the_answer_takes_room_and_matches_nothing(build):
    producer = ApproxPrefixCacheProducer()
    first, second = ask(build, [A]), ask(build, [B])
    load = Load(num_cache_tokens=64)
    decide(build, producer, first, load=load)
    decision = decide(build, producer, second, load=load)
    finish(producer, decision, usage=Usage(prompt_tokens=16, completion_tokens=40))
    assert [matched(build, producer, priced) for priced in (first, second)] == [0, 16]
    assert producer._index.num_tokens(build.endpoint(1).id) == 56


def test_another_process_clears_and_a_page_that_does_not_say_it_does_not(build):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A])
    producer.observe(Joined(at=0.0, endpoint=build.endpoint(1)))
    producer.observe(scraped(build, process_start_at=100.0, num_first_tokens=7))
    decide(build, producer, priced)
    decide(build, producer, priced, 2)
    for event in ({}, {"process_start_at": 100.0}, {"num_first_tokens": 7}, {"num_first_tokens": 9}):
        producer.observe(scraped(build, **event))
        assert matched(build, producer, priced) == 16
    producer.observe(scraped(build, process_start_at=101.0, num_first_tokens=9))
    assert [matched(build, producer, priced, number) for number in (1, 2)] == [0, 16]
    decide(build, producer, priced)
    producer.observe(scraped(build, process_start_at=101.0, num_first_tokens=8))
    assert matched(build, producer, priced) == 0


def test_ten_thousand_joins_and_leaves_leave_nothing(build):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A, image("x")])
    endpoint = build.endpoint(1)
    for _ in range(10_000):
        producer.observe(Joined(at=0.0, endpoint=endpoint))
        producer.observe(scraped(build, process_start_at=1.0))
        producer.observe(Left(at=0.0, endpoint=endpoint))
        producer.observe(scraped(build, process_start_at=2.0))
    decision = decide(build, producer, priced)
    producer.observe(Left(at=0.0, endpoint=endpoint))
    finish(producer, decision, usage=Usage(prompt_tokens=116, completion_tokens=9, cached_tokens=0))
    assert (len(producer._index), producer._index.num_keys, producer._engines) == (0, 0, {})


def test_cached_tokens_drop_what_was_believed_beyond_them(build):
    producer = ApproxPrefixCacheProducer()
    runs = [letter * 64 for letter in "abcdefgh"]
    decide(build, producer, ask(build, runs))
    decision = decide(build, producer, ask(build, [*runs, "z" * 64], request_id="r2"))
    # 288 of the engine's tokens for our 144: 32 of them are 16 of ours, and two blocks are allowed.
    finish(producer, decision, usage=Usage(prompt_tokens=288, cached_tokens=32))
    assert matched(build, producer, ask(build, runs)) == 32


def test_what_a_later_request_entered_again_is_not_dropped(build):
    producer = ApproxPrefixCacheProducer()
    runs = [letter * 64 for letter in "abcdefgh"]
    decide(build, producer, ask(build, runs), at=0.0)
    denied = decide(build, producer, ask(build, runs, request_id="r2"), at=1.0)
    decide(build, producer, ask(build, runs[:6], request_id="r3"), at=2.0)
    finish(producer, denied, usage=Usage(prompt_tokens=128, cached_tokens=0))
    assert matched(build, producer, ask(build, runs)) == 96


@pytest.mark.parametrize("cached", [None, 96, 112, 144])
def test_a_belief_that_is_near_enough_stays(build, cached):
    producer = ApproxPrefixCacheProducer()
    runs = [letter * 64 for letter in "abcdefgh"]
    decide(build, producer, ask(build, runs))
    decision = decide(build, producer, ask(build, [*runs, "z" * 64], request_id="r2"))
    finish(producer, decision, usage=Usage(prompt_tokens=144, cached_tokens=cached))
    assert matched(build, producer, ask(build, [*runs, "z" * 64])) == 144


def test_of_several_prompts_and_of_a_prompt_computed_elsewhere_nothing_is_dropped(build):
    for prompts, names in (([["a" * 640], ["b" * 640]], ["default"]), ([["a" * 640]], ["prefill", "decode"])):
        producer = ApproxPrefixCacheProducer()
        extra = [build.stage([build.candidate(5)], profile=name) for name in names[:-1]]
        for request_id in ("r1", "r2"):
            priced = ask(build, *prompts, request_id=request_id)
            decision = decide(build, producer, priced, extra=extra, profile=names[-1])
        finish(producer, decision, usage=Usage(prompt_tokens=priced.num_prompt_tokens, cached_tokens=0))
        assert matched(build, producer, priced) == priced.num_prompt_tokens


def test_more_cached_tokens_than_the_prompt_has_deny_nothing(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, ["x" * 640]))
    decision = decide(build, producer, ask(build, ["x" * 640], request_id="r2"))
    finish(producer, decision, usage=Usage(prompt_tokens=160, cached_tokens=1000))
    assert matched(build, producer, ask(build, ["x" * 640])) == 160


def test_a_first_prompt_has_nothing_to_be_denied(build):
    producer = ApproxPrefixCacheProducer()
    decision = decide(build, producer, ask(build, ["x" * 6400]))
    finish(producer, decision, usage=Usage(prompt_tokens=1600, cached_tokens=0))
    assert matched(build, producer, ask(build, ["x" * 6400])) == 1600


def test_a_media_item_that_weighs_otherwise_in_the_engine_is_not_denied(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, [image("x"), A], item_tokens=900))
    decision = decide(build, producer, ask(build, [image("x"), "q" * 4000], item_tokens=900))
    finish(producer, decision, usage=Usage(prompt_tokens=1225, cached_tokens=224))
    assert matched(build, producer, ask(build, [image("x"), "q" * 4000], item_tokens=900)) == 1900


def test_whoever_served_instead_of_the_winner_holds_it_too(build):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A])
    producer.observe(Joined(at=0.0, endpoint=build.endpoint(7)))
    decision = decide(build, producer, priced)
    finish(producer, decision, usage=Usage(prompt_tokens=16, completion_tokens=3), endpoint=build.endpoint(7).id)
    assert matched(build, producer, priced, 7) == 16
    assert producer._index.num_tokens(build.endpoint(7).id) == 19
    assert producer._index.num_tokens(build.endpoint(1).id) == 16


@pytest.mark.parametrize("ending", [Ending.FAILED, Ending.ABORTED])
def test_a_request_that_did_not_finish_says_nothing(build, ending):
    producer = ApproxPrefixCacheProducer()
    priced = ask(build, [A])
    decision = decide(build, producer, priced)
    finish(producer, decision, ending=ending, usage=Usage(prompt_tokens=16, completion_tokens=9, cached_tokens=0))
    assert producer._index.num_tokens(build.endpoint(1).id) == 16


def test_no_block_size_is_a_problem_only_without_auto_tune():
    assert list(ApproxPrefixCacheProducer(block_size_tokens=0).check()) == []
    assert [key for key, _ in ApproxPrefixCacheProducer(block_size_tokens=0, auto_tune=False).check()] == [
        "blockSizeTokens"
    ]


def test_closing_forgets(build):
    producer = ApproxPrefixCacheProducer()
    decide(build, producer, ask(build, [A]))
    producer.close()
    assert matched(build, producer, ask(build, [A])) == 0


@pytest.mark.parametrize(("status", "held"), [(None, [640, 640, 0]), (200, [640, 640, 0]), (500, [640, 0, 0])])
def test_the_kv_of_a_prefill_apart_goes_to_both_unless_it_failed(build, status, held):
    producer = ApproxPrefixCacheProducer()
    rows = [build.candidate(number) for number in (1, 2, 3)]
    stages = (build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill"), build.stage(rows, 2, "encode"))
    request = ask(build, "x" * 2560)
    decision = build.decision(request, *stages, primary="decode")
    producer.record(decision)
    event = StageEnded(
        at=1.0, request_id="r1", stage=Work.PREFILL, endpoint_id=rows[1].endpoint.id, status=status or 0, seconds=1.0
    )
    told = () if status is None else (event,)
    usage = Usage(prompt_tokens=640, completion_tokens=0, cached_tokens=0)
    producer.settle(
        Outcome(
            request_id="r1",
            ending=Ending.FINISHED,
            decision=decision,
            usage=usage,
            finished_at=2.0,
            stages=told,
        )
    )
    facts = producer.match(request, [row.endpoint for row in rows])
    assert [fact.num_matched_tokens for fact in facts] == held
