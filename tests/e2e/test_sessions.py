"""Does a client that sends back its answer's token come to the endpoint that served it?"""

import uuid
from base64 import b64decode, b64encode
from collections.abc import Iterator
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tessera.config.load import load_data
from tessera.config.shipped import shipped
from tessera.emulator import Fault
from tessera.emulator.faults import FaultMode
from tessera.live.app import LiveRouter, ServeSettings
from tessera.live.envoy import BodyMode

from .conftest import MODEL, World, write_endpoints
from .pictures import chat, data_uri

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]
TOKEN = "x-my-token"


def configuration() -> dict[str, Any]:
    """The quickstart's with sessions kept by token."""
    data: dict[str, Any] = yaml.safe_load(shipped("quickstart.yaml").read_text())
    parameters = {"encodedEndpointHeaderConfig": {"header": "X-My-Token"}}
    data["plugins"].append({"type": "session-affinity-filter", "parameters": parameters})
    data["schedulingProfiles"][0]["plugins"].insert(0, {"pluginRef": "session-affinity-filter"})
    return data


@pytest.fixture(params=list(BodyMode), scope="module")
def own_world(
    request: pytest.FixtureRequest, session_world: World, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The session's servers behind a Tessera and an Envoy of their own, in each body mode."""
    endpoints = tmp_path_factory.mktemp("sessions") / "endpoints.yaml"
    write_endpoints(endpoints, [each.port for each in session_world.emulators])
    thread = session_world.thread

    async def start() -> tuple[LiveRouter, dict[str, int]]:
        router = LiveRouter(
            ServeSettings(
                config=load_data(configuration()),
                endpoints_path=endpoints,
                listen_port=0,
                grpc_port=0,
                metrics_port=0,
                with_envoy=True,
                body_mode=request.param,
            )
        )
        return router, await router.start()

    router, ports = thread.run(start())
    world = World(thread, session_world.emulators, router, ports)
    router.service.on_outcome = world.outcomes.append
    yield world
    thread.run(router.stop(drain_timeout_s=2))


@pytest.fixture
def sessions(own_world: World) -> Iterator[World]:
    yield own_world
    own_world.mend()


def ask(
    world: World, token: str | None = None, *, model: str = MODEL, **fields: Any
) -> tuple[httpx.Response, str | None]:
    """The answer, and the endpoint that gave it by the access log."""
    request_id = str(uuid.uuid4())
    headers = {"x-request-id": request_id} | ({TOKEN: token} if token else {})
    body = chat(model, [data_uri(320, 240)], **fields)
    answer = httpx.post(f"{world.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    return answer, world.outcome_of(request_id).endpoint


def named(world: World, answer: httpx.Response) -> str:
    """The endpoint that the answer's token names: ``server-N`` is the N-th of them."""
    name = b64decode(answer.headers[TOKEN]).decode()
    assert name.startswith("default/server-")
    return f"127.0.0.1:{world.emulators[int(name.removeprefix('default/server-'))].port}"


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_leads_back_to_who_served(sessions: World, stream: bool) -> None:
    answer, served = ask(sessions, stream=stream)
    assert named(sessions, answer) == served
    tokens = [b64encode(f"default/server-{index}".encode()).decode() for index in range(len(sessions.emulators))]
    homes = [f"127.0.0.1:{each.port}" for each in sessions.emulators]
    for token, home in [(answer.headers[TOKEN], served), *zip(tokens, homes, strict=True)]:
        answer, again = ask(sessions, token, stream=stream)
        assert (again, answer.headers[TOKEN]) == (home, token)


@pytest.mark.parametrize("mode", [FaultMode.REFUSE, FaultMode.UNAVAILABLE])
def test_after_a_retry_the_token_names_who_served_and_not_who_was_chosen(sessions: World, mode: FaultMode) -> None:
    answer, home = ask(sessions)
    assert home is not None
    index = [each.port for each in sessions.emulators].index(int(home.rpartition(":")[2]))
    sessions.inject(index, Fault(mode=mode))
    answer, elsewhere = ask(sessions, answer.headers[TOKEN])
    assert answer.status_code == 200
    assert elsewhere != home
    assert named(sessions, answer) == elsewhere
    sessions.mend()
    answer, stayed = ask(sessions, answer.headers[TOKEN])
    assert (stayed, named(sessions, answer)) == (elsewhere, elsewhere)


def test_an_answer_that_is_an_error_of_the_server_carries_none(sessions: World) -> None:
    answer, _ = ask(sessions, model="nobody-serves-this")
    assert (answer.status_code, TOKEN in answer.headers) == (404, True)
    for index in range(len(sessions.emulators)):
        sessions.inject(index, Fault(mode=FaultMode.UNAVAILABLE))
    answer, _ = ask(sessions)
    assert (answer.status_code, TOKEN in answer.headers) == (503, False)


def test_every_answer_said_who_served(sessions: World) -> None:
    ask(sessions)
    page = httpx.get(f"{sessions.admin}/metrics").text
    counted = [line for line in page.splitlines() if line.startswith("tessera_answer_headers_total{")]
    assert [line.partition("}")[0] for line in counted] == ['tessera_answer_headers_total{server="said"']
