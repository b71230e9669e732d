"""First tokens that took as long as if the encoder had run after all."""

import pytest

from tessera.core.facts import FirstTokenCost
from tessera.core.matching.claimed_hits import MIN_RATIOS, ClaimedHits
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome


def judged(build, hits, *, predicted=0.2, held=0.0, measured=0.2, name="r1", beside=()):
    """What is said of one request, sent at 0 with nobody ahead but beside ``beside``."""
    cost = FirstTokenCost(held_encode_s=held, ttft_s=predicted)
    row = Candidate(build.endpoint(1), {(FirstTokenCost, FirstTokenCost.producer): cost})
    decision = build.decision(build.priced(10, request_id=name), build.stage([row]))
    hits.sent(decision)
    for other in beside:
        hits.sent(build.decision(build.priced(10, request_id=other), build.stage([row])))
    said = hits.held(
        Outcome(
            request_id=name,
            ending=Ending.FINISHED,
            decision=decision,
            status=200,
            endpoint=row.endpoint.id,
            first_token_at=decision.at + measured,
            first_token_source=FirstTokenSource.BODY,
            finished_at=9.0,
        )
    )
    for other in beside:
        hits.held(Outcome(request_id=other, ending=Ending.FAILED, finished_at=9.0))
    return said


def taught(build, ratio=1.0):
    hits = ClaimedHits()
    for number in range(MIN_RATIOS):
        assert judged(build, hits, measured=0.2 * ratio, name=f"t{number}") is None
    return hits


@pytest.mark.parametrize(("measured", "was_held"), [(0.2, True), (0.25, True), (0.251, False), (0.3, False)])
def test_half_of_what_was_spared_is_the_border(build, measured, was_held):
    assert judged(build, taught(build), held=0.1, measured=measured) is was_held


@pytest.mark.parametrize(("measured", "was_held"), [(0.4, True), (0.5, True), (0.51, False)])
def test_an_engine_of_half_the_speed_is_no_proof(build, measured, was_held):
    """0.2 s predicted and 0.1 s spared are 0.4 and 0.2 s there: the border is at 0.5 s."""
    assert judged(build, taught(build, ratio=2.0), held=0.1, measured=measured) is was_held


def test_nothing_is_said_before_enough_was_seen_or_of_what_drowns_in_a_step(build):
    assert judged(build, ClaimedHits(), held=0.1, measured=9.0) is None
    assert judged(build, taught(build), held=0.019, measured=9.0) is None


def test_nothing_is_said_of_a_request_that_had_others_beside_it(build):
    hits = taught(build)
    assert judged(build, hits, held=0.1, measured=0.3, beside=("other",)) is None
    assert judged(build, hits, held=0.1, measured=0.3, name="r2") is False
