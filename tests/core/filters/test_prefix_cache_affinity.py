"""The affinity gate's truth table, and what it says of itself."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.facts import InFlightLoad, PrefixMatch
from tessera.core.filters.prefix_cache_affinity import NUM_WATCHED, PrefixCacheAffinityFilter
from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.matching.approx_prefix_cache import ApproxPrefixCacheProducer
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.media.digests import text_digests
from tessera.core.parts import TextPart
from tessera.core.pickers.max_score import MaxScorePicker
from tessera.core.pricing.token import TokenProducer
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.scheduler import Profile, Scheduler
from tessera.core.types import Candidate, Ending, Outcome

RNG = SeededRng(1, "r")


def rows(build, *cells):
    """One candidate for each (matched of 100 tokens, tokens in flight)."""
    return [
        build.candidate(
            number,
            match=PrefixMatch(num_matched_tokens=matched, num_total_tokens=100),
            in_flight=InFlightLoad(num_uncached_tokens=tokens),
        )
        for number, (matched, tokens) in enumerate(cells, 1)
    ]


def kept(gate, candidates, request=None, rng=RNG):
    return [candidates.index(each) for each in gate.keep(request, candidates, rng)]


def text(gate, candidates, rng=RNG):
    note = gate.explain(None, candidates, gate.keep(None, candidates, rng))
    return note and note.text


SECOND = 10_000


def by_the_book(cells, threshold, penalty_ms):
    """The rule as llm-d's documentation lists it, chance left out."""
    everybody = list(range(len(cells)))
    if len(cells) <= 1 or threshold <= 0:
        return everybody
    sticky = [i for i in everybody if cells[i][0] / 100 >= threshold]
    rest = [i for i in everybody if i not in sticky]
    if not sticky:
        return everybody
    if penalty_ms > 0 and rest:
        times = [tokens * 1000 / SECOND for _, tokens in cells]
        if min(times[i] for i in sticky) - min(times[i] for i in rest) > penalty_ms:
            return everybody
    return sticky


@settings(max_examples=200)
@given(
    cells=st.lists(st.tuples(st.sampled_from([0, 40, 59, 60, 80, 100]), st.sampled_from([0, 1, 5, 20, 21]))),
    threshold=st.sampled_from([-1.0, 0.0, 0.4, 0.6, 0.8, 1.0]),
    penalty_ms=st.sampled_from([0, 1000, 2000, 20_000]),
)
def test_the_rule_on_any_table(build, cells, threshold, penalty_ms):
    cells = [(matched, seconds * SECOND) for matched, seconds in cells]
    gate = PrefixCacheAffinityFilter(
        affinity_threshold=threshold, max_ttft_penalty_ms=penalty_ms, peak_prefill_throughput=SECOND
    )
    assert kept(gate, rows(build, *cells)) == by_the_book(cells, threshold, penalty_ms)


@pytest.mark.parametrize(
    ("parameters", "cells", "expected"),
    [
        # nobody to choose from, or one
        ({}, [], []),
        ({}, [(0, 0)], [0]),
        # who holds enough is kept, in order; the threshold itself is enough
        ({}, [(80, 0), (79, 0), (100, 0)], [0, 2]),
        ({}, [(79, 0), (50, 0)], [0, 1]),
        ({}, [(80, 0), (80, 0)], [0, 1]),
        ({"affinity_threshold": 0.6}, [(60, 0), (59, 0)], [0]),
        ({"affinity_threshold": 1.0}, [(100, 0), (99, 0)], [0]),
        # a threshold of 0 or less is no gate
        ({"affinity_threshold": 0.0}, [(100, 0), (0, 0)], [0, 1]),
        ({"affinity_threshold": -1.0}, [(100, 0), (0, 0)], [0, 1]),
        # the least busy sticky one against the least busy other one; exactly the penalty is not too much
        ({"max_ttft_penalty_ms": 2000}, [(90, 2 * SECOND), (0, 0)], [0]),
        ({"max_ttft_penalty_ms": 2000}, [(90, 2 * SECOND + 1), (0, 0)], [0, 1]),
        ({"max_ttft_penalty_ms": 2000}, [(90, 9 * SECOND), (90, SECOND), (0, 0)], [0, 1]),
        ({"max_ttft_penalty_ms": 2000}, [(90, 9 * SECOND), (0, 9 * SECOND), (0, 6 * SECOND)], [0, 1, 2]),
        ({"max_ttft_penalty_ms": 2000}, [(90, 9 * SECOND), (0, 9 * SECOND), (0, 7 * SECOND)], [0]),
        # nobody else to go to
        ({"max_ttft_penalty_ms": 2000}, [(90, 9 * SECOND), (90, 9 * SECOND)], [0, 1]),
        # 0: always stay
        ({"max_ttft_penalty_ms": 0}, [(90, 1000 * SECOND), (0, 0)], [0]),
    ],
)
def test_truth_table(build, parameters, cells, expected):
    gate = PrefixCacheAffinityFilter(peak_prefill_throughput=SECOND, **parameters)
    assert kept(gate, rows(build, *cells)) == expected


@pytest.mark.parametrize(
    ("parameters", "tokens"),
    [
        ({}, 286_704),
        ({"affinity_threshold": 0.6, "max_ttft_penalty_ms": 36_000, "peak_prefill_throughput": 15_751}, 567_036),
    ],
)
def test_the_gate_in_tokens(build, parameters, tokens):
    gate = PrefixCacheAffinityFilter(**parameters)
    assert kept(gate, rows(build, (85, tokens), (0, 0))) == [0]
    assert kept(gate, rows(build, (85, tokens + 1), (0, 0))) == [0, 1]


def test_a_text_question_after_pictures_never_meets_the_default_threshold(build):
    cells = [(70, 0), (0, 0)]
    assert kept(PrefixCacheAffinityFilter(), rows(build, *cells)) == [0, 1]
    assert kept(PrefixCacheAffinityFilter(affinity_threshold=0.6), rows(build, *cells)) == [0]


def test_what_nobody_knows_is_0(build):
    unknown = [Candidate(build.endpoint(1), {}), Candidate(build.endpoint(2), {})]
    assert kept(PrefixCacheAffinityFilter(), unknown) == [0, 1]
    empty = build.candidate(3, match=PrefixMatch(num_matched_tokens=0, num_total_tokens=0))
    known = rows(build, (90, SECOND))
    gate = PrefixCacheAffinityFilter(peak_prefill_throughput=SECOND, max_ttft_penalty_ms=999)
    assert kept(gate, [*known, empty, *unknown]) == [0, 1, 2, 3]


def test_exploration_keeps_everybody_as_often_as_it_says(build):
    candidates = rows(build, (90, 0), (0, 0))
    explored = [
        len(PrefixCacheAffinityFilter(exploration_probability=0.25).keep(None, candidates, SeededRng(1, f"r{n}"))) == 2
        for n in range(2000)
    ]
    assert 0.22 < sum(explored) / len(explored) < 0.28
    assert kept(PrefixCacheAffinityFilter(exploration_probability=1.0), candidates) == [0, 1]
    assert kept(PrefixCacheAffinityFilter(exploration_probability=0.0), candidates) == [0]


def test_the_lot_is_drawn_only_where_something_depends_on_it(build):
    used, fresh = SeededRng(1, "r"), SeededRng(1, "r")
    PrefixCacheAffinityFilter().keep(None, rows(build, (90, 0), (0, 0)), used)
    PrefixCacheAffinityFilter(exploration_probability=0.5).keep(None, rows(build, (90, 0)), used)
    assert used.random() == fresh.random()


def test_named_producers_are_read(build):
    gate = PrefixCacheAffinityFilter(prefix_match_info_producer_name="p", in_flight_load_producer_name="l")
    assert gate.reads_of() == ((PrefixMatch, "p"), (InFlightLoad, "l"))
    facts = {
        (PrefixMatch, "p"): PrefixMatch(num_matched_tokens=9, num_total_tokens=10),
        (InFlightLoad, "l"): InFlightLoad(num_uncached_tokens=286_705),
    }
    mine = Candidate(build.endpoint(1), facts)
    assert kept(gate, [mine, build.candidate(2)]) == [0, 1]
    facts[InFlightLoad, "l"] = InFlightLoad(num_uncached_tokens=286_704)
    assert kept(gate, [mine, build.candidate(2)]) == [0]


@pytest.mark.parametrize(
    ("parameters", "cells", "expected"),
    [
        ({}, [(90, 0)], None),
        ({}, [(0, 0), (0, 0)], None),
        ({"affinity_threshold": 0.0}, [(90, 0), (0, 0)], None),
        ({}, [(70, 0), (0, 0)], "kept all: none holds 80.0% of the prompt, the best 70.0%"),
        (
            {},
            [(90, 5000), (0, 0), (85, 9000)],
            "kept 2: 2 of 3 hold 80.0% of the prompt or more, the best 90.0%; 0.50 s behind the others",
        ),
        (
            {"max_ttft_penalty_ms": 400},
            [(90, 5000), (0, 0)],
            "kept all: 1 of 2 hold 80.0% of the prompt or more, the best 90.0%, "
            "but 0.50 s behind the others, over 0.4 s",
        ),
        (
            {"exploration_probability": 1.0},
            [(90, 0), (0, 0)],
            "kept all to explore, though 1 of 2 hold 80.0% of the prompt or more, the best 90.0%",
        ),
    ],
)
def test_says_what_it_did_and_why(build, parameters, cells, expected):
    gate = PrefixCacheAffinityFilter(peak_prefill_throughput=SECOND, **parameters)
    assert text(gate, rows(build, *cells)) == expected


@pytest.fixture
def router():
    """A router that looks at prefixes alone, by the gate as llm-d sets it for media."""
    gate = PrefixCacheAffinityFilter(affinity_threshold=0.6, max_ttft_penalty_ms=36_000, peak_prefill_throughput=15_751)
    matches, ledger = ApproxPrefixCacheProducer(), InflightLoadProducer()
    profile = Profile("default", (gate,), (), MaxScorePicker())
    scheduler = Scheduler({"default": profile}, SingleProfileHandler())
    memories = (matches, ledger, gate)
    return Router(pricer=TokenProducer(), producers=(matches, ledger), scheduler=scheduler, memories=memories)


def ask(build, router, request_id, picture, question):
    item = build.media(identifier=picture, width=1280, height=720)
    text = TextPart(num_bytes=len(question), digests=text_digests(question.encode()))
    request = build.request(request_id, prompts=((item, text),))
    view = build.view([build.endpoint(number) for number in (1, 2, 3)])
    return router.decide(request, view, 0.0, SeededRng(1, request_id)).primary_stage


def test_on_the_road_another_question_stays_with_its_picture(build, router):
    for number in range(8):
        first = ask(build, router, f"a{number}", f"picture {number}", "What is this?")
        second = ask(build, router, f"b{number}", f"picture {number}", "Which colour has the roof of the house?")
        assert first.notes == {}
        assert second.winner == first.winner
        (note,) = second.notes.values()
        assert note.text.startswith("kept 1: 1 of 3 hold 60.0% of the prompt or more, the best 98.")


def test_the_stage_keeps_what_it_said(build):
    gate = PrefixCacheAffinityFilter()
    profile = Profile("default", (gate,), (), MaxScorePicker())
    (stage,), rejection = Scheduler({"default": profile}, SingleProfileHandler()).schedule(
        build.priced(), rows(build, (90, 0), (0, 0)), RNG
    )
    assert rejection is None
    assert stage.filtered_by == (None, "prefix-cache-affinity-filter")
    assert stage.notes["prefix-cache-affinity-filter"].text.startswith("kept 1: 1 of 2 hold 80.0%")


def watch(build, gate, num, matched):
    decision = build.decision(build.priced(), build.stage(rows(build, (matched, 0), (0, 0))))
    outcome = Outcome(request_id="r1", ending=Ending.FINISHED, finished_at=1.0)
    findings = []
    for _ in range(num):
        gate.record(decision)
        findings += gate.settle(outcome)
    return [each.message for each in findings]


def test_a_threshold_that_traffic_never_meets_is_reported_once(build):
    gate = PrefixCacheAffinityFilter()
    assert watch(build, gate, NUM_WATCHED - 1, 70) == []
    assert watch(build, gate, 2000, 0) == []
    assert watch(build, gate, 5, 70) == [
        "prefix-cache-affinity-filter: of 1000 prompts of which an endpoint held something, it held 70.0% at most; "
        "affinityThreshold 0.8 was never met, so the filter keeps everybody; set it below that"
    ]


@pytest.mark.parametrize(("threshold", "matched"), [(0.6, 70), (0.0, 70), (0.7, 70)])
def test_a_threshold_that_was_met_is_not_reported(build, threshold, matched):
    assert watch(build, PrefixCacheAffinityFilter(affinity_threshold=threshold), 2000, matched) == []


def test_a_predictor_is_taken_with_a_word(build):
    assert list(PrefixCacheAffinityFilter().cautions()) == []
    gate = PrefixCacheAffinityFilter(ttft_source="latencyPredictor")
    ((where, message),) = gate.cautions()
    assert where == "ttftSource"
    assert "15928 a second" in message
    assert kept(gate, rows(build, (90, 0), (0, 0))) == [0]
