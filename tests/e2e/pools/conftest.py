"""Emulated encoders, prefillers and engines, a sidecar before each engine, and one server that does everything."""

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from tessera.config.shipped import shipped

from ..processes import Process, processes

MODEL = "qwen3-vl-32b"
CHAT = "/v1/chat/completions"
SPEED = "10"
NUM_ENCODERS = 3

CONFIGS = {
    "llm-d-e-pd": ("encode", "prefill-decode"),
    "llm-d-e-p-d": ("encode", "prefill", "decode"),
    "llm-d-p-d": ("prefill", "decode"),
    "e-pd-spread": ("encode", "prefill-decode"),
}
"""The shipped configurations, and the roles of the servers that they route."""


@dataclass
class Server:
    """One server of the fleet: an emulated one, or a sidecar before one."""

    role: str
    process: Process
    engine: Process | None = None
    """What stands behind the sidecar; nothing without one."""

    @property
    def id(self) -> str:
        return self.process.id

    @property
    def worker(self) -> Process:
        """The process that computes."""
        return self.engine or self.process

    def records(self) -> list[dict[str, Any]]:
        """The generation requests that reached it."""
        found: list[dict[str, Any]] = json.loads(self.worker.get("/emulator/requests"))["requests"]
        return found


def emulate(role: str, port: int = 0) -> Process:
    profile = ("--profile", "h200-tp1-qwen3-vl-32b-encoder") if role == "encode" else ()
    return Process("emulate", "--port", str(port), "--speed", SPEED, "--role", role, *profile)


def sidecar(engine: Process, allowed: Path, port: int = 0) -> Process:
    flags = ("--bind", "127.0.0.1", "--metrics-port", "-1", "--ec-connector", "ec-nixl", "--endpoints", str(allowed))
    return Process("sidecar", "--port", str(port), "--model-server-port", str(engine.ports["http"]), *flags)


def write_endpoints(path: Path, servers: list[Server]) -> Path:
    entries = [
        {
            "name": f"{each.role}-{number}",
            "address": "127.0.0.1",
            "port": each.id.rpartition(":")[2],
            "labels": {"llm-d.ai/role": each.role},
        }
        for number, each in enumerate(servers)
    ]
    path.write_text(yaml.safe_dump({"endpoints": entries}))
    return path


@dataclass
class Fleet:
    """Some of the servers behind a router and its Envoy."""

    config: Path
    endpoints: Path
    servers: list[Server]
    router: Process
    alone: Process

    def of(self, role: str) -> list[Server]:
        return [each for each in self.servers if each.role == role]

    @property
    def engines(self) -> list[Server]:
        return [each for each in self.servers if each.engine]

    @property
    def id(self) -> str:
        return f"127.0.0.1:{self.router.ports['envoy']}"

    def decision(self, request_id: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.router.get(f"/debug/decisions/{request_id}", "metrics"))
        return found


@dataclass
class Reply:
    """What a client got."""

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The events of a stream, the last one as the text that it is."""
        texts = [text.removeprefix("data: ") for text in self.body.decode().split("\n\n") if text]
        return [json.loads(text) if text.startswith("{") else text for text in texts]


async def post(client: aiohttp.ClientSession, server: str, body: dict[str, Any], **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(f"http://{server}{CHAT}", json=body, headers=named) as answer:
        return Reply(answer.status, await answer.read(), {name.lower(): text for name, text in answer.headers.items()})


async def until(question: Callable[[], Any], timeout_s: float = 90.0) -> Any:
    """The first truthy answer; an endpoint that does not answer says nothing yet."""
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                if answer := await asyncio.to_thread(question):
                    return answer
            except OSError:
                pass
            await asyncio.sleep(0.05)


@contextmanager
def routed(config: str, servers: list[Server], alone: Process, folder: Path) -> Iterator[Fleet]:
    """These servers behind a router with a shipped configuration."""
    path = write_endpoints(folder / f"{config}.yaml", servers)
    files = ("--config", str(shipped(f"{config}.yaml")), "--endpoints", str(path))
    options = ("--listen", "0", "--grpc-port", "0", "--metrics-port", "0", "--drain-timeout", "1")
    with processes() as started:
        router = Process("serve", "--envoy", *files, *options)
        started.append(router)
        yield Fleet(shipped(f"{config}.yaml"), path, servers, router, alone)


@pytest.fixture(scope="session")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, list[Server]]]:
    """Servers by role: three encoders, two prefillers, two engines of each kind behind sidecars, one of everything."""
    allowed = tmp_path_factory.mktemp("pools") / "allowed.yaml"
    numbers = {"encode": NUM_ENCODERS, "prefill": 2, "decode": 2, "prefill-decode": 2, "all": 1}
    with processes() as started:
        emulated = {role: [emulate(role) for _ in range(number)] for role, number in numbers.items()}
        started.extend(each for group in emulated.values() for each in group)
        helpers = [Server(role, each) for role in ("encode", "prefill") for each in emulated[role]]
        write_endpoints(allowed, helpers)
        engines = [(role, each) for role in ("decode", "prefill-decode") for each in emulated[role]]
        sidecars = [sidecar(engine, allowed) for _, engine in engines]
        started.extend(sidecars)
        found: dict[str, list[Server]] = {"all": [Server("all", emulated["all"][0])]}
        for each in helpers:
            found.setdefault(each.role, []).append(each)
        for (role, engine), before in zip(engines, sidecars, strict=True):
            assert before.ports
            found.setdefault(role, []).append(Server(role, before, engine))
        yield found


@pytest.fixture(scope="module", params=CONFIGS)
def fleet(
    request: pytest.FixtureRequest, pools: dict[str, list[Server]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fleet]:
    """The fleet of each shipped configuration in turn."""
    servers = [each for role in CONFIGS[request.param] for each in pools[role]]
    with routed(request.param, servers, pools["all"][0].process, tmp_path_factory.mktemp("fleet")) as one:
        yield one
