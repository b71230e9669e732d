"""The generated configuration in a real Envoy: a small picker answers ext_proc, two servers play the endpoints."""

import asyncio
import hashlib
import json
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import pytest
import pytest_asyncio
from aiohttp import web

from tessera.live.envoy import BASELINE_LISTENER, LISTENER, BodyMode, EnvoySettings, envoy_config
from tessera.live.envoy_clusters import write_endpoints
from tessera.live.envoy_process import EnvoyProcess
from tessera.live.extproc import access_log_pb2 as log_pb
from tessera.live.extproc import ext_proc_pb2 as pb
from tessera.live.extproc import names

BODY_LIMIT = 20_000_000
CHAT = "/v1/chat/completions"
USAGE = {"prompt_tokens": 11, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}}


@dataclass
class Picker:
    """Answers every ext_proc stream with ``destination``, and keeps what it saw and what the access log says."""

    destination: str = ""
    rejection: pb.ImmediateResponse | None = None
    headers: list[dict[str, str]] = field(default_factory=list)
    body_sizes: list[int] = field(default_factory=list)
    entries: dict[str, asyncio.Future[log_pb.HTTPAccessLogEntry]] = field(default_factory=dict)
    port: int = 0

    async def process(self, requests: AsyncIterator[pb.ProcessingRequest], _: Any) -> AsyncIterator[Any]:
        async for request in requests:
            if request.HasField("request_headers"):
                seen = request.request_headers.headers.headers
                self.headers.append({each.key: each.raw_value.decode() for each in seen})
                has_body = not request.request_headers.end_of_stream
                yield pb.ProcessingResponse(request_headers=pb.HeadersResponse()) if has_body else self.answer(False)
            else:
                self.body_sizes.append(len(request.request_body.body))
                yield self.answer(True)

    def answer(self, in_body: bool) -> pb.ProcessingResponse:
        if self.rejection is not None:
            return pb.ProcessingResponse(immediate_response=self.rejection)
        common = pb.CommonResponse()
        for key, value in ((names.DESTINATION, self.destination), ("x-tessera-plan", "ours")):
            header = pb.HeaderValue(key=key, raw_value=value.encode())
            common.header_mutation.set_headers.add(header=header, append_action="OVERWRITE_IF_EXISTS_OR_ADD")
        response = pb.ProcessingResponse()
        (response.request_body if in_body else response.request_headers).response.CopyFrom(common)
        lb = {names.DESTINATION: self.destination}
        response.dynamic_metadata.update({names.LB_NAMESPACE: lb, names.OWN_NAMESPACE: {names.REQUEST_ID_KEY: "r-17"}})
        return response

    async def stream(self, messages: AsyncIterator[log_pb.StreamAccessLogsMessage], _: Any) -> Any:
        async for message in messages:
            for entry in message.http_logs.log_entry:
                self.entry(entry.request.request_id).set_result(entry)
        return log_pb.StreamAccessLogsResponse()

    def entry(self, request_id: str) -> asyncio.Future[log_pb.HTTPAccessLogEntry]:
        return self.entries.setdefault(request_id, asyncio.get_running_loop().create_future())

    async def serve(self) -> grpc.aio.Server:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1), ("grpc.so_reuseport", 0)])
        process = grpc.stream_stream_rpc_method_handler(
            self.process, pb.ProcessingRequest.FromString, pb.ProcessingResponse.SerializeToString
        )
        stream = grpc.stream_unary_rpc_method_handler(
            self.stream, log_pb.StreamAccessLogsMessage.FromString, log_pb.StreamAccessLogsResponse.SerializeToString
        )
        for path, handler in ((names.EXT_PROC_METHOD, process), (names.ACCESS_LOG_METHOD, stream)):
            service, _, method = path[1:].partition("/")
            server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service, {method: handler})])
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        return server


class Upstream:
    """One endpoint; ``behave`` decides the answers, ``seen`` keeps headers and body hash of each request."""

    def __init__(self) -> None:
        self.behave: Callable[[web.Request], Any] = ok
        self.seen: list[tuple[dict[str, str], str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        digest = hashlib.sha256(await request.read()).hexdigest()
        self.seen.append(({key.lower(): value for key, value in request.headers.items()}, digest))
        answer = self.behave(request)
        return answer if isinstance(answer, web.StreamResponse) else await answer

    async def serve(self) -> web.AppRunner:
        app = web.Application(client_max_size=2**30)
        app.router.add_route("*", "/{path:.*}", self.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        self.address = f"127.0.0.1:{self.port}"
        return runner


def ok(_: web.Request) -> web.Response:
    return web.json_response({"usage": USAGE})


def failing(status: int) -> Callable[[web.Request], web.Response]:
    return lambda _: web.json_response({"own": "words"}, status=status)


@dataclass
class World:
    """An Envoy between a client and the endpoints ``refusing``, ``first`` and ``second``."""

    picker: Picker
    first: Upstream
    second: Upstream
    refusing: str
    eds_path: Path
    envoy: EnvoyProcess
    session: aiohttp.ClientSession
    server: grpc.aio.Server

    @property
    def endpoints(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", int(each.rpartition(":")[2])) for each in (self.refusing, *self.addresses)]

    @property
    def addresses(self) -> tuple[str, str]:
        return self.first.address, self.second.address

    async def post(
        self, body: bytes = b"{}", headers: Mapping[str, str] | None = None, listener: str = LISTENER
    ) -> tuple[aiohttp.ClientResponse, bytes]:
        sent = {"content-type": "application/json"} | dict(headers or {})
        url = f"http://127.0.0.1:{self.envoy.ports[listener]}{CHAT}"
        async with self.session.post(url, data=body, headers=sent) as response:
            return response, await response.read()

    async def logged(self, response: aiohttp.ClientResponse) -> log_pb.HTTPAccessLogEntry:
        async with asyncio.timeout(10):
            return await self.picker.entry(response.headers["x-request-id"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    picker, first, second = Picker(), Upstream(), Upstream()
    server, runners = await picker.serve(), [await first.serve(), await second.serve()]
    # Bound but not listening: connecting is refused, and nobody else can get the port.
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        refusing = f"127.0.0.1:{closed.getsockname()[1]}"
        eds_path = tmp_path_factory.mktemp("envoy") / "endpoints.json"
        settings = EnvoySettings(
            listen_port=0,
            baseline_listen_port=0,
            ext_proc_address=f"127.0.0.1:{picker.port}",
            eds_path=eds_path,
            max_body_bytes=BODY_LIMIT,
            reports_stages=True,
            concurrency=1,
        )
        write_endpoints(eds_path, [("127.0.0.1", int(each.rpartition(":")[2])) for each in (refusing, first.address)])
        envoy = await EnvoyProcess.start(envoy_config(settings), concurrency=settings.concurrency)
        async with aiohttp.ClientSession() as session:
            world = World(picker, first, second, refusing, eds_path, envoy, session, server)
            yield world
        await envoy.stop()
    await world.server.stop(None)
    for runner in runners:
        await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="module")
async def world(shared: World) -> World:
    """The shared Envoy with everything as at its start, and all three endpoints known to it."""
    shared.picker.destination, shared.picker.rejection = ",".join(shared.addresses), None
    write_endpoints(shared.eds_path, shared.endpoints)
    await until(lambda: known(shared, 3))
    shared.picker.headers.clear()
    shared.picker.body_sizes.clear()
    for upstream in (shared.first, shared.second):
        upstream.behave = ok
        upstream.seen.clear()
    return shared


async def known(world: World, count: int) -> bool:
    async with world.session.get(f"{world.envoy.admin_url}/clusters?format=json") as response:
        clusters = (await response.json(content_type=None))["cluster_statuses"]
    return any(each["name"] == "endpoints" and len(each.get("host_statuses", ())) == count for each in clusters)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(10):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.01)


pytestmark = [pytest.mark.envoy, pytest.mark.asyncio(loop_scope="module")]


async def test_a_body_as_large_as_the_limit_arrives_whole(world: World) -> None:
    body = bytes(range(250)) * (BODY_LIMIT // 250)
    response, _ = await world.post(body)
    assert response.status == 200
    assert world.picker.body_sizes == [BODY_LIMIT]
    assert [digest for _, digest in world.first.seen] == [hashlib.sha256(body).hexdigest()]


async def test_a_body_over_the_limit_is_refused_in_openai_words(world: World) -> None:
    response, body = await world.post(bytes(BODY_LIMIT + 1))
    assert response.status == 413
    assert response.headers["content-type"] == "application/json"
    error = json.loads(body)["error"]
    assert "more than 20000000 bytes" in error.pop("message")
    assert error == {"type": "invalid_request_error", "param": None, "code": "request_too_large"}
    assert (world.picker.body_sizes, world.first.seen, world.second.seen) == ([], [], [])


async def test_a_refusing_endpoint_is_followed_by_the_next_of_the_list(world: World) -> None:
    world.picker.destination = f"{world.refusing},{world.second.address},{world.first.address}"
    response, _ = await world.post(bytes(BODY_LIMIT))
    common = (await world.logged(response)).common_properties
    assert response.status == 200
    assert (len(world.first.seen), len(world.second.seen)) == (0, 1)
    assert common.upstream_request_attempt_count == 2
    assert common.upstream_remote_address.socket_address.port_value == world.second.port
    assert common.metadata.filter_metadata[names.LB_NAMESPACE][names.DESTINATION_SERVED] == world.second.address


async def test_a_503_is_followed_by_the_next_of_the_list(world: World) -> None:
    world.first.behave = failing(503)
    response, _ = await world.post()
    assert response.status == 200
    assert (len(world.first.seen), len(world.second.seen)) == (1, 1)
    assert (await world.logged(response)).common_properties.upstream_request_attempt_count == 2


async def test_behind_an_exhausted_list_no_host_that_failed_is_offered_again(world: World) -> None:
    world.picker.destination = world.refusing
    statuses = [(await world.post())[0].status for _ in range(9)]
    assert statuses == [200] * 9
    assert len(world.first.seen) + len(world.second.seen) == 9


async def test_a_500_is_not_retried_even_when_the_client_asks_for_it(world: World) -> None:
    world.first.behave = failing(500)
    response, body = await world.post(headers={"x-envoy-retry-on": "5xx", "x-envoy-max-retries": "3"})
    assert (response.status, json.loads(body)) == (500, {"own": "words"})
    assert (len(world.first.seen), len(world.second.seen)) == (1, 0)


async def test_error_answers_of_endpoints_and_of_the_picker_pass_untouched(world: World) -> None:
    world.first.behave = world.second.behave = failing(503)
    response, body = await world.post()
    assert (response.status, json.loads(body)) == (503, {"own": "words"})
    world.picker.rejection = pb.ImmediateResponse(status=pb.HttpStatus(code=503), body=b'{"picker":"words"}')
    response, body = await world.post()
    assert (response.status, body) == (503, b'{"picker":"words"}')


async def test_without_endpoints_the_answer_is_an_openai_error(world: World) -> None:
    write_endpoints(world.eds_path, [])
    await until(lambda: known(world, 0))
    response, body = await world.post()
    assert (response.status, response.headers["content-type"]) == (503, "application/json")
    error = json.loads(body)["error"]
    assert error.pop("message") == "no model server could take the request: no_healthy_upstream"
    assert error == {"type": "service_unavailable_error", "param": None, "code": "upstream_unavailable"}


async def test_client_copies_of_routing_headers_never_arrive(world: World) -> None:
    forged = {
        names.DESTINATION: world.second.address,
        names.DESTINATION_SERVED: "x",
        "x-tessera-plan": "forged",
        "X-Tessera-Foo": "x",
        "x-prefiller-host-port": "x",
        "x-encoder-hosts-ports": "x",
        "x-kv-cache-source-host-port": "x",
        "x-llm-d-request-dropped-reason": "x",
        "x-envoy-max-retries": "9",
    }
    world.picker.destination = world.first.address
    await world.post(headers=forged)
    ((upstream_headers, _),) = world.first.seen
    (picker_headers,) = world.picker.headers
    assert {name.lower() for name in forged} & picker_headers.keys() == set()
    ours = {names.DESTINATION: world.first.address, "x-tessera-plan": "ours"}
    assert {name: upstream_headers.get(name.lower()) for name in forged} == dict.fromkeys(forged) | ours


async def test_how_stages_ended_is_logged_and_no_client_sees_it(world: World) -> None:
    report = "encode=10.0.0.1:8000,2,200,0.1;decode=10.0.0.2:8000,0,200,0.2"

    async def told(request: web.Request) -> web.StreamResponse:
        return web.json_response({}, headers={"X-Tessera-Stages": report})

    world.first.behave = told
    world.picker.destination = world.first.address
    response, _ = await world.post()
    assert response.status == 200
    assert "x-tessera-stages" not in response.headers
    metadata = (await world.logged(response)).common_properties.metadata.filter_metadata
    own = {names.REQUEST_ID_KEY: "r-17", names.STAGES_KEY: report}
    assert dict(metadata[names.OWN_NAMESPACE].items()) == own


async def test_the_client_s_request_id_passes_unchanged_and_comes_back(world: World) -> None:
    own = str(uuid.UUID(int=7, version=4))
    response, _ = await world.post(headers={"x-request-id": own})
    assert response.headers["x-request-id"] == own
    assert world.picker.headers[0]["x-request-id"] == world.first.seen[0][0]["x-request-id"] == own


async def test_without_a_picker_requests_go_round_robin_and_later_to_the_picker_again(world: World) -> None:
    await world.server.stop(None)
    statuses = [(await world.post())[0].status for _ in range(6)]
    assert statuses == [200] * 6
    assert len(world.first.seen) == len(world.second.seen) == 3
    world.server = await world.picker.serve()
    await until(lambda: asked(world))


async def asked(world: World) -> bool:
    await world.post()
    return bool(world.picker.headers)


async def test_the_baseline_listener_spreads_evenly_and_asks_nobody(world: World) -> None:
    for _ in range(6):
        await world.post(headers={names.DESTINATION: world.first.address}, listener=BASELINE_LISTENER)
    assert len(world.first.seen) == len(world.second.seen) == 3
    assert world.picker.headers == []


async def test_the_log_of_a_stream_has_id_usage_endpoint_and_true_first_body_time(world: World) -> None:
    headers_arrived = asyncio.Event()
    held_s = 0.05

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        await headers_arrived.wait()
        await asyncio.sleep(held_s)
        await response.write(b'data: {"choices":[{"delta":{"content":"x"}}],"usage":null}\n\n')
        await response.write(b'data: {"choices":[],"usage":%s}\n\ndata: [DONE]\n\n' % json.dumps(USAGE).encode())
        return response

    world.first.behave = failing(503)
    world.second.behave = stream
    url = f"http://127.0.0.1:{world.envoy.ports[LISTENER]}{CHAT}"
    async with world.session.post(url, data=b"{}") as response:
        headers_arrived.set()
        await response.read()
    common = (await world.logged(response)).common_properties
    metadata = common.metadata.filter_metadata
    assert metadata[names.OWN_NAMESPACE][names.REQUEST_ID_KEY] == "r-17"
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "cached_tokens": 8}
    assert dict(metadata[names.USAGE_NAMESPACE].items()) == usage
    assert common.upstream_remote_address.socket_address.port_value == world.second.port
    # The client had the headers before the endpoint began to wait, so the first body byte is later by that wait.
    headers_us = common.time_to_first_upstream_rx_byte.ToMicroseconds()
    assert headers_us + held_s * 0.95e6 < int(common.custom_tags[names.FIRST_BODY_TAG])
    assert int(common.custom_tags[names.FIRST_BODY_TAG]) <= common.duration.ToMicroseconds()


@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
async def test_the_log_of_a_json_answer_has_its_usage(world: World, content_type: str) -> None:
    text = json.dumps({"usage": USAGE}).encode()
    world.first.behave = lambda _: web.Response(body=text, headers={"content-type": content_type})
    response, body = await world.post()
    assert body == text
    entry = await world.logged(response)
    usage = entry.common_properties.metadata.filter_metadata[names.USAGE_NAMESPACE]
    assert dict(usage.items()) == {"prompt_tokens": 11, "completion_tokens": 3, "cached_tokens": 8}
    assert entry.response.response_code.value == 200


async def test_in_full_duplex_mode_without_a_picker_the_answer_is_an_openai_error(world: World) -> None:
    mode = BodyMode.FULL_DUPLEX_STREAMED
    settings = EnvoySettings(listen_port=0, ext_proc_address=world.refusing, body_mode=mode, endpoints=world.endpoints)
    envoy = await EnvoyProcess.start(envoy_config(settings), concurrency=1)
    async with world.session.post(f"http://127.0.0.1:{envoy.ports[LISTENER]}{CHAT}", data=b"{}") as response:
        error = (await response.json())["error"]
        assert (response.status, error["code"]) == (503, "router_unavailable")
    assert await envoy.drain(5)
    await envoy.stop()
    assert envoy.returncode == 0


async def test_a_body_that_is_announced_and_not_sent_is_given_up_and_a_slow_answer_is_not(world: World) -> None:
    settings = EnvoySettings(
        listen_port=0,
        ext_proc_address=f"127.0.0.1:{world.picker.port}",
        endpoints=[("127.0.0.1", world.first.port)],
        request_timeout_s=0.5,
    )

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(1.2)
        return web.json_response({"usage": USAGE})

    world.first.behave = slow
    world.picker.destination = world.first.address
    envoy = await EnvoyProcess.start(envoy_config(settings), concurrency=1)
    port = envoy.ports[LISTENER]
    async with world.session.post(f"http://127.0.0.1:{port}{CHAT}", data=b"{}") as response:
        assert response.status == 200
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 60000000\r\n\r\n".encode())
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    await envoy.stop()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"] == {
        "message": "the whole request did not come within 0.5 s",
        "type": "invalid_request_error",
        "param": None,
        "code": "request_timeout",
    }


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        (
            [{"type": "response.completed", "response": {"usage": {"input_tokens": 11, "output_tokens": 3}}}],
            {"prompt_tokens": 11, "completion_tokens": 3},
        ),
        (
            [
                {"type": "response.created", "response": {"usage": None}},
                {
                    "type": "response.completed",
                    "response": {
                        "usage": {
                            "input_tokens": 110,
                            "input_tokens_details": {"cached_tokens": 96, "cache_write_tokens": 0},
                            "output_tokens": 4,
                        }
                    },
                },
            ],
            {"prompt_tokens": 110, "completion_tokens": 4, "cached_tokens": 96},
        ),
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 11, "output_tokens": 1}}},
                {"type": "message_delta", "usage": {"output_tokens": 3}},
            ],
            {"prompt_tokens": 11, "completion_tokens": 3},
        ),
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 11, "cache_read_input_tokens": 7}}},
                {"type": "message_delta", "usage": {"output_tokens": 3}},
            ],
            {"prompt_tokens": 11, "completion_tokens": 3, "cache_read_tokens": 7},
        ),
        (
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 95, "output_tokens": 0}}},
                {
                    "type": "message_delta",
                    "usage": {
                        "input_tokens": 31,
                        "output_tokens": 4,
                        "cache_creation_input_tokens": 64,
                        "cache_read_input_tokens": 0,
                    },
                },
            ],
            {"prompt_tokens": 31, "completion_tokens": 4, "cache_written_tokens": 64, "cache_read_tokens": 0},
        ),
    ],
)
async def test_the_log_knows_the_usage_of_responses_and_messages(
    world: World, events: list[dict[str, object]], expected: dict[str, int]
) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for event in events:
            await response.write(b"data: %s\n\n" % json.dumps(event).encode())
        return response

    world.first.behave = stream
    response, _ = await world.post()
    metadata = (await world.logged(response)).common_properties.metadata.filter_metadata
    assert dict(metadata[names.USAGE_NAMESPACE].items()) == expected
