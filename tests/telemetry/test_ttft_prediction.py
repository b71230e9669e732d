"""Predicted against measured seconds to the first token."""

import pytest

from tessera.core.facts import FirstTokenCost
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome
from tessera.telemetry.metrics import Metrics

BODY = FirstTokenSource.BODY


def settle(build, metrics, *, predicted=(0.3, 0.8), served=1, first_at=5.4, source=BODY, ending=Ending.FINISHED):
    """A request decided at 5.0 s that endpoint 1 won."""
    rows = []
    for number, ttft_s in enumerate(predicted, 1):
        facts = {} if ttft_s is None else {(FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(ttft_s=ttft_s)}
        rows.append(Candidate(build.endpoint(number), facts))
    decision = build.decision(None, build.stage(rows), at=5.0)
    metrics.settled(
        Outcome(
            request_id="r1",
            ending=ending,
            decision=decision,
            endpoint=None if served is None else f"10.0.0.{served}:8000",
            first_token_at=first_at,
            first_token_source=source,
            finished_at=9.0,
        )
    )


def sums(metrics, source="body"):
    """(requests, sum of errors in seconds, sum of ratios)."""
    value = metrics.registry.get_sample_value
    of = {"source": source}
    return (
        value("tessera_ttft_prediction_error_seconds_count", of),
        value("tessera_ttft_prediction_error_seconds_sum", of),
        value("tessera_ttft_prediction_error_ratio_sum", of),
    )


@pytest.mark.parametrize(("served", "error", "ratio"), [(1, 0.1, 0.75), (None, 0.1, 0.75), (2, 0.4, 2.0)])
def test_error_and_ratio_of_who_served(build, served, error, ratio):
    """Measured are 0.4 s; 0.3 s were predicted for the winner and 0.8 s for the fallback."""
    metrics = Metrics()
    settle(build, metrics, served=served)
    assert sums(metrics) == pytest.approx((1, error, ratio))


def test_by_source(build):
    metrics = Metrics()
    settle(build, metrics, source=FirstTokenSource.COUNTER)
    assert sums(metrics, "counter") == pytest.approx((1, 0.1, 0.75))
    assert sums(metrics)[0] is None


@pytest.mark.parametrize(
    "fields",
    [
        {"source": FirstTokenSource.PREDICTED},
        {"source": None, "first_at": None},
        {"first_at": 5.0},
        {"ending": Ending.FAILED},
        {"ending": Ending.ABORTED},
        {"predicted": (None, None)},
        {"served": 9},
    ],
)
def test_what_says_nothing_is_left_out(build, fields):
    metrics = Metrics()
    settle(build, metrics, **fields)
    assert [sums(metrics, str(source))[0] for source in FirstTokenSource] == [None, None, None]


def test_of_a_prefill_apart_its_prediction_counts(build):
    metrics = Metrics()
    facts = [{(FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(ttft_s=ttft_s)} for ttft_s in (0.3, 0.6)]
    rows = [Candidate(build.endpoint(number), each) for number, each in enumerate(facts, 1)]
    stages = (build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill"))
    decision = build.decision(None, *stages, at=5.0, primary="decode")
    fields = {"endpoint": "10.0.0.1:8000", "first_token_at": 5.4, "first_token_source": BODY, "finished_at": 9.0}
    metrics.settled(Outcome(request_id="r1", ending=Ending.FINISHED, decision=decision, **fields))
    assert sums(metrics) == pytest.approx((1, 0.2, 1.5))
