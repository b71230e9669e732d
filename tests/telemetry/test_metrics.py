"""The names that operators' dashboards use, and the bound on what label values can do."""

from itertools import pairwise

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tessera.core.errors import DropReason
from tessera.core.parts import Modality
from tessera.core.types import Ending, FirstTokenSource, Objective, Outcome, Rejection, Usage
from tessera.telemetry.metrics import LATENCY_BUCKETS, TOKEN_BUCKETS, TTFT_BUCKETS, Gauges, LabelBound, Metrics

M = {"model_name", "target_model_name", "fairness_id", "priority"}


def samples(metrics):
    families = text_string_to_metric_families(metrics.page().decode())
    return {
        (sample.name, *sorted(sample.labels.items())): sample.value for family in families for sample in family.samples
    }


def value(metrics, name, **labels):
    """The sum of that sample over all label values that are not named."""
    return summed(samples(metrics), name, **labels)


def summed(found, name, **labels):
    return sum(
        number for (found_name, *pairs), number in found.items() if found_name == name and labels.items() <= set(pairs)
    )


def outcome(decision, ending=Ending.FINISHED, **fields):
    return Outcome(request_id="r1", ending=ending, decision=decision, finished_at=2.0, **fields)


@pytest.fixture
def metrics():
    return Metrics()


class TestLabelBound:
    def test_lets_the_first_through_and_calls_the_rest_other(self):
        bound = LabelBound(2)
        assert [bound(word) for word in ("a", "b", "c", "a", "c", "b")] == ["a", "b", "other", "a", "other", "b"]

    def test_a_long_value_is_cut_and_stays_the_same(self):
        bound = LabelBound(1)
        assert bound("x" * 500) == bound("x" * 500) == "x" * 128
        assert bound("y") == "other"


def test_the_names_and_labels_are_llmds_where_the_meaning_is(build, metrics):
    decision = build.decision(build.priced(10, model="m"))
    metrics.decided(decision, 0.0001)
    usage = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=1)
    source = FirstTokenSource.BODY
    metrics.settled(outcome(decision, Ending.FAILED, usage=usage, first_token_at=1.0, first_token_source=source))
    labels = {}
    for name, *pairs in samples(metrics):
        labels.setdefault(name, set()).update(key for key, _ in pairs)
    for name in (
        "llm_d_epp_request_total",
        "llm_d_epp_request_duration_seconds_count",
        "llm_d_epp_request_size_bytes_count",
        "llm_d_epp_request_input_tokens_count",
        "llm_d_epp_request_output_tokens_count",
        "llm_d_epp_request_cached_tokens_count",
    ):
        assert labels[name] == M
    assert labels["llm_d_epp_request_ttft_seconds_count"] == M | {"streaming"}
    assert labels["llm_d_epp_request_error_total"] == M | {"error_code"}
    assert labels["llm_d_epp_scheduler_e2e_duration_seconds_count"] == set()
    ours = {name for name in labels if not name.startswith("llm_d_epp_")}
    assert all(name.startswith("tessera_") for name in ours)


def test_buckets_are_llmds_as_far_as_they_go():
    assert (LATENCY_BUCKETS[0], LATENCY_BUCKETS[-1], TTFT_BUCKETS[-1]) == (0.005, 600, 120)
    assert all(lower < upper for lower, upper in pairwise(LATENCY_BUCKETS))
    assert TOKEN_BUCKETS[:4] + TOKEN_BUCKETS[-1:] == (1, 8, 16, 32, 1 << 20)


def test_a_decision_is_counted(build, metrics):
    items = [build.item(index=0), build.item(index=1)]
    decision = build.decision(
        build.priced(10, items, model="m", body_bytes=500), guesses=("stale-metrics:2/8", "link:0")
    )
    metrics.decided(decision, 0.0001)
    assert value(metrics, "llm_d_epp_request_total", model_name="m", fairness_id="default-flow", priority="0") == 1
    assert value(metrics, "llm_d_epp_request_size_bytes_sum") == 500
    assert value(metrics, "tessera_items_total", modality="image", basis="exact", reason="") == 2
    assert value(metrics, "tessera_guesses_total", guess="stale-metrics") == 1
    assert value(metrics, "tessera_guesses_total", guess="link") == 1
    assert value(metrics, "tessera_rejections_total") == 0


@pytest.mark.parametrize(
    ("filter_name", "reason"), [("decode-filter", DropReason.NO_ENDPOINTS), (None, DropReason.SATURATED)]
)
def test_a_rejection_is_counted_with_its_filter(build, metrics, filter_name, reason):
    rejection = Rejection(reason=reason, filter=filter_name, message="m")
    metrics.decided(build.decision(rejection=rejection), 0.0)
    assert value(metrics, "tessera_rejections_total", reason=str(reason), filter=filter_name or "") == 1


def test_an_outcome_is_counted(build, metrics):
    decision = build.decision(build.priced(at=0.5, stream=True))
    usage = Usage(prompt_tokens=9, completion_tokens=3, cached_tokens=1)
    source = FirstTokenSource.COUNTER
    metrics.settled(
        outcome(decision, usage=usage, endpoint="10.0.0.2:8000", first_token_at=0.75, first_token_source=source)
    )
    assert value(metrics, "llm_d_epp_request_duration_seconds_sum") == 1.5
    assert value(metrics, "llm_d_epp_request_ttft_seconds_sum", streaming="true") == 0.25
    assert value(metrics, "llm_d_epp_request_input_tokens_sum") == 9
    assert value(metrics, "llm_d_epp_request_output_tokens_sum") == 3
    assert value(metrics, "llm_d_epp_request_cached_tokens_sum") == 1
    assert value(metrics, "tessera_requests_ended_total", ending="finished") == 1
    assert value(metrics, "tessera_endpoint_requests_total", endpoint="10.0.0.2:8000") == 1
    assert value(metrics, "tessera_fallbacks_total", endpoint="10.0.0.2:8000") == 1
    assert value(metrics, "llm_d_epp_request_error_total") == 0


def test_what_is_not_known_is_not_counted(build, metrics):
    metrics.settled(outcome(build.decision(), endpoint="10.0.0.1:8000", usage=Usage(prompt_tokens=1)))
    assert value(metrics, "tessera_fallbacks_total") == 0
    for name in ("ttft_seconds", "output_tokens", "cached_tokens"):
        assert value(metrics, f"llm_d_epp_request_{name}_count") == 0
    metrics.settled(outcome(build.decision()))
    assert value(metrics, "tessera_endpoint_requests_total") == 1


def test_a_predicted_first_token_is_no_measurement(build, metrics):
    metrics.settled(outcome(build.decision(), first_token_at=1.0, first_token_source=FirstTokenSource.PREDICTED))
    assert value(metrics, "llm_d_epp_request_ttft_seconds_count") == 0


def test_a_failure_of_the_endpoint_is_an_error(build, metrics):
    metrics.settled(outcome(build.decision(), Ending.FAILED))
    assert value(metrics, "llm_d_epp_request_error_total", error_code="ModelServerError") == 1


def test_a_request_without_decision_is_only_an_ending(metrics):
    metrics.settled(outcome(None, Ending.CANCELLED))
    assert value(metrics, "tessera_requests_ended_total", ending="cancelled") == 1
    assert value(metrics, "llm_d_epp_request_duration_seconds_count") == 0


def test_refusals_and_faults_of_ours(metrics):
    metrics.refused("request_too_large")
    metrics.failed("stream")
    metrics.streams_ended_early.inc()
    assert value(metrics, "tessera_refused_requests_total", code="request_too_large") == 1
    assert value(metrics, "tessera_internal_errors_total", where="stream") == 1
    assert value(metrics, "tessera_streams_ended_early_total") == 1


def test_label_values_from_outside_are_bounded(build, metrics):
    for number in range(1100):
        objective = Objective(fairness_id=f"f{number % 7}")
        decision = build.decision(
            build.priced(model=f"m{number // 7}", items=[build.item()], objective=objective),
            guesses=(f"g{number}:1", f"g{number}:2"),
        )
        metrics.decided(decision, 0.0)
        metrics.settled(outcome(decision, endpoint=f"10.0.{number}:80"))
        metrics.refused(f"c{number}")
    found = samples(metrics)
    assert len(metrics.page()) < 4 << 20

    def num_values(name, label):
        return len({dict(pairs)[label] for found_name, *pairs in found if found_name == name})

    labels = [pairs for name, *pairs in found if name == "llm_d_epp_request_total"]
    assert num_values("llm_d_epp_request_total", "model_name") == 51
    # 14 models with all their 7 flows and 2 flows of the next; "other" flows of that and 35 more; what is left.
    assert len(labels) == 100 + 36 + 1
    assert summed(found, "llm_d_epp_request_total") == 1100
    assert summed(found, "llm_d_epp_request_total", model_name="m0", fairness_id="f0") == 1
    assert summed(found, "llm_d_epp_request_total", model_name="m49", fairness_id="other") == 7
    assert summed(found, "llm_d_epp_request_total", model_name="other", fairness_id="other") == 1100 - 50 * 7
    assert num_values("tessera_guesses_total", "guess") <= 257
    assert num_values("tessera_refused_requests_total", "code") <= 257
    assert num_values("tessera_endpoint_requests_total", "endpoint") == 1001


def test_a_changing_fleet_does_not_use_up_the_words(build, metrics):
    for number in range(2000):
        metrics.settled(outcome(build.decision(), endpoint=f"10.0.{number}:80"))
    metrics.refused("request_too_large")
    assert value(metrics, "tessera_refused_requests_total", code="request_too_large") == 1


def test_a_page_survives_every_name_that_a_client_may_send(build, metrics):
    for model in ('a"b', "a\nb", "a\\b", "ü", "\0", "x" * 5000, ""):
        metrics.decided(build.decision(build.priced(model=model, items=[build.item()])), 0.0)
    assert value(metrics, "llm_d_epp_request_total") == 7


def test_every_modality_is_named(build, metrics):
    for modality in Modality:
        request = build.request(prompts=((build.media(modality),),))
        metrics.decided(build.decision(build.router().pricer.price(request)), 0.0)
        assert value(metrics, "tessera_items_total", modality=str(modality)) == 1


def test_gauges_are_read_when_the_page_is(metrics):
    numbers = iter([1.0, 2.0, 3.0])
    metrics.add_gauges(Gauges(lambda: [("tessera_things", "Things.", ("kind",), [(("a",), next(numbers))])]))
    first = value(metrics, "tessera_things", kind="a")
    assert value(metrics, "tessera_things", kind="a") == first + 1


def test_a_family_that_ends_with_total_is_a_counter(metrics):
    metrics.add_gauges(Gauges(lambda: [("tessera_things_total", "Things.", ("kind",), [(("a",), 3.0)])]))
    assert value(metrics, "tessera_things_total", kind="a") == 3
    assert "# TYPE tessera_things_total counter" in metrics.page().decode()
