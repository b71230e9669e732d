"""One stream through the whole live router, without a socket: what is carried out, and what a fault touches."""

import asyncio
from dataclasses import replace

import msgspec
import pytest

from tessera.core.facts import InFlightLoad, Joined, Left, Load, Scraped
from tessera.core.filters.cached_media import CachedMediaFilter
from tessera.core.filters.concurrency_detector import ConcurrencyDetector
from tessera.core.filters.session_affinity import SessionAffinityFilter
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.plugin import Scorer
from tessera.core.types import Ending, Finding, ModelProfile
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc.budget import BodyBudget
from tessera.live.service import INLINE_BYTES, RouterService
from tessera.live.stream import Stream

MODES = pb.ProcessingMode
CHAT = "/v1/chat/completions"


class Breaks(Scorer):
    """Fails for requests of one model."""

    name = "breaks"

    def score(self, request, candidates):
        if request.request.model == "bad":
            raise KeyError("a secret")
        return [1.0] * len(candidates)


class Fixture:
    """A service with a clock of its own, one endpoint, and every outcome."""

    def __init__(self, build, **router):
        self.now = 100.0
        self.outcomes = []
        budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
        self.service = RouterService(
            build.router(**router),
            ModelProfile(),
            seed=7,
            budget=budget,
            clock=lambda: self.now,
            wall_clock=lambda: 1e9,
        )
        self.service.on_outcome = self.outcomes.append
        endpoint = build.endpoint(1)
        self.service.observe(Joined(at=100.0, endpoint=endpoint))
        load = Load(num_waiting=0, num_running=0, kv_usage_fraction=0.0, at=100.0)
        self.service.observe(Scraped(at=100.0, endpoint_id=endpoint.id, load=load))

    @property
    def load(self):
        return self.service.router.producers[0].load_of("10.0.0.1:8000")

    def stream(self):
        return Stream(self.service)


@pytest.fixture
def live(build):
    one = Fixture(build, scorers=[(Breaks(), 1.0)], filters=[ConcurrencyDetector(max_concurrency=2)])
    yield one
    one.service.close()


def headers(mode=MODES.BUFFERED, path=CHAT, *, end=False):
    pairs = [(":method", "POST"), (":path", path)]
    values = [pb.HeaderValue(key=key, raw_value=value.encode()) for key, value in pairs]
    return pb.ProcessingRequest(
        request_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=values), end_of_stream=end),
        protocol_config=pb.ProtocolConfiguration(request_body_mode=mode),
    )


def body(model="good", text="hello"):
    data = msgspec.json.encode({"model": model, "messages": [{"role": "user", "content": text}], "stream": True})
    return pb.ProcessingRequest(request_body=pb.HttpBody(body=data, end_of_stream=True))


async def send(stream, *messages):
    answers = []
    for message in messages:
        answers += await stream.receive(message)
    return answers


async def test_a_request_is_routed_charged_and_settled(live):
    stream = live.stream()
    go_on, routed = await send(stream, headers(), body())
    assert go_on == pb.ProcessingResponse(request_headers=pb.HeadersResponse())
    assert routed.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"] == "10.0.0.1:8000"
    assert (live.load.num_requests, live.load.num_uncached_tokens, live.service.budget.held_bytes) == (1, 3, 0)
    live.now = 101.0
    stream.closed()
    (outcome,) = live.outcomes
    assert (outcome.ending, outcome.finished_at, outcome.decision.request.at) == (Ending.FINISHED, 101.0, 100.0)
    assert live.load == InFlightLoad()


@pytest.mark.parametrize("mode", [MODES.NONE, MODES.STREAMED])
async def test_a_gateway_that_keeps_the_body_gets_a_destination_too(live, mode):
    (routed,) = await send(live.stream(), headers(mode))
    assert routed.WhichOneof("response") == "request_headers"
    (row,) = live.service.decisions.newest()
    decision = live.service.decisions.find(row["request_id"])
    assert (decision.request.dialect, decision.request.guesses) == ("opaque", ("body-not-sent",))


async def test_a_large_body_is_read_beside_the_loop(live):
    _, routed = await send(live.stream(), headers(), body(text="x" * INLINE_BYTES))
    assert routed.WhichOneof("response") == "request_body"
    assert live.load.num_uncached_tokens == (INLINE_BYTES + 4) // 4


async def test_a_fault_of_ours_answers_its_own_request_alone(live):
    healthy, broken = live.stream(), live.stream()
    await send(healthy, headers())
    _, refusal = await send(broken, headers(), body("bad"))
    assert refusal.immediate_response.status.code == 500
    assert msgspec.json.decode(refusal.immediate_response.body)["error"]["type"] == "internal_server_error"
    assert b"secret" not in refusal.immediate_response.body
    (routed,) = await send(healthy, body())
    assert routed.WhichOneof("response") == "request_body"
    assert live.load.num_requests == 1
    broken.closed()
    healthy.closed()
    assert [outcome.ending for outcome in live.outcomes] == [Ending.REJECTED, Ending.FINISHED]
    assert b'tessera_internal_errors_total{where="stream"} 1.0' in live.service.metrics.page()


async def test_a_stream_that_breaks_off_before_a_decision_is_cancelled(live):
    stream = live.stream()
    await send(stream, headers(MODES.FULL_DUPLEX_STREAMED))
    stream.closed()
    (outcome,) = live.outcomes
    assert (outcome.ending, outcome.decision) == (Ending.CANCELLED, None)
    assert live.load == InFlightLoad()


async def test_a_body_that_is_no_json_is_a_400(live):
    stream = live.stream()
    wrong = pb.ProcessingRequest(request_body=pb.HttpBody(body=b"{", end_of_stream=True))
    _, refusal = await send(stream, headers(), wrong)
    assert refusal.immediate_response.status.code == 400
    stream.closed()
    (outcome,) = live.outcomes
    assert (outcome.ending, outcome.status, outcome.refusal) == (Ending.REJECTED, 400, "invalid_request_error")


async def test_a_full_pool_tells_the_client_to_wait(live):
    for _ in range(2):
        await send(live.stream(), headers(), body())
    stream = live.stream()
    _, refusal = await send(stream, headers(), body())
    answered = {each.header.key: each.header.raw_value for each in refusal.immediate_response.headers.set_headers}
    assert refusal.immediate_response.status.code == 429
    assert (answered["x-llm-d-request-dropped-reason"], answered["retry-after"]) == (b"rejected-saturated", b"1")
    stream.closed()
    assert live.load.num_requests == 2
    assert [(outcome.status, outcome.refusal) for outcome in live.outcomes] == [(429, "rejected-saturated")]


async def test_media_that_is_gone_is_the_clients_to_send_again(build):
    cached = CachedMediaFilter()
    one = Fixture(build, filters=[cached])
    picture = replace(build.item(10), item=build.media(identifier="u", uuid="u"))
    cached.record(build.decision(build.priced(5, [picture]), build.stage([build.candidate(7)])))
    cached.observe(Left(at=100.0, endpoint=build.endpoint(7)))
    stream = one.stream()
    _, refusal = await send(stream, headers(), body(text=[{"type": "image_url", "image_url": None, "uuid": "u"}]))
    assert refusal.immediate_response.status.code == 422
    error = msgspec.json.decode(refusal.immediate_response.body)["error"]
    assert error["code"] == "media_not_cached"
    assert error["message"] == "no endpoint holds the media of uuid 'u' any more; send its content again"
    stream.closed()
    assert [(outcome.status, outcome.refusal) for outcome in one.outcomes] == [(422, "media_not_cached")]
    page = one.service.metrics.page()
    assert b'tessera_refused_requests_total{code="media_not_cached"} 1.0' in page
    assert b'tessera_rejections_total{filter="cached-media-filter",reason="media_not_cached"} 1.0' in page
    one.service.close()


async def test_a_client_that_leaves_while_its_body_is_read_is_cancelled(live):
    stream = live.stream()
    await send(stream, headers())
    reading = asyncio.create_task(stream.receive(body(text="x" * (INLINE_BYTES * 8))))
    await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    stream.closed()
    assert [outcome.ending for outcome in live.outcomes] == [Ending.CANCELLED]
    assert live.load == InFlightLoad()
    assert live.service.budget.held_bytes == 0


async def test_a_fault_in_counting_leaves_no_ledger_open(live, monkeypatch):
    def breaks(_):
        raise KeyError("metrics")

    monkeypatch.setattr(live.service.metrics, "settled", breaks)
    stream = live.stream()
    await send(stream, headers(), body())
    stream.closed()
    assert live.load == InFlightLoad()
    assert b'tessera_internal_errors_total{where="metrics"} 1.0' in live.service.metrics.page()


async def test_a_log_line_is_bounded_and_cannot_be_forged(live, caplog):
    caplog.set_level("INFO", "tessera.requests")
    parts = [{"type": "image_url", "image_url": {"url": f"http://e/{number}"}} for number in range(1000)]
    data = msgspec.json.encode({"model": "good", "messages": [{"role": "user", "content": parts}]})
    opening = headers()
    forged = pb.HeaderValue(key="x-request-id", raw_value=b"a endpoint=evil")
    opening.request_headers.headers.headers.append(forged)
    stream = live.stream()
    await send(stream, opening, pb.ProcessingRequest(request_body=pb.HttpBody(body=data, end_of_stream=True)))
    stream.closed()
    (line,) = caplog.messages
    assert "client_request_id='a endpoint=evil' dialect=chat" in line
    assert line.endswith("guesses=" + ",".join(f"link:{number}" for number in range(8)) + " num_guesses_more=992")


async def test_a_finding_is_one_warning(live, caplog):
    class Finds(InflightLoadProducer):
        def settle(self, outcome):
            return [Finding(message="the price is wrong; set it: ...")]

    router = live.service.router
    live.service.router = replace(router, memories=(*router.memories, Finds()))
    stream = live.stream()
    await send(stream, headers(), body())
    stream.closed()
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == ["the price is wrong; set it: ..."]
    assert live.load == InFlightLoad()


def response(status="200", served=None):
    value = pb.HeaderValue(key=":status", raw_value=status.encode())
    message = pb.ProcessingRequest(response_headers=pb.HttpHeaders(headers=pb.HeaderMap(headers=[value])))
    if served is not None:
        lb = message.metadata_context.filter_metadata["envoy.lb"]
        lb.update({"x-gateway-destination-endpoint-served": served})
    return message


@pytest.fixture
def answering(build):
    """One whose answers carry tokens of sessions, over three endpoints, the first of which wins."""
    keeper = SessionAffinityFilter()
    one = Fixture(build, filters=[keeper])
    one.service.router = replace(one.service.router, answering=(keeper,))
    for number in (2, 3):
        one.service.observe(Joined(at=100.0, endpoint=build.endpoint(number)))
        busy = Load(num_waiting=9, num_running=9, kv_usage_fraction=0.9, at=100.0)
        one.service.observe(Scraped(at=100.0, endpoint_id=f"10.0.0.{number}:8000", load=busy))
    yield one
    one.service.close()


def added(answer):
    """The headers that an answer to a response's headers adds."""
    assert answer.WhichOneof("response") == "response_headers"
    options = answer.response_headers.response.header_mutation.set_headers
    return {each.header.key: each.header.raw_value.decode() for each in options}


FIRST, SECOND = "ZGVmYXVsdC8xMC4wLjAuMTo4MDAw", "ZGVmYXVsdC8xMC4wLjAuMjo4MDAw"


@pytest.mark.parametrize("mode", [MODES.BUFFERED, MODES.FULL_DUPLEX_STREAMED])
@pytest.mark.parametrize(
    ("status", "served", "token", "server"),
    [
        ("200", "10.0.0.2:8000", SECOND, "said"),
        ("499", "10.0.0.1:8000", FIRST, "said"),
        ("200", None, FIRST, "assumed"),
        ("200", "10.9.9.9:1", None, "stranger"),
        ("500", "10.0.0.2:8000", None, None),
        ("503", None, None, None),
        ("", "10.0.0.2:8000", None, None),
    ],
)
async def test_an_answer_carries_the_token_of_who_served(answering, mode, status, served, token, server):
    stream = answering.stream()
    *_, routed = await send(stream, headers(mode), body())
    assert routed.WhichOneof("response") == "request_body"
    (answer,) = await send(stream, response(status, served))
    assert added(answer) == ({} if token is None else {"x-session-token": token})
    page = answering.service.metrics.page().decode()
    counted = [line for line in page.splitlines() if line.startswith("tessera_answer_headers_total{")]
    assert counted == ([f'tessera_answer_headers_total{{server="{server}"}} 1.0'] if server else [])
    stream.closed()
    (outcome,) = answering.outcomes
    assert outcome.endpoint == (served or "10.0.0.1:8000")
    assert outcome.status == (int(status) if status else None)


async def test_the_token_leads_back(answering):
    with_token = headers()
    with_token.request_headers.headers.headers.add(key="x-session-token", raw_value=SECOND.encode())
    _, routed = await send(answering.stream(), with_token, body())
    assert routed.dynamic_metadata["envoy.lb"]["x-gateway-destination-endpoint"] == "10.0.0.2:8000"
    assert "x-session-token" not in routed.request_body.response.header_mutation.remove_headers


async def test_a_response_before_a_decision_is_let_through(answering):
    stream = answering.stream()
    _, answer = await send(stream, headers(), response("413"))
    assert added(answer) == {}


async def test_a_fault_leaves_the_answer_as_it_is(answering, monkeypatch):
    def breaks(decision, served):
        raise KeyError("a secret")

    stream = answering.stream()
    await send(stream, headers(), body())
    monkeypatch.setattr(answering.service.router.answering[0], "answer_headers", breaks)
    (answer,) = await send(stream, response())
    assert added(answer) == {}
    assert b'tessera_internal_errors_total{where="answer"} 1.0' in answering.service.metrics.page()
    stream.closed()
    assert [outcome.ending for outcome in answering.outcomes] == [Ending.FINISHED]
