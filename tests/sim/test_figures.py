import pytest

from tessera.core.types import Ending
from tessera.engine.events import CacheCounters, EngineFacts
from tessera.sim.client import Sent
from tessera.sim.figures import Figures, figures_of, mean, quantile
from tessera.sim.load import StageRecord
from tessera.sim.load_stages import LoadStage


def facts(prefix=(0, 0), encoder=(0, 0), processor=(0, 0)):
    return EngineFacts(
        num_waiting=0,
        num_running=0,
        kv_usage_fraction=0.0,
        num_blocks=1,
        block_size=16,
        num_first_tokens=0,
        prefix_cache=CacheCounters(*prefix),
        processor_cache=CacheCounters(*processor),
        encoder_cache=CacheCounters(*encoder),
        num_preemptions=0,
        num_prompt_tokens=0,
        num_generation_tokens=0,
    )


def sent(at, ttft_s, tpot_s, *, tokens=11, ending=Ending.FINISHED, endpoint="a", predicted=None):
    first = None if ttft_s is None else at + ttft_s
    ended = at + (ttft_s or 0.0) + tpot_s * (tokens - 1)
    times = {"first_at": first, "ended_at": ended, "predicted_ttft_s": predicted}
    return Sent("r", 0, at, tokens, **times, ending=ending, endpoint_id=endpoint)


def record(*requests, before=(), after=(), **stage):
    made = LoadStage(**({"rate": 1, "duration_s": 10} | stage))
    return StageRecord(made, sent=list(requests), facts_before=before, facts_after=after)


def test_a_stage_worked_by_hand():
    figures = figures_of(
        record(
            sent(100.0, 0.5, 0.04),  # good; over at 100.9
            sent(101.0, 1.0, 0.05, endpoint="b"),  # just good; over at 102.5
            sent(102.0, 1.1, 0.01),  # late; over at 103.2
            sent(103.0, 0.2, 0.06),  # slow; over at 103.8
            sent(104.0, None, 0.0, ending=Ending.ABORTED, endpoint=None),
            before=(facts((100, 10), (5, 1), (7, 7)), facts()),
            after=(facts((300, 60), (5, 1), (17, 9)), facts((200, 50), (0, 0), (10, 10))),
        )
    )
    assert figures == Figures(
        num_requests=5,
        num_finished=4,
        num_failed=1,
        output_tokens_per_s=pytest.approx(44 / 4.0),
        good_requests_per_s=0.2,
        ttft_p50_s=pytest.approx(0.75),
        ttft_p90_s=pytest.approx(1.07),
        tpot_mean_s=pytest.approx(0.04),
        prefix_hit_fraction=100 / 400,
        encoder_hit_fraction=None,
        processor_hit_fraction=12 / 20,
        most_requests_fraction=3 / 4,
    )


def test_a_request_that_is_neither_finished_nor_failed_is_a_fault():
    with pytest.raises(AssertionError, match="1 requests are neither"):
        figures_of(record(sent(0.0, 1.0, 0.1, ending=None)))


def test_where_nothing_finished_there_are_no_times():
    figures = figures_of(record(sent(0.0, 0.5, 0.0, ending=Ending.ABORTED)))
    assert (figures.ttft_p50_s, figures.tpot_mean_s, figures.output_tokens_per_s) == (None, None, 0.0)
    assert (figures.num_finished, figures.num_failed) == (0, 1)


def test_quantiles_lie_between_their_neighbours():
    assert quantile([float(n) for n in range(11)], 0.9) == 9.0
    assert quantile([0.0, 10.0], 0.25) == 2.5
    assert quantile([3.0], 0.9) == 3.0
    assert quantile([], 0.5) is None


def test_predictions_worked_by_hand():
    """Ratios 0.5, 0.8, 1.5 and 1.6: two are within a factor of 1.5; of who gave up nothing counts."""
    aborted = sent(0.0, 1.0, 0.0, predicted=9.0, ending=Ending.ABORTED)
    figures = figures_of(
        record(
            sent(0.0, 1.0, 0.0, predicted=0.5),
            sent(0.0, 1.0, 0.0, predicted=0.8),
            sent(0.0, 2.0, 0.0, predicted=3.0),
            sent(0.0, 1.0, 0.0, predicted=1.6),
            sent(0.0, 1.0, 0.0),  # nothing was foreseen
            aborted,
        )
    )
    assert figures.ttft_prediction_ratio_p50 == pytest.approx((0.8 + 1.5) / 2)
    assert figures.ttft_prediction_close_fraction == 2 / 4
    assert figures.ttft_prediction_error_mean_s == pytest.approx((0.5 + 0.2 + 1.0 + 0.6) / 4)


@pytest.mark.parametrize(("predicted", "is_close"), [(1.0, True), (0.99, False), (2.25, True), (2.26, False)])
def test_close_is_a_factor_of_one_and_a_half_both_ways(predicted, is_close):
    figures = figures_of(record(sent(0.0, 1.5, 0.0, predicted=predicted)))
    assert figures.ttft_prediction_close_fraction == is_close


def test_without_predictions_nothing_is_said_of_them():
    figures = figures_of(record(sent(0.0, 1.5, 0.0)))
    assert figures.ttft_prediction_ratio_p50 is None
    assert figures.ttft_prediction_close_fraction is None
    assert figures.ttft_prediction_error_mean_s is None


def test_means_leave_out_what_is_not_known():
    known = figures_of(record(sent(0.0, 0.5, 0.04)))
    unknown = figures_of(record(sent(0.0, None, 0.0, ending=Ending.FAILED)))
    both = mean([known, unknown])
    assert both.ttft_p50_s == 0.5
    assert both.num_finished == 0.5
    assert mean([unknown]).ttft_p90_s is None
