"""Does a real Envoy bring the stages' endpoints to who decodes, and what it reports of them to the ledgers?"""

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field

import httpx2 as httpx
import pytest
import yaml
from aiohttp import web

from tessera.config.load import load_file
from tessera.config.shipped import shipped
from tessera.core.facts import InFlightLoad
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.live.app import LiveRouter, ServeSettings

from .conftest import MODEL, LoopThread, World, wait_for
from .pictures import chat, data_uri

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]
FORGED = {
    "x-gateway-destination-endpoint": "127.0.0.1:1",
    "x-prefiller-host-port": "127.0.0.1:1",
    "x-encoder-hosts-ports": "127.0.0.1:1",
    "x-kv-cache-source-host-port": "127.0.0.1:1",
    "x-tessera-encode-plan": "0=127.0.0.1:1",
}


@dataclass
class Decoder:
    """Plays the sidecar before a server that decodes: it does nothing, and reports what it was told to have done."""

    port: int = 0
    seen: list[dict[str, str]] = field(default_factory=list)
    status: int = 200
    runner: web.AppRunner | None = None

    async def start(self) -> int:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.answer)
        self.runner = web.AppRunner(app)
        await self.runner.setup()
        site = web.TCPSite(self.runner, "127.0.0.1", 0)
        await site.start()
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
        return self.port

    async def stop(self) -> None:
        if self.runner:
            await self.runner.cleanup()

    async def answer(self, request: web.Request) -> web.Response:
        await request.read()
        told = {name.lower(): value for name, value in request.headers.items()}
        self.seen.append(told)
        parts = [f"decode=127.0.0.1:{self.port},0,200,0.010000"]
        if encoder := told.get("x-encoder-hosts-ports"):
            parts.insert(0, f"encode={encoder},1,{self.status},0.250000")
        usage = {"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101}
        return web.json_response({"choices": [], "usage": usage}, headers={"X-Tessera-Stages": ";".join(parts)})


@pytest.fixture(scope="module")
def pools(thread: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[World, Decoder, set[str]]]:
    """One who decodes and two who would encode, on ports that nobody listens on, behind an Envoy of their own."""
    decoder = Decoder()
    port = thread.run(decoder.start())
    encoders = {"127.0.0.2:9": "encode", "127.0.0.3:9": "encode"}
    entries = [
        {
            "name": name,
            "address": name.partition(":")[0],
            "port": name.partition(":")[2],
            "labels": {"llm-d.ai/role": role},
        }
        for name, role in (*encoders.items(), (f"127.0.0.1:{port}", "decode"))
    ]
    path = tmp_path_factory.mktemp("pools") / "endpoints.yaml"
    path.write_text(yaml.safe_dump({"endpoints": entries}))

    async def start() -> tuple[LiveRouter, dict[str, int]]:
        settings = ServeSettings(
            config=load_file(shipped("llm-d-e-pd.yaml")),
            endpoints_path=path,
            listen_port=0,
            grpc_port=0,
            metrics_port=0,
            with_envoy=True,
        )
        router = LiveRouter(settings)
        return router, await router.start()

    router, ports = thread.run(start())
    world = World(thread, [], router, ports)
    router.service.on_outcome = world.outcomes.append
    yield world, decoder, set(encoders)
    thread.run(router.stop(drain_timeout_s=2))
    thread.run(decoder.stop())


def ledger(world: World) -> InflightLoadProducer:
    return next(each for each in world.router.service.router.producers if isinstance(each, InflightLoadProducer))


@pytest.mark.parametrize(("status", "result"), [(200, "done"), (503, "failed")])
def test_who_decodes_is_told_and_its_report_comes_to_us_alone(
    pools: tuple[World, Decoder, set[str]], status: int, result: str
) -> None:
    world, decoder, encoders = pools
    decoder.seen.clear()
    decoder.status = status
    request_id = str(uuid.uuid4())
    body = chat(MODEL, [data_uri(320, 240)])
    headers = {"x-request-id": request_id} | FORGED
    answer = httpx.post(f"{world.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("x-tessera")]
    (told,) = decoder.seen
    assert told["x-encoder-hosts-ports"] in encoders
    assert {name for name in FORGED if "127.0.0.1:1" in told.get(name, "").split(",")} == set()
    assert not {"x-prefiller-host-port", "x-kv-cache-source-host-port", "x-tessera-encode-plan"} & told.keys()
    outcome = world.outcome_of(request_id)
    assert {(each.stage.value, each.endpoint_id, each.status) for each in outcome.stages} == {
        ("encode", told["x-encoder-hosts-ports"], status),
        ("decode", f"127.0.0.1:{decoder.port}", 200),
    }
    wait_for(lambda: ledger(world).load_of(f"127.0.0.1:{decoder.port}") == InFlightLoad())
    assert all(ledger(world).load_of(encoder) == InFlightLoad() for encoder in encoders)
    page = httpx.get(f"{world.admin}/metrics").text
    assert f'result="{result}",stage="encode"' in page


def test_text_alone_encodes_nowhere_and_envoy_knows_only_who_decodes(pools: tuple[World, Decoder, set[str]]) -> None:
    world, decoder, _ = pools
    decoder.seen.clear()
    for _ in range(6):
        answer = httpx.post(f"{world.url}/v1/chat/completions", json=chat(MODEL, []), headers=FORGED, timeout=30)
        assert answer.status_code == 200
    assert len(decoder.seen) == 6
    assert all("x-encoder-hosts-ports" not in told for told in decoder.seen)
    # A path that nobody reads goes to no encoder either.
    assert httpx.post(f"{world.url}/elsewhere", content=json.dumps({}), timeout=30).status_code == 404
