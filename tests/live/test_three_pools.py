"""A request for three pools through the live router, without a socket: what leaves, and what is told of stages."""

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest

from tessera.config.endpoints import read_endpoints_file
from tessera.config.load import load_file
from tessera.core.facts import InFlightLoad, Joined, Left
from tessera.live.app import reports_stages
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.budget import BodyBudget
from tessera.live.open_requests import LogEntry
from tessera.live.service import RouterService
from tessera.live.stream import Stream

EXAMPLES = Path(__file__).parents[2] / "examples"
FORGED = {
    "x-gateway-destination-endpoint": "6.6.6.6:1",
    "x-prefiller-host-port": "6.6.6.6:1",
    "x-encoder-hosts-ports": "6.6.6.6:1",
    "x-kv-cache-source-host-port": "6.6.6.6:1",
    "x-data-parallel-host-port": "6.6.6.6:1",
    "x-tessera-encode-plan": "0=6.6.6.6:1",
    "x-tessera-stages": "encode=6.6.6.6:1,1,200,1",
}


def chat(num_pictures):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", 1280, 720, 8, 2, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    content = [{"type": "text", "text": "what is this?"}]
    for number in range(num_pictures):
        png = head + struct.pack(">I", 1) + b"IDAT" + bytes([number]) + bytes(4)
        png += struct.pack(">I", 0) + b"IEND" + bytes(4)
        url = "data:image/png;base64," + base64.b64encode(png).decode()
        content.append({"type": "image_url", "image_url": {"url": url}})
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


class Live:
    """One example's router and one stream."""

    def __init__(self, name):
        loaded = load_file(EXAMPLES / f"{name}.yaml")
        self.now = 100.0
        budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
        self.service = RouterService(
            loaded.router, loaded.profile, seed=7, budget=budget, clock=lambda: self.now, wall_clock=lambda: 1e9
        )
        self.outcomes = []
        self.service.on_outcome = self.outcomes.append
        endpoints, _ = read_endpoints_file(EXAMPLES / "endpoints-three-pools.yaml")
        for endpoint in endpoints:
            self.service.observe(Joined(at=100.0, endpoint=endpoint))
        self.stream = Stream(self.service)

    def ledger(self, endpoint_id):
        producers = self.service.router.producers
        return next(each for each in producers if each.type == "inflight-load-producer").load_of(endpoint_id)

    async def ask(self, num_pictures, headers=FORGED):
        """Set headers and removed ones of the answer that routes."""
        pairs = {":method": "POST", ":path": "/v1/chat/completions", **headers}
        made = [pb.HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs.items()]
        first = pb.HttpHeaders(headers=pb.HeaderMap(headers=made))
        mode = pb.ProtocolConfiguration(request_body_mode=pb.ProcessingMode.BUFFERED)
        await self.stream.receive(pb.ProcessingRequest(request_headers=first, protocol_config=mode))
        body = pb.HttpBody(body=chat(num_pictures), end_of_stream=True)
        (answer,) = await self.stream.receive(pb.ProcessingRequest(request_body=body))
        mutation = answer.request_body.response.header_mutation
        return {each.header.key: each.header.raw_value.decode() for each in mutation.set_headers}, set(
            mutation.remove_headers
        )

    async def answered(self, *reports):
        """The answer to a response's headers with these reports."""
        headers = [pb.HeaderValue(key=":status", raw_value=b"200")]
        headers += [pb.HeaderValue(key="X-Tessera-Stages", raw_value=each.encode()) for each in reports]
        message = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=headers)))
        (answer,) = await self.stream.receive(message)
        return answer.response_headers.response.header_mutation

    def count(self, name, **labels):
        return self.service.metrics.registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("name", "num_pictures", "ours"),
    [
        ("llm-d-e-p-d", 2, {"x-prefiller-host-port", "x-encoder-hosts-ports"}),
        ("llm-d-e-p-d", 0, {"x-prefiller-host-port"}),
        ("llm-d-e-pd", 2, {"x-encoder-hosts-ports"}),
        ("llm-d-e-pd", 0, set()),
        ("quickstart", 2, set()),
    ],
)
async def test_the_endpoint_is_told_by_us_alone_and_forged_headers_go(name, num_pictures, ours):
    live = Live(name)
    told, removed = await live.ask(num_pictures)
    assert told.keys() == ours | {"x-gateway-destination-endpoint"}
    assert not any("6.6.6.6" in value for value in told.values())
    assert removed == FORGED.keys() - told.keys()
    live.stream.closed()


async def test_a_report_gives_ledgers_back_is_counted_and_goes_no_further():
    live = Live("llm-d-e-p-d")
    told, _ = await live.ask(2, {})
    encoder, prefiller = told["x-encoder-hosts-ports"], told["x-prefiller-host-port"]
    assert live.ledger(encoder).encode_embeds == 1800
    report = f"encode={encoder},2,200,0.25;prefill={prefiller},0,200,0.5"
    mutation = await live.answered(report)
    assert list(mutation.remove_headers) == ["x-tessera-stages"]
    assert live.ledger(encoder) == live.ledger(prefiller) == InFlightLoad()
    done = {"stage": "encode", "endpoint": encoder, "result": "done"}
    assert live.count("tessera_stages_ended_total", **done) == 1
    assert live.count("tessera_stage_duration_seconds_sum", stage="prefill") == 0.5
    # The access log says it once more: no news.
    (request_id,) = live.service.open._open
    live.service.logged(LogEntry(request_id=request_id, status=200, stages=report))
    live.stream.closed()
    assert live.count("tessera_stages_ended_total", **done) == 1
    assert [each.stage for each in live.outcomes[0].stages] == ["encode", "prefill"]


async def test_where_responses_are_not_shown_the_access_log_tells():
    live = Live("llm-d-e-pd")
    told, _ = await live.ask(1, {})
    encoder = told["x-encoder-hosts-ports"]
    (request_id,) = live.service.open._open
    live.service.logged(LogEntry(request_id=request_id, status=200, stages=f"encode={encoder},0,503,0.25"))
    assert live.ledger(encoder) == InFlightLoad()
    assert live.count("tessera_stages_ended_total", stage="encode", endpoint=encoder, result="failed") == 1
    live.stream.closed()
    assert live.outcomes[0].stages[0].status == 503


@pytest.mark.parametrize("reports", [("nonsense",), ("encode=10.0.0.1:8000,1,200,1", "encode=10.0.0.2:8000,1,200,1")])
async def test_what_is_no_report_changes_nothing_and_goes_no_further_either(reports):
    live = Live("llm-d-e-pd")
    told, _ = await live.ask(1, {})
    mutation = await live.answered(*reports)
    assert list(mutation.remove_headers) == ["x-tessera-stages"]
    assert live.ledger(told["x-encoder-hosts-ports"]).encode_embeds == 900
    assert live.count("tessera_stage_reports_unreadable_total") == 1
    live.stream.closed()


async def test_an_answer_without_report_passes_untouched():
    live = Live("llm-d-e-pd")
    await live.ask(1, {})
    mutation = await live.answered()
    assert (list(mutation.remove_headers), list(mutation.set_headers)) == ([], [])
    live.stream.closed()


@pytest.mark.parametrize(
    ("name", "roles", "expected"),
    [
        ("quickstart", ("decode", "both", None), False),
        ("quickstart", ("decode", "encode"), True),
        ("quickstart", ("prefill",), True),
        ("llm-d-p-d", (), True),
    ],
)
def test_responses_are_looked_at_where_there_are_stages(build, name, roles, expected):
    endpoints = [build.endpoint(number, role=role) for number, role in enumerate(roles, 1)]
    assert reports_stages(load_file(EXAMPLES / f"{name}.yaml").router, endpoints) is expected


@pytest.mark.parametrize(
    ("name", "num_pictures", "kind"),
    [
        ("llm-d-e-p-d", 1, "encode-prefill-decode"),
        ("llm-d-e-p-d", 0, "prefill-decode"),
        ("llm-d-e-pd", 1, "encode-decode"),
        ("llm-d-e-pd", 0, "decode-only"),
    ],
)
async def test_decisions_are_counted_by_their_stages_as_llm_d_does(name, num_pictures, kind):
    live = Live(name)
    await live.ask(num_pictures, {})
    assert live.count("llm_d_epp_disagg_decision_total", model_name="m", decision_type=kind) == 1
    live.stream.closed()


async def test_a_stage_that_found_nobody_is_counted():
    live = Live("llm-d-e-pd")
    for endpoint in live.service.fleet.endpoints[:3]:
        live.service.observe(Left(at=100.0, endpoint=endpoint))
    told, _ = await live.ask(1, {})
    assert told.keys() == {"x-gateway-destination-endpoint"}
    assert live.count("tessera_guesses_total", guess="no-encode-endpoint") == 1
    live.stream.closed()
