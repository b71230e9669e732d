"""Which spans tell of a request whose stages ran apart?

``forward_request`` with one child for each stage, server and status that its flow had to do
with: ``encode``, ``prefill``, ``decode``, as llm-d's sidecar calls them. OpenTelemetry is an extra; where
spans go is told by its own environment variables (``OTEL_EXPORTER_OTLP_ENDPOINT``, ...).
"""

from collections.abc import MutableMapping
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagate import extract, inject
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from tessera.core.flow.stages import FlowReport

SERVICE: Final = "tessera-sidecar"
"""Unless ``OTEL_SERVICE_NAME`` says otherwise."""
_CONTEXT_HEADERS: Final = ("traceparent", "tracestate")


class RequestSpan:
    """The span of one request, from ``SidecarTracer.begin`` to ``end``."""

    def __init__(self, tracer: Tracer, span: Span, wall_offset_s: float) -> None:
        self._tracer = tracer
        self._span = span
        self._wall_offset_s = wall_offset_s

    def end(self, status: int, report: FlowReport | None) -> None:
        """The answer's status, 0 where the client went first, and what the flow did."""
        self._span.set_attribute("http.response.status_code", status)
        if status >= 500:
            self._span.set_status(Status(StatusCode.ERROR))
        if report is not None:
            self._tell(report)
        self._span.end()

    def _tell(self, report: FlowReport) -> None:
        span, context = self._span, set_span_in_context(self._span)
        span.set_attribute("tessera.encode.requested", report.num_encode_requested)
        span.set_attribute("tessera.encode.transferred", report.num_transferred)
        span.set_attribute("tessera.prefill.handed_over", report.is_handed_over)
        for (stage, cause), count in report.fell_back.items():
            span.set_attribute(f"tessera.fell_back.{stage}.{cause}", count)
        for (stage, endpoint, status), entry in report.entries.items():
            child = self._tracer.start_span(
                str(stage), context, SpanKind.CLIENT, start_time=self._wall_ns(entry.started_at)
            )
            child.set_attributes({"server.address": endpoint, "http.response.status_code": status})
            if entry.num_items:
                child.set_attribute("tessera.num_items", entry.num_items)
            if not 200 <= status < 300:
                child.set_status(Status(StatusCode.ERROR))
            child.end(self._wall_ns(entry.ended_at))

    def _wall_ns(self, at: float) -> int:
        return int((at + self._wall_offset_s) * 1e9)


class SidecarTracer:
    """Makes spans and sends them in batches."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        """Without an exporter, over OTLP and HTTP."""
        # The environment's name comes last, and so wins.
        ours = Resource({SERVICE_NAME: SERVICE})
        self._provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()))
        self._provider.add_span_processor(BatchSpanProcessor(exporter or OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("tessera.live.sidecar")

    def begin(self, dialect: str, headers: MutableMapping[str, str], *, at: float, wall_at: float) -> RequestSpan:
        """A span below the one that ``headers`` name, which name ours afterwards.

        ``at`` is the clock of the flow's events, ``wall_at`` the same instant in Unix seconds.
        """
        parent = extract({name: headers[name] for name in _CONTEXT_HEADERS if name in headers})
        start = int(wall_at * 1e9)
        span = self._tracer.start_span("forward_request", parent, SpanKind.SERVER, start_time=start)
        span.set_attributes({"tessera.dialect": dialect, "tessera.request_id": headers.get("x-request-id", "")})
        for name in _CONTEXT_HEADERS:
            headers.pop(name, None)
        inject(headers, set_span_in_context(span))
        return RequestSpan(self._tracer, span, wall_at - at)

    def close(self) -> None:
        """Send what is left; waits for it."""
        self._provider.shutdown()
