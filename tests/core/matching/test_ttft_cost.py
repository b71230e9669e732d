"""Predicted seconds to the first token, worked out by hand, and what is queued where."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import EncoderMatch, FirstToken, FirstTokenCost, Left, Load, PrefixMatch, ProcessorMatch
from tessera.core.matching.first_token import predicted_first_token_at
from tessera.core.matching.ttft_cost import SpeedMode, TTFTCostProducer
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome, Usage
from tessera.core.work import EncodePlan, StageEnded, Work

ROUND = {
    "prefill_tokens_per_s": 10_000.0,
    "encode_s_per_item": 0.001,
    "encode_s_per_embed": 1e-5,
    "encode_s_per_embed_squared": 1e-8,
    "processing_s_per_megapixel": 0.05,
    "fixed_s": 0.1,
}
"""Rates to count with in one's head: 1,000 embeddings take 1 + 10 + 10 ms, a megapixel 50 ms."""

APPLYING = {**ROUND, "learning": SpeedMode(mode="apply")}


def picture(build, name, index=0, *, num=1000, width=1000, height=1000, **fields):
    item = build.media(identifier=name, width=width, height=height, **fields)
    return dataclasses.replace(build.item(num, identifier=name, index=index), item=item)


def request_of(build, *names, text=2000, request_id="r1"):
    return build.priced(text, [picture(build, name, index) for index, name in enumerate(names)], request_id=request_id)


def candidate(build, number=1, *, kv=0, kv_media=0, encoder=(), processor=()):
    match = PrefixMatch(num_matched_tokens=kv, num_total_tokens=4000, num_matched_media_tokens=kv_media)
    facts = {
        PrefixMatch: match,
        EncoderMatch: EncoderMatch(identifiers=frozenset(encoder)),
        ProcessorMatch: ProcessorMatch(identifiers=frozenset(processor)),
    }
    return Candidate(build.endpoint(number), {(kind, kind.producer): fact for kind, fact in facts.items()})


def decide(build, producer, priced, number=1):
    """A decision for that endpoint, whose caches are empty."""
    row = candidate(build, number)
    (cost,) = producer.derive(priced, [row])
    made = Candidate(row.endpoint, {**row.facts, (FirstTokenCost, producer.name): cost})
    decision = build.decision(priced, build.stage([made]))
    producer.record(decision)
    return decision


def first_token(request_id):
    return FirstToken(at=1.0, request_id=request_id, source=FirstTokenSource.BODY)


def ended(decision, ending=Ending.FINISHED):
    return Outcome(request_id=decision.request.request_id, ending=ending, decision=decision, finished_at=2.0)


@pytest.mark.parametrize(
    ("held", "prefill", "encode", "processing"),
    [
        ({}, 0.4, 0.042, 0.1),
        ({"encoder": "a"}, 0.4, 0.021, 0.1),
        ({"processor": "ab"}, 0.4, 0.042, 0.0),
        ({"kv": 1000, "kv_media": 1000}, 0.3, 0.021, 0.1),
        ({"kv": 1000, "kv_media": 1000, "encoder": "a"}, 0.3, 0.021, 0.1),
        ({"kv": 3999, "kv_media": 1999, "processor": "b"}, 0.0001, 0.021, 0.05),
        ({"kv": 4000, "kv_media": 2000, "processor": "ab"}, 0.0, 0.0, 0.0),
    ],
)
def test_text_and_media_work_by_what_each_cache_holds(build, held, prefill, encode, processing):
    """Two pictures of 1,000 tokens and 2,000 of text: 0.4 s of prefill, 42 ms of encoding, 100 ms of preparing."""
    producer = TTFTCostProducer(**ROUND)
    (cost,) = producer.derive(request_of(build, "a", "b"), [candidate(build, **held)])
    assert (cost.prefill_s, cost.encode_s, cost.processing_s) == pytest.approx((prefill, encode, processing))
    assert cost.queued_s == 0.0
    assert cost.own_s == pytest.approx(prefill + encode + processing)
    assert cost.ttft_s == pytest.approx(0.1 + prefill + encode + processing)


def test_a_picture_that_stands_twice_is_encoded_once(build):
    (cost,) = TTFTCostProducer(**ROUND).match(request_of(build, "a", "a"), [build.endpoint()])
    assert (cost.encode_s, cost.processing_s, cost.prefill_s) == pytest.approx((0.021, 0.05, 0.4))


def test_an_item_of_unknown_size_has_1024_pixels_an_embedding_and_a_clip_all_its_frames(build):
    producer = TTFTCostProducer(**ROUND)
    assert producer.rates.processing_s(picture(build, "a", width=None, height=None)) == pytest.approx(0.05 * 1.024)
    assert producer.rates.processing_s(picture(build, "a", num_frames=8)) == pytest.approx(0.05 * 8)


def test_the_defaults_are_those_of_the_fit(build):
    producer = TTFTCostProducer()
    small = picture(build, "a", num=900, width=1280, height=720)
    assert (
        producer.rates.encode_s(small)
        == pytest.approx(0.003 + 900 * 10.1e-6 + 900 * 900 * 5.5e-9)
        == pytest.approx(0.0165, abs=1e-4)
    )
    assert producer.rates.processing_s(small) == pytest.approx(0.027, abs=1e-4)
    (cost,) = producer.match(build.priced(18_500), [build.endpoint()])
    assert cost.ttft_s == pytest.approx(1.06)


def test_own_work_is_queued_until_the_first_token(build):
    producer = TTFTCostProducer(**ROUND)
    for name in ("r1", "r2"):
        decide(build, producer, build.priced(1000, request_id=name))
    one, other = producer.match(build.priced(500), [build.endpoint(1), build.endpoint(2)])
    assert (one.queued_s, one.ttft_s) == pytest.approx((0.2, 0.1 + 0.2 + 0.05))
    assert other.queued_s == 0.0
    assert (one.num_waiting, other.num_waiting) == (2, 0)
    producer.observe(first_token("r1"))
    producer.observe(first_token("r1"))
    assert producer.match(build.priced(500), [build.endpoint(1)])[0].num_waiting == 1
    assert producer.queued_s("10.0.0.1:8000") == pytest.approx(0.1)


@pytest.mark.parametrize(("waiting", "queued"), [(None, 0.3), (0, 0.3), (3, 0.3), (4, 0.4), (6, 0.6)])
def test_what_others_have_waiting_counts_as_our_median_request(build, waiting, queued):
    """Three of ours take 0.1 s each; the fourth that waits is not ours."""
    producer = TTFTCostProducer(**ROUND)
    for name, tokens in (("r1", 1000), ("r2", 1000), ("r3", 1000)):
        decide(build, producer, build.priced(tokens, request_id=name))
    row = candidate(build)
    row = Candidate(row.endpoint, {**row.facts, (Load, Load.producer): Load(num_waiting=waiting, at=0.0)})
    (cost,) = producer.derive(build.priced(500), [row])
    assert cost.queued_s == pytest.approx(queued)
    assert cost.num_waiting == max(3, waiting or 0)


def test_who_does_not_answer_its_scrape_is_taken_to_be_as_busy_as_the_worst_of_the_others(build):
    producer = TTFTCostProducer(prefill_tokens_per_s=10_000, fixed_s=0)
    priced = request_of(build, text=2000)
    silent, idle, busy = (candidate(build, number) for number in (1, 2, 3))
    decide(build, producer, priced, number=3)
    assert [each.queued_s for each in producer.derive(priced, [silent, idle, busy])] == [0, 0, 0.2]

    def answering(row):
        return Candidate(row.endpoint, {**row.facts, (Load, Load.producer): Load(num_waiting=0, at=0.0)})

    table = [silent, answering(idle), answering(busy)]
    assert [each.queued_s for each in producer.derive(priced, table)] == [0.2, 0, 0.2]


def test_what_never_had_a_first_token_is_given_back_at_the_end(build):
    producer = TTFTCostProducer(**ROUND)
    decisions = [decide(build, producer, build.priced(1000, request_id=name)) for name in ("r1", "r2")]
    producer.observe(Left(at=0.5, endpoint=build.endpoint(1)))
    producer.settle(ended(decisions[0], Ending.FAILED))
    assert producer.queued_s("10.0.0.1:8000") == pytest.approx(0.1)
    for _ in range(2):
        producer.settle(ended(decisions[1]))
    assert (producer._accounts, producer._charges) == ({}, {})


def test_the_first_token_is_predicted_by_the_cost(build):
    producer = TTFTCostProducer(**ROUND)
    decision = decide(build, producer, build.priced(1000, request_id="r1"))
    assert predicted_first_token_at(dataclasses.replace(decision, at=5.0)) == pytest.approx(5.2)


def test_the_named_producers_match_is_read(build):
    producer = TTFTCostProducer(**ROUND, prefix_match_info_producer_name="precise")
    assert (PrefixMatch, "precise") in producer.reads_of()
    match = PrefixMatch(num_matched_tokens=1000, num_total_tokens=2000, num_matched_media_tokens=1000)
    (cost,) = producer.derive(
        request_of(build, "a", text=1000), [Candidate(build.endpoint(), {(PrefixMatch, "precise"): match})]
    )
    assert (cost.prefill_s, cost.encode_s) == (0.1, 0.0)


@given(steps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 5000), st.booleans()), max_size=30))
def test_nothing_is_left_when_all_is_over(build, steps):
    producer = TTFTCostProducer(**ROUND)
    decisions = []
    for serial, (number, tokens, has_first) in enumerate(steps):
        decisions.append(decide(build, producer, build.priced(tokens, request_id=f"r{serial}"), number))
        if has_first:
            producer.observe(first_token(f"r{serial}"))
        assert all(producer.queued_s(f"10.0.0.{each}:8000") >= 0.0 for each in (1, 2, 3))
    assert len(producer._charges) == len(steps)
    for decision in decisions:
        producer.settle(ended(decision))
    assert (producer._accounts, producer._charges) == ({}, {})


@given(kv=st.integers(0, 3000), more=st.integers(0, 1000), holds=st.booleans())
def test_what_a_cache_holds_never_makes_an_endpoint_slower(build, kv, more, holds):
    producer, request = TTFTCostProducer(**ROUND), request_of(build, "a", "b")
    names = "ab" if holds else ""
    less = candidate(build, kv=kv, kv_media=min(kv, 2000))
    holder = candidate(build, kv=kv + more, kv_media=min(kv + more, 2000), encoder=names, processor=names)
    without, with_it = producer.derive(request, [less, holder])
    assert with_it.ttft_s <= without.ttft_s


def answered(build, producer, serial, *, tokens, ttft_s, names=(), usage=None, label=None, row=None, **fields):
    """A request that had endpoint 1 to itself and whose first token came after ``ttft_s``."""
    endpoint = build.endpoint(1, **({"gpu": label} if label else {}))
    items = [picture(build, name, index) for index, name in enumerate(names)]
    priced = build.priced(tokens, items, request_id=f"s{serial}")
    row = Candidate(endpoint, (row or candidate(build)).facts)
    (cost,) = producer.derive(priced, [row])
    made = Candidate(endpoint, {**row.facts, (FirstTokenCost, producer.name): cost})
    decision = build.decision(priced, build.stage([made]), at=7.0)
    producer.record(decision)
    seen = {"first_token_at": 7.0 + ttft_s, "first_token_source": FirstTokenSource.BODY}
    producer.settle(dataclasses.replace(ended(decision), usage=usage, **(seen | fields)))


def teach(build, producer, *, number=40, tokens_per_s=5000.0, label=None, **fields):
    """Prompts of 1,000 to 4,900 tokens, at half the configured speed and 0.2 s fixed."""
    for serial in range(number):
        tokens = 1000 + 100 * serial
        answered(build, producer, serial, tokens=tokens, ttft_s=0.2 + tokens / tokens_per_s, label=label, **fields)


def ttft_of(build, producer, tokens=1000, **labels):
    (cost,) = producer.match(build.priced(tokens), [build.endpoint(1, **labels)])
    return cost.ttft_s


@pytest.mark.parametrize(("mode", "ttft"), [("apply", 0.4), ("observe", 0.2), ("disabled", 0.2)])
def test_learned_rates_replace_the_configured_ones_where_they_are_applied(build, mode, ttft):
    producer = TTFTCostProducer(**ROUND, learning=SpeedMode(mode=mode))
    teach(build, producer)
    assert ttft_of(build, producer) == pytest.approx(ttft)
    known = [(group, speed.prefill_factor) for group, speed, _ in producer.speeds()]
    assert known == ([] if mode == "disabled" else [("", pytest.approx(2.0))])
    assert len(producer._alone) == 0


def test_what_is_learned_is_only_shown_by_default(build):
    assert TTFTCostProducer().learning.mode == "observe"


def test_groups_by_label_are_learned_apart(build):
    producer = TTFTCostProducer(**ROUND, learning=SpeedMode(mode="apply", group_label="gpu"))
    teach(build, producer, label="slow")
    assert ttft_of(build, producer, gpu="slow") == pytest.approx(0.4)
    assert ttft_of(build, producer, gpu="fast") == ttft_of(build, producer) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "fields",
    [
        {"first_token_source": FirstTokenSource.PREDICTED},
        {"ending": Ending.ABORTED},
        {"endpoint": "10.0.0.9:8000"},
        {"status": 503},
    ],
)
def test_a_first_token_that_was_not_seen_or_not_the_winners_teaches_nothing(build, fields):
    producer = TTFTCostProducer(**APPLYING)
    teach(build, producer, **fields)
    assert ttft_of(build, producer) == pytest.approx(0.2)


def test_a_request_that_was_not_alone_teaches_nothing(build):
    producer = TTFTCostProducer(**APPLYING)
    decide(build, producer, build.priced(10, request_id="other"))
    teach(build, producer)
    assert list(producer.speeds()) == []
    assert ttft_of(build, producer) == pytest.approx(0.1 + 0.001 + 0.1)


def test_the_engines_count_of_computed_tokens_is_learned_from(build):
    """Believed wholly uncached; the engine had half of it, and took 0.1 ms for each other token as configured."""
    producer = TTFTCostProducer(**APPLYING)
    for serial in range(40):
        tokens = 1000 + 100 * serial
        usage = Usage(prompt_tokens=tokens, cached_tokens=tokens // 2)
        answered(build, producer, serial, tokens=tokens, ttft_s=0.1 + tokens / 2 * 1e-4, usage=usage)
    assert ttft_of(build, producer) == pytest.approx(0.2)
    for serial in range(200):
        tokens = 1000 + 100 * (serial % 40)
        # By usage twice as many tokens as priced, in twice the time.
        usage = Usage(prompt_tokens=2 * tokens)
        answered(build, producer, serial + 40, tokens=tokens, ttft_s=0.1 + 2 * tokens * 1e-4, usage=usage)
    assert ttft_of(build, producer) == pytest.approx(0.2)


@pytest.mark.parametrize(("cached", "factor"), [(None, 3.0), (0, 3.0), (64, 3.0), (65, 1.0)])
def test_media_is_learned_unless_the_engine_denies_what_it_held(build, cached, factor):
    """Media work of 0.071 s by configuration takes three times as long."""
    producer = TTFTCostProducer(**APPLYING)
    teach(build, producer, tokens_per_s=10_000.0)
    for serial in range(40, 80):
        computed = 2000 - (cached or 0)
        answered(
            build,
            producer,
            serial,
            tokens=1000,
            names=("a",),
            ttft_s=0.2 + computed * 1e-4 + 3 * 0.071,
            usage=Usage(prompt_tokens=2000, cached_tokens=cached),
        )
    (cost,) = producer.match(request_of(build, "a"), [build.endpoint()])
    assert cost.encode_s + cost.processing_s == pytest.approx(0.071 * factor)


def test_what_the_encoder_cache_spares_is_told_and_not_counted(build):
    producer = TTFTCostProducer(**APPLYING)
    held = {"encoder": "a", "processor": "ab"}
    (cost,) = producer.derive(request_of(build, "a", "b"), [candidate(build, **held)])
    assert (cost.held_encode_s, cost.encode_s) == pytest.approx((0.021, 0.021))
    assert cost.ttft_s == pytest.approx(0.1 + 0.4 + 0.021)
    covered = candidate(build, kv=1000, kv_media=1000, **held)
    (cost,) = producer.derive(request_of(build, "a", "b"), [covered])
    assert cost.held_encode_s == 0.0


def apart(build, producer, *, encoder=(), encodes=None):
    """A request of two pictures whose stages run on endpoints 1 (decode), 2 (prefill) and 3 (encode)."""
    rows = [candidate(build, 1), candidate(build, 2, kv=1000), candidate(build, 3, encoder=encoder)]
    priced = request_of(build, "a", "b")
    costs = producer.derive(priced, rows)
    rows = [
        Candidate(row.endpoint, {**row.facts, (FirstTokenCost, producer.name): cost})
        for row, cost in zip(rows, costs, strict=True)
    ]
    encode = build.stage(rows, 2, "encode", **({"encodes": encodes} if encodes else {}))
    stages = (build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill"), encode)
    decision = build.decision(priced, *stages, primary="decode")
    producer.record(decision)
    return decision


def queued(producer):
    return [pytest.approx(producer.queued_s(f"10.0.0.{number}:8000")) for number in (1, 2, 3)]


def test_each_stage_has_its_own_work_ahead(build):
    producer = TTFTCostProducer(**ROUND)
    decision = apart(build, producer)
    # 4,000 tokens less 1,000; both pictures prepared on both, encoded on the third alone.
    assert queued(producer) == [0.0, 0.3 + 0.1, 0.042 + 0.1]
    # Fixed and what the prompt's computing takes, behind the encoder's.
    assert predicted_first_token_at(decision) == pytest.approx(0.1 + 0.4 + 0.142)
    for stage, number, left in ((Work.ENCODE, 3, [0.0, 0.4, 0.0]), (Work.PREFILL, 2, [0.0, 0.0, 0.0])):
        producer.observe(
            StageEnded(
                at=1.0, request_id="r1", stage=stage, endpoint_id=f"10.0.0.{number}:8000", status=200, seconds=0.1
            )
        )
        assert queued(producer) == left
    producer.settle(ended(decision))
    assert producer._accounts == {}


def test_an_item_that_stays_is_encoded_where_the_prompt_is_computed(build):
    producer = TTFTCostProducer(**ROUND)
    decision = apart(build, producer, encodes=EncodePlan({"a": "10.0.0.3:8000"}, is_told=True))
    assert queued(producer) == [0.0, 0.3 + 0.1 + 0.021, 0.021 + 0.05]
    producer.observe(first_token("r1"))
    assert queued(producer) == [0.0, 0.0, 0.0]
    producer.settle(ended(decision))


def test_an_encoder_that_holds_an_item_has_no_work_with_it(build):
    producer = TTFTCostProducer(**ROUND)
    apart(build, producer, encoder=("a",))
    assert queued(producer) == [0.0, 0.4, 0.021 + 0.05]
