"""Real Envoy, real clients, emulated engines: one world for the whole session."""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml

from tessera.config.load import load_file
from tessera.config.shipped import shipped
from tessera.core.types import Outcome
from tessera.emulator import Emulator, EmulatorSettings, Fault, FaultMode
from tessera.live.app import LiveRouter, ServeSettings

MODEL = "Qwen/Qwen3-VL-32B-Instruct"
NUM_SERVERS = 3

T = TypeVar("T")


class LoopThread:
    """An event loop of its own thread, so that tests can use blocking clients."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float = 60.0) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(timeout_s)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(10)


@dataclass
class World:
    """Three emulated servers, Tessera and Envoy."""

    thread: LoopThread
    emulators: list[Emulator]
    router: LiveRouter
    ports: dict[str, int]
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports['envoy']}"

    @property
    def admin(self) -> str:
        return f"http://127.0.0.1:{self.ports['metrics']}"

    def inject(self, index: int, fault: Fault) -> None:
        self.thread.run(self.emulators[index].inject(fault))

    def mend(self) -> None:
        refused = any(each.faults.current.mode is FaultMode.REFUSE for each in self.emulators)
        for emulator in self.emulators:
            self.thread.run(emulator.inject(Fault()))
        if refused:
            # An endpoint whose load is not known again yet is chosen last.
            service, mended_at = self.router.service, self.router.service.clock()
            wait_for(lambda: all((each.load.at or 0) > mended_at for each in service.fleet.view().endpoints))

    def outcome_of(self, client_id: str, timeout_s: float = 5.0) -> Outcome:
        """The outcome of a request, waited for."""

        def found() -> Outcome | None:
            return next((each for each in self.outcomes if _client_id(each) == client_id), None)

        return wait_for(found, timeout_s)

    def num_in_flight(self) -> int:
        return len(self.router.service.open)


def _client_id(outcome: Outcome) -> str | None:
    return outcome.decision.request.headers.get("x-request-id") if outcome.decision else None


def wait_for(question: Callable[[], T | None], timeout_s: float = 5.0) -> T:
    """The first truthy answer."""
    deadline = time.monotonic() + timeout_s
    while not (answer := question()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
    return answer


def write_endpoints(path: Path, ports: list[int]) -> Path:
    entries = [{"name": f"server-{n}", "address": "127.0.0.1", "port": str(port)} for n, port in enumerate(ports)]
    path.write_text(yaml.safe_dump({"endpoints": entries}))
    return path


def emulator(speed: float = 10.0, **changes: Any) -> Emulator:
    return Emulator(EmulatorSettings(model=MODEL, speed=speed, **changes))


@pytest.fixture(scope="session")
def thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.stop()


@pytest.fixture(scope="session")
def session_world(thread: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    emulators = [emulator() for _ in range(NUM_SERVERS)]
    ports = [thread.run(each.start()) for each in emulators]
    endpoints = write_endpoints(tmp_path_factory.mktemp("world") / "endpoints.yaml", ports)

    async def start() -> tuple[LiveRouter, dict[str, int]]:
        router = LiveRouter(
            ServeSettings(
                config=load_file(shipped("quickstart.yaml")),
                endpoints_path=endpoints,
                listen_port=0,
                grpc_port=0,
                metrics_port=0,
                with_envoy=True,
                baseline_port=0,
            )
        )
        return router, await router.start()

    router, listening = thread.run(start())
    world = World(thread, emulators, router, listening)
    router.service.on_outcome = world.outcomes.append
    yield world
    thread.run(router.stop(drain_timeout_s=2))
    for each in emulators:
        thread.run(each.stop())


@pytest.fixture
def world(session_world: World) -> Iterator[World]:
    session_world.outcomes.clear()
    yield session_world
    session_world.mend()
