"""The belief's error, worked out by hand in the engine's tokens."""

import pytest

from tessera.core.facts import Load, PrefixMatch
from tessera.core.parts import TextPart
from tessera.core.types import Candidate, Ending, Outcome, Usage
from tessera.telemetry.metrics import Metrics

APPROXIMATE, EXACT = PrefixMatch.producer, "precise-prefix-cache-producer"
FAMILIES = ("requests", "prompt_tokens", "predicted_tokens", "cached_tokens")
ERRORS = ("overestimated_tokens", "underestimated_tokens")


def match(matched, total, *, is_exact=False):
    return PrefixMatch(num_matched_tokens=matched, num_total_tokens=total, is_exact=is_exact)


def row(build, number=1, *, block_size=None, **matches):
    facts = {(PrefixMatch, {"approximate": APPROXIMATE, "exact": EXACT}[name]): each for name, each in matches.items()}
    return Candidate(build.endpoint(number), {(Load, Load.producer): Load(block_size=block_size)} | facts)


def counted(metrics, producer=APPROXIMATE, basis="approximate"):
    """The counters in the order of ``FAMILIES`` and ``ERRORS``; nothing where there is no row."""
    labels = {"producer": producer, "basis": basis}
    get = metrics.registry.get_sample_value
    return [get(f"tessera_kv_belief_{name}_total", labels) for name in (*FAMILIES, *ERRORS)]


NOTHING = [None] * 6


def settled(metrics, decision, prompt_tokens, cached_tokens, *, served=None, ending=Ending.FINISHED):
    usage = Usage(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)
    metrics.settled(
        Outcome(request_id="r1", ending=ending, decision=decision, usage=usage, endpoint=served, finished_at=1.0)
    )


def compare(build, believed, priced_tokens, prompt_tokens, cached_tokens, **of_row):
    metrics = Metrics()
    basis = "exact" if believed.is_exact else "approximate"
    stage = build.stage([row(build, **of_row, **{basis: believed})])
    settled(metrics, build.decision(build.priced(priced_tokens), stage), prompt_tokens, cached_tokens)
    return counted(metrics, EXACT if believed.is_exact else APPROXIMATE, basis)


@pytest.mark.parametrize(
    ("matched", "cached", "predicted", "over", "under"),
    [
        (320, 288, 304, 16, 0),
        (304, 304, 304, 0, 0),
        (303, 304, 288, 0, 16),
        (0, 0, 0, 0, 0),
        (0, 304, 0, 0, 304),
        (160, 0, 160, 160, 0),
    ],
)
def test_a_belief_in_whole_blocks_before_the_last_token(build, matched, cached, predicted, over, under):
    """Of 320 tokens an engine can tell at most 304 cached: 19 blocks of 16, since the last token is computed."""
    assert compare(build, match(matched, 320), 320, 320, cached) == [1, 320, predicted, cached, over, under]


def test_a_prompt_that_ends_behind_a_block_can_have_all_its_blocks_cached(build):
    assert compare(build, match(321, 321), 321, 321, 320) == [1, 321, 320, 320, 0, 0]


def test_a_price_that_is_off_is_brought_to_the_engines_tokens(build):
    # Half of the price is half of the engine's 1,000: 500, which are 31 blocks.
    assert compare(build, match(400, 800), 800, 1000, 496) == [1, 1000, 496, 496, 0, 0]
    # Only the first 400 of 800 tokens were looked at, and all of them are held.
    assert compare(build, match(400, 400), 800, 1000, 496) == [1, 1000, 496, 496, 0, 0]


def test_blocks_are_as_large_as_the_endpoints_page_says(build):
    assert compare(build, match(320, 320), 320, 320, 256, block_size=64) == [1, 320, 256, 256, 0, 0]
    assert compare(build, match(319, 320), 320, 320, 319, block_size=1) == [1, 320, 319, 319, 0, 0]


def test_an_exact_match_stands_for_its_own_count_of_the_prompt(build):
    # The price says 250 where the token ids are 321: the ids count.
    assert compare(build, match(288, 321, is_exact=True), 250, 321, 288) == [1, 321, 288, 288, 0, 0]
    assert compare(build, match(288, 321, is_exact=True), 250, 321, 320) == [1, 321, 288, 320, 0, 32]


def test_more_cached_tokens_than_the_prompt_has_are_all_of_it(build):
    assert compare(build, match(0, 320), 320, 320, 4000) == [1, 320, 0, 320, 0, 320]


def test_requests_add_up_and_errors_both_ways_do_not_cancel(build):
    metrics = Metrics()
    decision = build.decision(build.priced(320), build.stage([row(build, approximate=match(160, 320))]))
    settled(metrics, decision, 320, 128)
    settled(metrics, decision, 320, 208)
    assert counted(metrics) == [2, 640, 320, 336, 32, 48]


def test_each_producer_is_compared_by_itself(build):
    metrics = Metrics()
    both = row(build, approximate=match(320, 320), exact=match(64, 320, is_exact=True))
    settled(metrics, build.decision(build.priced(320), build.stage([both])), 320, 64)
    assert counted(metrics) == [1, 320, 304, 64, 240, 0]
    assert counted(metrics, EXACT, "exact") == [1, 320, 64, 64, 0, 0]
    # The exact producer's match of a request without token ids.
    only = row(build, exact=match(160, 320))
    settled(metrics, build.decision(build.priced(320), build.stage([only])), 320, 64)
    assert counted(metrics, EXACT, "approximate") == [1, 320, 160, 64, 96, 0]


def test_the_endpoint_that_served_is_compared(build):
    rows = [row(build, 1, approximate=match(160, 320)), row(build, 2, approximate=match(0, 320))]
    decision = build.decision(build.priced(320), build.stage(rows))
    for served, predicted in ((None, 160), (build.endpoint(1).id, 160), (build.endpoint(2).id, 0)):
        metrics = Metrics()
        settled(metrics, decision, 320, 0, served=served)
        assert counted(metrics) == [1, 320, predicted, 0, predicted, 0]
    metrics = Metrics()
    settled(metrics, decision, 320, 0, served="10.9.9.9:1")
    assert counted(metrics) == NOTHING


def test_what_cannot_be_compared_is_left_out(build):
    stage = build.stage([row(build, approximate=match(160, 320))])
    one, other = ((TextPart(num_bytes=640),) for _ in range(2))
    metrics = Metrics()
    settled(metrics, build.decision(build.priced(320), stage), 320, None)
    settled(metrics, build.decision(build.priced(320), stage), 0, 0)
    settled(metrics, build.decision(build.priced(320), stage), 320, 0, ending=Ending.ABORTED)
    settled(metrics, build.decision(build.priced(320, num_choices=2), stage), 320, 0)
    settled(metrics, build.decision(build.priced(320, prompts=(one, other)), stage), 320, 0)
    settled(metrics, build.decision(build.priced(0), build.stage([row(build, approximate=match(0, 0))])), 320, 0)
    settled(metrics, build.decision(build.priced(320), build.stage([row(build)])), 320, 0)
    settled(metrics, build.decision(build.priced(320), build.stage([row(build)], None)), 320, 0)
    settled(metrics, None, 320, 0, ending=Ending.CANCELLED)
    assert counted(metrics) == NOTHING


@pytest.mark.parametrize(
    ("stages", "is_compared"),
    [
        ({"prefill": 1, "decode": 0}, False),
        ({"prefill": 0, "decode": 0}, True),
        ({"encode": 1, "decode": 0}, True),
        ({"prefill": 0}, True),
    ],
)
def test_a_prompt_that_another_engine_computes_is_left_out(build, stages, is_compared):
    metrics = Metrics()
    rows = [row(build, approximate=match(160, 320)), build.candidate(2)]
    stages = [build.stage(rows, winner, profile=name) for name, winner in stages.items()]
    settled(metrics, build.decision(build.priced(320), *stages), 320, 160)
    assert counted(metrics) == ([1, 320, 160, 160, 0, 0] if is_compared else NOTHING)


def test_a_prefill_stage_that_chose_nobody_does_not_count(build):
    metrics = Metrics()
    rows = [row(build, approximate=match(160, 320))]
    stages = [build.stage(rows, None, "prefill"), build.stage(rows, profile="decode")]
    settled(metrics, build.decision(build.priced(320), *stages), 320, 160)
    assert counted(metrics) == [1, 320, 160, 160, 0, 0]
