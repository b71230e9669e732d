"""Does every request end well while servers of any stage die before it and under it, and are they used again later?"""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from ..pictures import chat, data_uri
from .conftest import CHAT, MODEL, Fleet, Reply, Server, post, until

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]

NUM_CLIENTS = 4
DONE = b"data: [DONE]\n\n"
HEADERS = {"encode": "x-encoder-hosts-ports", "prefill": "x-prefiller-host-port"}
PICTURES = {"llm-d-e-p-d": (2, (320, 240)), "e-pd-spread": (3, (3840, 2160))}
"""How many a request has, and how large: ours leaves small ones to an engine that is idle."""
_seeds = itertools.count(1_000_000)


def fresh(fleet: Fleet, **fields: Any) -> dict[str, Any]:
    """A body with pictures that nobody has seen."""
    num, size = PICTURES[fleet.config.stem]
    return chat(MODEL, [data_uri(*size, seed=next(_seeds)) for _ in range(num)], max_tokens=8, **fields)


@dataclass
class Load:
    """Clients that ask one question after the other, every second one for a stream."""

    replies: list[Reply] = field(default_factory=list)
    is_over: bool = False

    async def ask(self, client: aiohttp.ClientSession, fleet: Fleet, number: int) -> None:
        while not self.is_over:
            self.replies.append(await post(client, fleet.id, fresh(fleet, stream=bool(number % 2))))

    async def answers(self, num_more: int) -> None:
        """Return when so many more have come."""
        enough = len(self.replies) + num_more
        await until(lambda: len(self.replies) >= enough)


@asynccontextmanager
async def load_on(fleet: Fleet) -> AsyncIterator[Load]:
    load = Load()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120)) as client:
        running = [asyncio.create_task(load.ask(client, fleet, number)) for number in range(NUM_CLIENTS)]
        try:
            yield load
        finally:
            load.is_over = True
            # A request that does not end is a fault here, after its client's two minutes.
            await asyncio.gather(*running)


def num_open(server: Server) -> int:
    return sum(record["end"] is None for record in server.records())


def is_passed_over(fleet: Fleet, stage: str, server: Server) -> bool:
    """Whether the newest decision left that server out because it does not answer its scrape."""
    (newest,) = json.loads(fleet.router.get("/debug/decisions?limit=1", "metrics"))["decisions"]
    decided = fleet.decision(newest["request_id"])
    rows = [row for each in decided["stages"] if each["profile"] == stage for row in each["candidates"]]
    why = [row["filtered_by"] for row in rows if row["endpoint"] == server.id]
    return why == ["stale-metrics"] and server.id not in decided["plan"].values()


def told_by_sidecars(fleet: Fleet, stage: str, *causes: str) -> float:
    """Legs of that stage that were made up for, here or elsewhere, by cause."""
    pages = [each.process.counters() for each in fleet.engines]
    names = [
        f'tessera_sidecar_{counter}_total{{cause="{cause}",stage="{stage}"}}'
        for counter in ("fell_back", "retried")
        for cause in causes
    ]
    return sum(page.get(name, 0.0) for page in pages for name in names)


def told_to_router(fleet: Fleet, stage: str, server: Server) -> float:
    name = f'tessera_stages_ended_total{{endpoint="{server.id}",result="failed",stage="{stage}"}}'
    return fleet.router.counters().get(name, 0.0)


SPREAD = pytest.param("e-pd-spread", "encode", marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("fleet", "stage"),
    [("llm-d-e-p-d", "encode"), ("llm-d-e-p-d", "prefill"), ("llm-d-e-p-d", "decode"), SPREAD],
    indirect=["fleet"],
)
async def test_every_request_ends_whoever_dies_and_who_is_back_is_asked_again(fleet: Fleet, stage: str) -> None:
    victim = fleet.of(stage)[0]
    cut, unreachable = (told_by_sidecars(fleet, stage, cause) for cause in ("cut", "unreachable"))
    failed = told_to_router(fleet, stage, victim)
    async with load_on(fleet) as load:
        await load.answers(2 * NUM_CLIENTS)
        num_before = len(load.replies)
        # Whoever asks it now is in the middle of its stage when it dies.
        victim.worker.post("/emulator/faults", {"mode": "hang"})
        await until(lambda: num_open(victim))
        victim.worker.kill()
        num_at_once = len(load.replies)
        if stage in HEADERS:
            # As the router does that does not know it yet.
            async with aiohttp.ClientSession() as client:
                named = {HEADERS[stage].replace("-", "_"): victim.id}
                assert (await post(client, fleet.engines[0].id, fresh(fleet), **named)).status == 200
        await until(lambda: is_passed_over(fleet, stage, victim))
        num_known = len(load.replies)
        await load.answers(2 * NUM_CLIENTS)
        victim.worker.begin_again()
        await until(victim.records)
        await load.answers(NUM_CLIENTS)
    statuses = [reply.status for reply in load.replies]
    assert set(statuses[:num_before]) == {200}
    lost = [reply for reply in load.replies if reply.status != 200 or b'"error":{' in reply.body]
    if stage == "decode":
        # The engine died under these: nobody can say whether they killed it, and no other is risked.
        assert {reply.status for reply in lost} <= {200, 502}
        assert len(lost) <= NUM_CLIENTS
        assert set(statuses[num_known + NUM_CLIENTS :]) == {200}
    else:
        assert lost == []
    assert num_before <= num_at_once <= num_known
    for reply in load.replies:
        if reply.headers["content-type"].startswith("text/event-stream"):
            assert reply.body.endswith(DONE)
    assert told_by_sidecars(fleet, stage, "cut") > cut
    if stage in HEADERS:
        assert told_by_sidecars(fleet, stage, "unreachable") > unreachable
    await until(lambda: told_to_router(fleet, stage, victim) > failed)
    in_flight = "tessera_sidecar_requests_in_flight"
    await until(lambda: not any(each.process.counters()[in_flight] for each in fleet.engines))
    await until(lambda: fleet.router.counters()["llm_d_epp_request_running"] == 0)


@pytest.mark.parametrize("fleet", ["llm-d-e-p-d"], indirect=True)
async def test_after_the_first_byte_the_stream_ends_with_an_error(fleet: Fleet) -> None:
    body = fresh(fleet, stream=True) | {"max_tokens": 5_000}
    async with (
        aiohttp.ClientSession() as client,
        client.post(f"http://{fleet.id}{CHAT}", json=body, headers={"x-request-id": "long"}) as answer,
    ):
        assert answer.status == 200
        begun = await answer.content.readuntil(b"\n\n")
        serving = fleet.decision("long")["plan"]["decode"]
        victim = next(each for each in fleet.engines if each.id == serving)
        victim.worker.kill()
        reply = Reply(200, begun + await answer.content.read())
    *words, error, last = reply.events
    assert words
    assert all("error" not in event for event in words)
    assert error["error"].keys() >= {"message", "type", "code"}
    assert "stopped in the middle of its answer" in error["error"]["message"]
    assert last == "[DONE]"
    assert victim.process.counters()["tessera_sidecar_answers_cut_total"] >= 1
    victim.worker.begin_again()
    assert victim.worker.ports
