"""How long do stages take that run on endpoints of their own, and how often do they fail?"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram

from tessera.core.types import Decision
from tessera.core.work import StageEnded, Work

STAGE_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


class StageMetrics:
    """Of what decisions send apart, and of what answers say in ``x-tessera-stages``."""

    def __init__(self, registry: CollectorRegistry, endpoint_label: Callable[[str], str]) -> None:
        """Register the families; ``endpoint_label`` bounds the labels that are endpoints."""
        self._endpoint_label = endpoint_label
        self._decided = Counter(
            "llm_d_epp_disagg_decision_total",
            "Requests of configurations with stages apart, by the stages that found an endpoint.",
            ("model_name", "decision_type"),
            registry=registry,
        )
        self._ended = Counter(
            "tessera_stages_ended_total",
            "Parts of requests' work that ended, by stage, endpoint and whether it was done or failed.",
            ("stage", "endpoint", "result"),
            registry=registry,
        )
        self._seconds = Histogram(
            "tessera_stage_duration_seconds",
            "How long parts of requests' work took that were done.",
            ("stage",),
            buckets=STAGE_BUCKETS,
            registry=registry,
        )
        self._unreadable = Counter(
            "tessera_stage_reports_unreadable_total",
            "Answers whose x-tessera-stages could not be read; nothing of them was believed.",
            registry=registry,
        )

    def decided(self, decision: Decision, model: str) -> None:
        """Count a decision of a handler with stages; ``model`` is a bounded label."""
        done = {stage.work for stage in decision.stages if stage.work is not None and stage.winners}
        if decision.rejection is None and done:
            names = [str(work) for work in (Work.ENCODE, Work.PREFILL, Work.DECODE) if work in done]
            self._decided.labels(model, "-".join(names) if len(names) > 1 else "decode-only").inc()

    def ended(self, event: StageEnded) -> None:
        """Count the end of a part of a request's work."""
        result = "done" if event.is_done else "failed"
        self._ended.labels(str(event.stage), self._endpoint_label(event.endpoint_id), result).inc()
        if event.is_done:
            self._seconds.labels(str(event.stage)).observe(event.seconds)

    def unreadable(self) -> None:
        """Count a report that could not be read."""
        self._unreadable.inc()
