"""Which numbers does an operator watch? llm-d's names where the meaning is llm-d's, ``tessera_`` for ours.

Label values come from outside, so each family of them is bounded: after 50 distinct
models, 100 pairs of model and fairness id, 1,000 endpoints, 256 guesses and reasons,
further ones are ``other``.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tessera.core.types import Decision, Ending, FirstTokenSource, Outcome
from tessera.telemetry.encoder_cache import EncoderCacheMetrics
from tessera.telemetry.kv_belief import KVBeliefMetrics
from tessera.telemetry.stages import StageMetrics
from tessera.telemetry.ttft_prediction import TTFTPredictionMetrics

LATENCY_BUCKETS = (
    0.005,
    0.025,
    0.05,
    0.1,
    0.2,
    0.4,
    0.6,
    0.8,
    1,
    1.25,
    1.5,
    2,
    3,
    4,
    5,
    6,
    8,
    10,
    15,
    20,
    30,
    45,
    60,
    120,
    180,
    240,
    300,
    600,
)
TTFT_BUCKETS = LATENCY_BUCKETS[:24]
DECISION_BUCKETS = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1)
TOKEN_BUCKETS = tuple(float(1 << power) for power in range(0, 21, 1) if power not in (1, 2))
BYTE_BUCKETS = tuple(float(64 << power) for power in range(0, 25, 2))
RATIO_BUCKETS = (0.1, 0.25, 0.5, 0.67, 0.8, 0.9, 0.95, 0.99, 1.01, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)
MODEL_LABELS = ("model_name", "target_model_name", "fairness_id", "priority")
DEFAULT_FLOW = "default-flow"
"""llm-d's fairness id of a request that names none."""
OTHER = "other"
MAX_LABEL_CHARS = 128
MAX_MODELS = 50
MAX_FLOWS = 100
"""Pairs of model and fairness id; each costs 20 KB and 2 ms of every page, and clients choose both."""
MAX_ENDPOINTS = 1000
MAX_WORDS = 256


class LabelBound:
    """Lets through the first ``limit`` distinct values, and ``other`` for the rest.

    >>> bound = LabelBound(1)
    >>> bound("a"), bound("b"), bound("a")
    ('a', 'other', 'a')
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        """The value, cut to 128 characters, or ``other``."""
        value = value[:MAX_LABEL_CHARS]
        if value not in self._seen:
            if len(self._seen) >= self._limit:
                return OTHER
            self._seen.add(value)
        return value


class Server(StrEnum):
    """How it is known who gave an answer to whose headers plugins may add."""

    SAID = "said"
    """The gateway says it."""
    ASSUMED = "assumed"
    """The gateway says nothing: the winner is taken for it, which is wrong after a retry elsewhere."""
    STRANGER = "stranger"
    """The gateway names somebody who was no candidate: nothing is added."""


class Metrics:
    """The counters and histograms of one router; read by ``/metrics``."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._model = LabelBound(MAX_MODELS)
        self._flows: set[tuple[str, str]] = set()
        self._endpoint = LabelBound(MAX_ENDPOINTS)
        self._word = LabelBound(MAX_WORDS)
        self._requests = self._counter("llm_d_epp_request_total", "Requests that reached a decision.", MODEL_LABELS)
        self._errors = self._counter(
            "llm_d_epp_request_error_total", "Requests that failed, by cause.", (*MODEL_LABELS, "error_code")
        )
        self._duration = self._histogram("llm_d_epp_request_duration_seconds", "Arrival to end.", LATENCY_BUCKETS)
        self._ttft = self._histogram(
            "llm_d_epp_request_ttft_seconds",
            "Arrival to first token, where it was seen and not predicted.",
            TTFT_BUCKETS,
            (*MODEL_LABELS, "streaming"),
        )
        self._body = self._histogram("llm_d_epp_request_size_bytes", "Bytes of the request's body.", BYTE_BUCKETS)
        self._input = self._histogram("llm_d_epp_request_input_tokens", "Prompt tokens by usage.", TOKEN_BUCKETS)
        self._output = self._histogram("llm_d_epp_request_output_tokens", "Answer tokens by usage.", TOKEN_BUCKETS)
        self._cached = self._histogram("llm_d_epp_request_cached_tokens", "Cached tokens by usage.", TOKEN_BUCKETS)
        self._decision_s = self._histogram(
            "llm_d_epp_scheduler_e2e_duration_seconds", "Pricing, matching and scheduling.", DECISION_BUCKETS, ()
        )
        self._encoder_cache = EncoderCacheMetrics(self.registry, self._endpoint)
        self.stages = StageMetrics(self.registry, self._endpoint)
        self._kv_belief = KVBeliefMetrics(self.registry)
        self._ttft_prediction = TTFTPredictionMetrics(self.registry)
        self._add_own()

    def _add_own(self) -> None:
        """The families that llm-d has not."""
        self._estimate_ratio = self._histogram(
            "tessera_estimate_ratio",
            "Prompt tokens by price over those by usage.",
            RATIO_BUCKETS,
            ("model", "modality"),
        )
        self._estimate_reports = self._counter(
            "tessera_estimate_reports_total", "Usage reports compared with the price.", ("model", "modality")
        )
        self._rejections = self._counter(
            "tessera_rejections_total",
            "Requests turned away, by reason and the filter that left nobody.",
            ("reason", "filter"),
        )
        self._refusals = self._counter("tessera_refused_requests_total", "Requests answered as 4xx.", ("code",))
        self._endings = self._counter("tessera_requests_ended_total", "Requests by how they ended.", ("ending",))
        self._served = self._counter("tessera_endpoint_requests_total", "Requests by who served.", ("endpoint",))
        self._fallbacks = self._counter(
            "tessera_fallbacks_total", "Requests that another endpoint than the winner served.", ("endpoint",)
        )
        self._items = self._counter(
            "tessera_items_total", "Media items by how well their price is known.", ("modality", "basis", "reason")
        )
        self._guesses = self._counter("tessera_guesses_total", "What decisions had to guess.", ("guess",))
        self._untokenised = self._counter(
            "tessera_untokenised_total", "Requests matched approximately in exact mode, by reason.", ("reason",)
        )
        self._answers = self._counter(
            "tessera_answer_headers_total", "Answers to add headers to, by how it is known who served.", ("server",)
        )
        self._faults = self._counter(
            "tessera_internal_errors_total", "Our own faults, by where; at stream, each is a request's 500.", ("where",)
        )
        self.streams_ended_early = self._counter(
            "tessera_streams_ended_early_total", "Streams that ended before their response could have.", ()
        )

    def decided(self, decision: Decision, duration_s: float) -> None:
        """Count a decision, also one that chose nobody."""
        request = decision.request
        labels = self._labels(decision)
        self._requests.labels(*labels).inc()
        self._body.labels(*labels).observe(request.body_bytes)
        self._decision_s.observe(duration_s)
        for item in decision.priced.items:
            reason = self._word((item.reason or "").split(":", 1)[0])
            self._items.labels(str(item.item.modality), item.basis.word, reason).inc()
        self.stages.decided(decision, self._model(request.model))
        for guess in decision.guesses:
            self._guesses.labels(self._word(guess.split(":", 1)[0])).inc()
        if decision.priced.untokenised is not None:
            self._untokenised.labels(decision.priced.untokenised).inc()
        if rejection := decision.rejection:
            self._rejections.labels(str(rejection.reason), rejection.filter or "").inc()

    def settled(self, outcome: Outcome) -> None:
        """Count what came of a request."""
        self._endings.labels(str(outcome.ending)).inc()
        decision = outcome.decision
        if decision is None:
            return
        self._encoder_cache.settled(outcome)
        self._kv_belief.settled(outcome)
        self._ttft_prediction.settled(outcome)
        labels = self._labels(decision)
        self._duration.labels(*labels).observe(max(0.0, outcome.finished_at - decision.request.at))
        if outcome.first_token_at is not None and outcome.first_token_source is not FirstTokenSource.PREDICTED:
            streaming = "true" if decision.request.stream else "false"
            self._ttft.labels(*labels, streaming).observe(max(0.0, outcome.first_token_at - decision.request.at))
        if usage := outcome.usage:
            self._estimated(decision, usage.prompt_tokens)
            self._input.labels(*labels).observe(usage.prompt_tokens)
            if usage.completion_tokens is not None:
                self._output.labels(*labels).observe(usage.completion_tokens)
            if usage.cached_tokens is not None:
                self._cached.labels(*labels).observe(usage.cached_tokens)
        if outcome.ending is Ending.FAILED:
            self._errors.labels(*labels, "ModelServerError").inc()
        winner = decision.primary_stage.winner
        if outcome.endpoint:
            endpoint = self._endpoint(outcome.endpoint)
            self._served.labels(endpoint).inc()
            if winner and winner.id != outcome.endpoint:
                self._fallbacks.labels(endpoint).inc()

    def _estimated(self, decision: Decision, counted: int) -> None:
        """How far the whole prompt's price was off, by what the prompt holds."""
        kinds = {str(item.item.modality) for item in decision.priced.items}
        modality = "text" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"
        model = self._model(decision.request.model)
        self._estimate_reports.labels(model, modality).inc()
        if counted > 0:
            self._estimate_ratio.labels(model, modality).observe(decision.priced.num_prompt_tokens / counted)

    def refused(self, code: str) -> None:
        """Count a request that was answered as 4xx before a decision."""
        self._refusals.labels(self._word(code)).inc()

    def answered(self, server: Server) -> None:
        """Count an answer to whose headers plugins may add."""
        self._answers.labels(str(server)).inc()

    def failed(self, where: str) -> None:
        """Count a fault of our own code; ``stream`` is where it fails a request."""
        self._faults.labels(self._word(where)).inc()

    def add_gauges(self, read: "Gauges") -> None:
        """Show values that are read when the page is."""
        self.registry.register(read)

    def page(self) -> bytes:
        """The metrics page in Prometheus' text format."""
        return generate_latest(self.registry)

    def _labels(self, decision: Decision) -> tuple[str, str, str, str]:
        request = decision.request
        model = self._model(request.model)
        fairness = (request.objective.fairness_id or DEFAULT_FLOW)[:MAX_LABEL_CHARS]
        if (model, fairness) not in self._flows:
            if len(self._flows) < MAX_FLOWS:
                self._flows.add((model, fairness))
            else:
                fairness = OTHER
        return model, model, fairness, str(request.objective.priority)

    def _counter(self, name: str, text: str, labels: Iterable[str]) -> Counter:
        return Counter(name, text, tuple(labels), registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...], labels: Iterable[str] = MODEL_LABELS
    ) -> Histogram:
        return Histogram(name, text, tuple(labels), buckets=buckets, registry=self.registry)


Rows = Iterable[tuple[tuple[str, ...], float]]
GaugeFamily = tuple[str, str, tuple[str, ...], Rows]
"""Name (of a counter where it ends with ``_total``), help text, label names, rows of label values and number."""
Reader = Callable[[], Iterable[GaugeFamily]]


class Gauges(Collector):
    """Values that belong to somebody else and are asked for when the page is read."""

    def __init__(self, read: Reader) -> None:
        self._read = read

    def collect(self) -> Iterator[Metric]:
        """One family for each name."""
        for name, text, labels, rows in self._read():
            kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(name, text, labels=labels)
            for values, number in rows:
                family.add_metric(values, number)
            yield family
