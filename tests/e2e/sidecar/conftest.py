"""A sidecar before small servers, all on loopback, each on a port that the system chose."""

import asyncio
import json
from dataclasses import dataclass, field

import aiohttp
import pytest
import yaml

from tessera.core.flow.settings import FlowSettings
from tessera.live.sidecar.app import Sidecar
from tessera.live.sidecar.settings import ECConnectorName, SidecarSettings

from .servers import Server

CHAT = "/v1/chat/completions"


def picture(name):
    return {"type": "image_url", "image_url": {"url": name}}


def chat(*names, text="hello", **more):
    content = [*(picture(name) for name in names), {"type": "text", "text": text}]
    return {"model": "m", "messages": [{"role": "user", "content": content}], **more}


async def until(holds, timeout_s=5.0):
    """Return once ``holds()`` does; fails after a while."""
    async with asyncio.timeout(timeout_s):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@dataclass
class Reply:
    status: int
    headers: object
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def words(self):
        """What a stream said."""
        events = [line[6:] for line in self.body.decode().split("\n") if line.startswith("data: ")]
        parsed = [json.loads(event) for event in events if event != "[DONE]"]
        return [each["choices"][0]["delta"]["content"] for each in parsed if each.get("choices")]


@dataclass
class World:
    servers: list = field(default_factory=list)
    sidecar: Sidecar | None = None
    ports: dict = field(default_factory=dict)

    async def serve(self, role, mode="ok", ssl_context=None, **options):
        server = await Server(role, mode, **options).start(ssl_context)
        self.servers.append(server)
        return server

    async def begin(self, engine, **options):
        """Start the sidecar before ``engine``."""
        flow = FlowSettings(**options.pop("flow", {}))
        options = {"ec": ECConnectorName.NIXL, "metrics_port": 0, "drain_timeout_s": 0.2, "port": 0} | options
        self.sidecar = Sidecar(SidecarSettings(model_port=engine.port, flow=flow, **options))
        self.ports = await self.sidecar.start()
        self.client = aiohttp.ClientSession()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.ports['http']}"

    async def post(self, body, path=CHAT, **headers):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with self.client.post(self.url + path, data=data, headers=named) as answer:
            return Reply(answer.status, answer.headers, await answer.read())

    async def metrics(self):
        async with self.client.get(f"http://127.0.0.1:{self.ports['metrics']}/metrics") as answer:
            lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}

    async def is_quiet(self):
        """Return once no server has an open request; fails after 5 s."""
        in_flight = self.sidecar.metrics.in_flight._value
        await until(lambda: not any(each.num_open for each in self.servers) and not in_flight.get())

    async def end(self):
        if self.sidecar:
            await self.is_quiet()
            await self.sidecar.stop()
            await self.client.close()
        for server in self.servers:
            await server.stop()


@pytest.fixture
async def world():
    one = World()
    try:
        yield one
    finally:
        async with asyncio.timeout(20):
            await one.end()


@pytest.fixture
def endpoints_file(tmp_path):
    def write(*servers):
        path = tmp_path / "endpoints.yaml"
        entries = [{"name": f"s{each.port}", "address": "127.0.0.1", "port": str(each.port)} for each in servers]
        path.write_text(yaml.safe_dump({"endpoints": entries}))
        return path

    return write
