"""A request waits for its token ids as long as it may, and never longer."""

import asyncio
import gc
import threading
import weakref

import pytest

from tessera.core.draft import Draft
from tessera.core.rendering.prompt import PromptTokens
from tessera.live.tokenising import Tokenising

DRAFT = Draft(dialect="chat")
DONE = PromptTokens(token_ids=(1, 2))


class Router:
    """Tokenises when ``gate`` is open."""

    def __init__(self):
        self.gate = threading.Event()
        self.num_calls = 0
        self.fault = None

    def tokenise(self, request, draft, memo):
        self.num_calls += 1
        self.gate.wait(10)
        if self.fault:
            raise self.fault
        return DONE


@pytest.fixture
def router():
    router = Router()
    yield router
    router.gate.set()


@pytest.fixture
def faults():
    return []


@pytest.fixture
def tokenising(router, faults):
    made = Tokenising(router, faults.append, budget_s=0.01)
    yield made
    router.gate.set()
    made.close()


async def until_nobody_is_late(tokenising):
    async with asyncio.timeout(5):
        while tokenising._num_late:  # noqa: ASYNC110 - the threads tell the loop by a call of their own
            await asyncio.sleep(0)


async def test_the_ids(tokenising, router, build):
    router.gate.set()
    patient = Tokenising(router, print, budget_s=5.0)
    assert await patient.tokens(build.request(), DRAFT) == DONE
    patient.close()


async def test_a_prompt_that_takes_too_long_is_late(tokenising, router, build):
    assert (await tokenising.tokens(build.request(), DRAFT)).reason == "late"


async def test_while_two_are_late_nobody_waits(tokenising, router, faults, build):
    for _ in range(2):
        assert (await tokenising.tokens(build.request(), DRAFT)).reason == "late"
    assert (await tokenising.tokens(build.request(), DRAFT)).reason == "busy"
    assert router.num_calls == 2
    router.gate.set()
    await until_nobody_is_late(tokenising)
    patient = await tokenising.tokens(build.text_request(10_000_000), DRAFT)
    assert (patient, faults) == (DONE, [])


async def test_longer_texts_may_take_longer(tokenising, router, build):
    waiting = asyncio.create_task(tokenising.tokens(build.text_request(10_000_000), DRAFT))
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    router.gate.set()
    assert await waiting == DONE


async def test_work_that_has_not_begun_is_dropped(tokenising, router, build):
    requests = [tokenising.tokens(build.request(), DRAFT) for _ in range(5)]
    reasons = [found.reason for found in await asyncio.gather(*requests)]
    assert reasons == ["late"] * 5
    assert tokenising._num_late == 2
    router.gate.set()
    await until_nobody_is_late(tokenising)
    assert router.num_calls == 2


async def test_a_fault_is_told_and_the_request_goes_on(router, faults, build):
    router.fault = ValueError("ours")
    router.gate.set()
    made = Tokenising(router, faults.append, budget_s=5.0)
    assert (await made.tokens(build.request(), DRAFT)).reason == "failed"
    assert faults == ["tokenise"]
    made.close()


async def test_a_fault_that_comes_late_is_told_too(tokenising, router, faults, build):
    router.fault = ValueError("ours")
    assert (await tokenising.tokens(build.request(), DRAFT)).reason == "late"
    assert faults == []
    router.gate.set()
    await until_nobody_is_late(tokenising)
    assert faults == ["tokenise"]


class Body(list):
    """What can be seen to be gone."""


async def test_a_client_that_goes_leaves_nothing_behind(router, faults, build):
    """Two threads run on, which counts; what waited behind them is dropped with all that it holds."""
    made = Tokenising(router, faults.append, budget_s=5.0)
    bodies = [Body() for _ in range(4)]
    held = [weakref.ref(body) for body in bodies]
    gone = [asyncio.create_task(made.tokens(build.request(), Draft(dialect="chat", prompts=each))) for each in bodies]
    bodies.clear()
    async with asyncio.timeout(5):
        while router.num_calls < 2:  # noqa: ASYNC110 - threads of their own
            await asyncio.sleep(0)
    for task in gone:
        task.cancel()
    assert [type(each) for each in await asyncio.gather(*gone, return_exceptions=True)] == [asyncio.CancelledError] * 4
    assert made._num_late == 2
    assert (await made.tokens(build.request(), DRAFT)).reason == "busy"
    del gone, task
    gc.collect()
    assert [ref() is None for ref in held] == [False, False, True, True]
    router.gate.set()
    await until_nobody_is_late(made)
    assert router.num_calls == 2
    made.close()


async def test_closed_nothing_more_is_begun(router, faults, build):
    made = Tokenising(router, faults.append, budget_s=5.0)
    asked = [asyncio.create_task(made.tokens(build.request(), DRAFT)) for _ in range(3)]
    async with asyncio.timeout(5):
        while router.num_calls < 2:  # noqa: ASYNC110 - threads of their own
            await asyncio.sleep(0)
    made.close()
    router.gate.set()
    assert [(await each).reason for each in asked] == [None, None, "failed"]
    assert (router.num_calls, faults) == (2, [])
