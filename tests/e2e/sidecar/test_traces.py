"""That each request is a span with a child for each leg, below the client's own span."""

import pytest

from tessera.core.headers import ENCODERS, PREFILLER

from .conftest import chat

memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def spans(monkeypatch):
    from tessera.telemetry import sidecar_traces

    exporter = memory.InMemorySpanExporter()
    monkeypatch.setattr(sidecar_traces, "OTLPSpanExporter", lambda: exporter)
    return exporter


async def test_a_span_for_each_leg(world, spans):
    gone, encoder, prefiller = [await world.serve(*each) for each in (("encode", "refuse"), ("encode",), ("prefill",))]
    engine = await world.serve("decode")
    await world.begin(engine, is_tracing=True)
    headers = {ENCODERS: f"{gone.id},{encoder.id}", PREFILLER: prefiller.id, "x-request-id": "mine"}
    headers["traceparent"] = f"00-{TRACE}-{PARENT}-01"
    reply = await world.post(chat("http://a", "http://b"), **headers)
    assert reply.status == 200
    told = [server.asked[0].headers["traceparent"] for server in (encoder, prefiller, engine)]
    await world.sidecar.stop()
    await world.client.close()
    world.sidecar = None
    finished = {(span.name, span.attributes.get("server.address")): span for span in spans.get_finished_spans()}
    root = finished.pop(("forward_request", None))
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, PARENT)
    assert told == [[f"00-{TRACE}-{root.context.span_id:016x}-01"]] * 3, "legs belong to our span"
    assert root.resource.attributes["service.name"] == "tessera-sidecar"
    assert root.attributes["tessera.request_id"] == "mine"
    assert root.attributes["tessera.encode.transferred"] == 2
    assert root.attributes["tessera.prefill.handed_over"] is True
    assert {(name, span.attributes["http.response.status_code"]) for (name, _), span in finished.items()} == {
        ("encode", 0),
        ("encode", 200),
        ("prefill", 200),
        ("decode", 200),
    }
    assert finished["encode", encoder.id].attributes["tessera.num_items"] == 2
    for span in finished.values():
        assert span.parent.span_id == root.context.span_id
        assert root.start_time - 2_000_000 <= span.start_time <= span.end_time <= root.end_time + 2_000_000


async def test_without_tracing_the_clients_context_goes_on(world):
    engine = await world.serve("decode")
    await world.begin(engine)
    await world.post(chat(), traceparent=f"00-{TRACE}-{PARENT}-01")
    assert engine.asked[0].headers["traceparent"] == [f"00-{TRACE}-{PARENT}-01"]
