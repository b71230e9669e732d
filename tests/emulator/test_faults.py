"""Does the emulated server fail as it is told to?"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest

from tessera.emulator import Emulator, Fault, FaultMode
from tessera.emulator.faults import NO_FAULT, read_fault
from tessera.emulator.refusals import Refusal

Until = Callable[[Callable[[], bool]], Awaitable[None]]
BODY = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 10}


@pytest.fixture
async def fresh(emulator: Emulator) -> AsyncIterator[aiohttp.ClientSession]:
    """A client that opens a connection for each request."""
    async with aiohttp.ClientSession(emulator.url, connector=aiohttp.TCPConnector(force_close=True)) as session:
        yield session


async def status_of(http: aiohttp.ClientSession, **rest: Any) -> int:
    async with http.post("/v1/chat/completions", json={**BODY, **rest}) as answer:
        await answer.read()
        return answer.status


async def turn(http: aiohttp.ClientSession, fault: dict[str, Any]) -> dict[str, Any]:
    async with http.post("/emulator/faults", json=fault) as answer:
        assert answer.status == 200
        shown: dict[str, Any] = await answer.json()
        return shown


async def test_503_as_often_as_told(http: aiohttp.ClientSession) -> None:
    assert await turn(http, {"mode": "503", "count": 2}) == {
        "mode": "503",
        "count": 2,
        "after_tokens": 0,
        "seconds": None,
        "left": 2,
    }
    assert [await status_of(http) for _ in range(3)] == [503, 503, 200]
    async with http.get("/emulator/faults") as answer:
        assert (await answer.json())["left"] == 0
    await turn(http, {"mode": "503"})
    assert await status_of(http) == 503
    async with http.get("/health") as answer:
        assert answer.status == 200
    async with http.delete("/emulator/faults") as answer:
        assert (await answer.json())["mode"] == "none"
    assert await status_of(http) == 200


@pytest.mark.parametrize("stream", [True, False])
async def test_a_cut_before_the_headers(emulator: Emulator, fresh: aiohttp.ClientSession, stream: bool) -> None:
    await turn(fresh, {"mode": "cut", "count": 1})
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await status_of(fresh, stream=stream)
    assert (emulator.records[0].ending, emulator.records[0].status) == ("cut", None)
    assert await status_of(fresh) == 200


async def test_a_cut_in_the_middle_of_a_stream(emulator: Emulator, fresh: aiohttp.ClientSession, until: Until) -> None:
    await turn(fresh, {"mode": "cut", "after_tokens": 3})
    received = bytearray()

    async def receive(answer: aiohttp.ClientResponse) -> None:
        async for piece in answer.content.iter_any():
            received.extend(piece)

    async with fresh.post("/v1/chat/completions", json={**BODY, "stream": True, "n": 2}) as answer:
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await receive(answer)
    assert received.count(b'"delta":{"content"') == 3
    [record] = emulator.records
    assert (record.ending, record.status, record.num_output_tokens) == ("cut", 200, 3)
    await until(lambda: emulator.facts().num_running == 0)


async def test_a_cut_of_a_whole_answer(emulator: Emulator, fresh: aiohttp.ClientSession, until: Until) -> None:
    await turn(fresh, {"mode": "cut", "after_tokens": 3})
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await status_of(fresh)
    await until(lambda: emulator.facts().num_running == 0)


@pytest.mark.parametrize("after_tokens", [0, 4])
async def test_a_hang_goes_on_when_it_is_lifted(
    emulator: Emulator, http: aiohttp.ClientSession, until: Until, after_tokens: int
) -> None:
    await emulator.inject(Fault(mode=FaultMode.HANG, after_tokens=after_tokens))
    asking = asyncio.create_task(status_of(http, stream=True))
    await until(lambda: bool(emulator.records) and emulator.records[0].num_output_tokens >= after_tokens)
    await until(lambda: emulator.facts().num_running == 0)
    assert emulator.records[0].num_output_tokens == after_tokens
    assert not asking.done()
    await emulator.inject(NO_FAULT)
    assert await asking == 200
    assert emulator.records[0].num_output_tokens == 10


async def test_a_refused_port_comes_back(emulator: Emulator, http: aiohttp.ClientSession) -> None:
    assert await status_of(http) == 200
    port = emulator.port
    for _ in range(2):
        await turn(http, {"mode": "refuse"})
        assert emulator.port == port
        with pytest.raises(aiohttp.ClientConnectorError):
            await status_of(http)
        await emulator.inject(Fault(mode=FaultMode.REFUSE))
        with pytest.raises(aiohttp.ClientConnectorError):
            await status_of(http)
        await emulator.inject(NO_FAULT)
        assert await status_of(http) == 200


async def test_a_refused_port_comes_back_by_itself(
    emulator: Emulator, http: aiohttp.ClientSession, until: Until
) -> None:
    await turn(http, {"mode": "refuse", "seconds": 0.01})
    with pytest.raises(aiohttp.ClientConnectorError):
        await status_of(http)
    await until(lambda: emulator.faults.current is NO_FAULT)
    assert await status_of(http) == 200


async def test_an_answer_in_flight_survives_a_refused_port(
    emulator: Emulator, http: aiohttp.ClientSession, until: Until
) -> None:
    await emulator.inject(Fault(mode=FaultMode.HANG, count=1))
    asking = asyncio.create_task(status_of(http))
    await until(lambda: bool(emulator.records) and emulator.records[0].body_bytes > 0)
    await emulator.inject(Fault(mode=FaultMode.REFUSE))
    assert await asking == 200


@pytest.mark.parametrize(
    "asked",
    [
        None,
        [],
        {},
        {"mode": "explode"},
        {"mode": "503", "count": 0},
        {"mode": "503", "count": True},
        {"mode": "503", "count": 1.5},
        {"mode": "hang", "seconds": "1"},
        {"mode": "hang", "seconds": float("nan")},
        {"mode": "cut", "after_tokens": -1},
        {"mode": "cut", "after": 1},
        {"mode": "refuse", "count": 1},
    ],
)
def test_a_fault_that_makes_no_sense(asked: Any) -> None:
    with pytest.raises(Refusal):
        read_fault(asked)


def test_a_fault_is_read() -> None:
    asked = {"mode": "hang", "count": 2, "after_tokens": 3, "seconds": 1}
    assert read_fault(asked) == Fault(mode=FaultMode.HANG, count=2, after_tokens=3, seconds=1.0)
    assert read_fault({"mode": "none", "count": None}) == NO_FAULT


async def test_a_control_body_that_is_no_json(http: aiohttp.ClientSession) -> None:
    async with http.post("/emulator/faults", data=b"{") as answer:
        assert answer.status == 400
