"""What does an operator of a sidecar watch? Stages, and what was done here instead, by cause."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tessera.core.flow.stages import FlowReport
from tessera.core.work import Work
from tessera.telemetry.metrics import LATENCY_BUCKETS


class SidecarMetrics:
    """Every label value is one of a few words of ours: stages, causes, dialects, statuses by hundreds."""

    def __init__(self) -> None:
        registry = self._registry = CollectorRegistry()
        self.in_flight = Gauge(
            "tessera_sidecar_requests_in_flight", "Requests whose stages may run apart, now.", registry=registry
        )
        self._requests = Counter(
            "tessera_sidecar_requests",
            "Requests whose stages may run apart, by the answer's status; 0xx: the client went first.",
            ["dialect", "status"],
            registry=registry,
        )
        self._cut = self._counter("answers_cut", "Answers that began and were not completed.")
        self._seconds = Histogram(
            "tessera_sidecar_stage_seconds",
            "How long a stage took, retries included; decode until the answer's end.",
            ["stage"],
            buckets=LATENCY_BUCKETS,
            registry=registry,
        )
        for stage in Work:
            self._seconds.labels(stage)
        self._encode_requested = self._counter("encode_requested", "Distinct items that were to be encoded elsewhere.")
        self._encoded = self._counter("encoded", "Items that an encoder confirmed.")
        self._transferred = self._counter("transferred", "Items whose embeddings the engine was told to fetch.")
        self._handed_over = self._counter("handed_over", "Requests whose KV blocks the engine was told to fetch.")
        self._fell_back = Counter(
            "tessera_sidecar_fell_back",
            "Items (encode) and requests (prefill) that the engine worked on itself, by cause.",
            ["stage", "cause"],
            registry=registry,
        )
        self._retried = Counter(
            "tessera_sidecar_retried",
            "Legs that failed and were given to another server, by cause.",
            ["stage", "cause"],
            registry=registry,
        )
        self._denied = Counter(
            "tessera_sidecar_denied",
            "Servers named by a header that may not be asked.",
            ["stage"],
            registry=registry,
        )

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"tessera_sidecar_{name}", text, registry=self._registry)

    def ended(self, dialect: str, status: int, report: FlowReport | None, *, is_cut: bool) -> None:
        """Count a request by its answer's status, 0 where the client went first, and what its flow did."""
        self._requests.labels(dialect, f"{status // 100}xx").inc()
        self._cut.inc(is_cut)
        if report is None:
            return
        for stage, seconds in report.seconds.items():
            self._seconds.labels(stage).observe(seconds)
        self._encode_requested.inc(report.num_encode_requested)
        self._encoded.inc(report.num_encoded)
        self._transferred.inc(report.num_transferred)
        self._handed_over.inc(report.is_handed_over)
        for counter, counts in ((self._fell_back, report.fell_back), (self._retried, report.retried)):
            for (stage, cause), count in counts.items():
                counter.labels(stage, cause).inc(count)

    def denied(self, stage: Work, count: int) -> None:
        """Count servers that may not be asked."""
        if count:
            self._denied.labels(stage).inc(count)

    def page(self) -> bytes:
        """The metrics page, in Prometheus' text format."""
        return generate_latest(self._registry)
