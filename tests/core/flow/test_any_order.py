"""Whatever happens in whatever order: a flow ends exactly once, sends nothing afterwards, and loses no item."""

import asyncio
import heapq
import json
import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tessera.core.flow import commands, events
from tessera.core.flow.connectors.ec_nixl import ECNixl
from tessera.core.flow.connectors.kv_nixl import KVNixl
from tessera.core.flow.document import Document
from tessera.core.flow.events import Cause
from tessera.core.flow.flow import Flow, Job
from tessera.core.flow.plan import read_plan
from tessera.core.flow.settings import FlowSettings
from tessera.core.flow.shapes import CHAT
from tessera.core.work import Work

STATUSES = (200, 200, 200, 404, 503)
CAUSES = (Cause.UNREACHABLE, Cause.CUT, Cause.BAD_ANSWER)
LAST = (commands.End, commands.Refuse, commands.Break)


def make_flow(num_items, num_encoders, num_prefillers, **limits):
    content = [
        {"type": "image_url", "image_url": {"url": f"http://{index % num_items}"}} for index in range(2 * num_items)
    ]
    body = {"messages": [{"role": "user", "content": content}]} if num_items else {"messages": []}
    headers = {
        "x-encoder-hosts-ports": ",".join(f"e{index}:80" for index in range(num_encoders)),
        "x-prefiller-host-port": ",".join(f"p{index}:80" for index in range(num_prefillers)),
    }
    document = Document(json.dumps(body).encode())
    job = Job(document=document, shape=CHAT, plan=read_plan(headers), decoder="d:80", ec=ECNixl(), kv=KVNixl())
    return Flow(job, FlowSettings(**limits))


def announced(item):
    return json.dumps({"ec_transfer_params": {f"h{item}": {"peer_host": "a", "peer_port": 1}}}).encode()


BLOCKS = json.dumps({"kv_transfer_params": {"remote_host": "a"}}).encode()


class Ledger:
    """What must hold of the commands that left, whoever drives."""

    def __init__(self, flow, max_parallel):
        self.flow = flow
        self.max_parallel = max_parallel
        self.open = {}
        self.confirmed = set()
        self.last = []
        self.decoded = []
        self.wake_at = None
        self.gone = False

    def take(self, event, given):
        if isinstance(event, events.EncodeAnswered) and event.status == 200 and self.was_open(event):
            self.confirmed.add(f"h{event.item}")
        if self.was_over:
            assert given == [], "something left a flow that was over"
        for command in given:
            assert not self.last, f"{command} left behind {self.last}"
            self._take(command)
        if isinstance(event, events.ClientGone):
            self.gone = True
        assert self.flow.is_over == bool(self.last or self.gone)
        if self.flow.is_over:
            assert not self.open, "a leg was left open"
        else:
            # Nothing can hang: somebody is awaited, or a timer is wound.
            assert self.wake_at is not None

    def was_open(self, event):
        return self.closed == ("encode", event.item, event.attempt)

    def close(self, key):
        self.closed = key if self.open.pop(key, None) else None

    def _take(self, command):
        match command:
            case commands.Encode():
                self.open["encode", command.item, command.attempt] = command
                assert sum(key[0] == "encode" for key in self.open) <= self.max_parallel
            case commands.Prefill():
                self.open["prefill", command.attempt] = command
                self._check_references(command.body)
            case commands.Decode():
                assert not self.open, "decode began while something else was open"
                self.open["decode", command.attempt] = command
                self.decoded.append(command)
                self._check_references(command.body)
            case commands.Cancel():
                key = (command.stage.value, *(() if command.item is None else (command.item,)), command.attempt)
                assert self.open.pop(key, None) is not None, f"{key} was not open"
            case commands.WakeAt():
                self.wake_at = command.at
            case commands.Relay():
                assert ("decode", self.decoded[-1].attempt) in self.open
            case _:
                assert isinstance(command, LAST)
                self.last.append(command)

    def _check_references(self, body):
        referred = json.loads(body).get("ec_transfer_params", {})
        assert referred.keys() <= self.confirmed
        report = self.flow.report
        left_here = sum(count for (stage, _), count in report.fell_back.items() if stage is Work.ENCODE)
        if not self.decoded[1:]:
            assert report.num_encoded == len(self.confirmed)
            assert report.num_encode_requested == report.num_encoded + left_here, "an item is neither encoded nor left"

    @property
    def was_over(self):
        return bool(self.last or self.gone)


class AnyOrder(RuleBasedStateMachine):
    @initialize(
        items=st.integers(0, 4),
        encoders=st.integers(0, 3),
        prefillers=st.integers(0, 3),
        parallel=st.integers(1, 3),
        retries=st.integers(0, 1),
    )
    def begin(self, items, encoders, prefillers, parallel, retries):
        self.at = 0.0
        self.flow = make_flow(
            items,
            encoders,
            prefillers,
            max_parallel_encodes=parallel,
            encode_timeout_s=2.0,
            encode_budget_s=5.0,
            prefill_timeout_s=2.0,
            prefill_budget_s=5.0,
            prefill_max_retries=retries,
            request_budget_s=12.0,
        )
        self.ledger = Ledger(self.flow, parallel)
        self.happens(events.Started(self.at))

    def happens(self, event):
        match event:
            case events.EncodeAnswered() | events.EncodeFailed():
                self.ledger.close(("encode", event.item, event.attempt))
            case events.PrefillAnswered() | events.PrefillFailed():
                self.ledger.close(("prefill", event.attempt))
            case events.DecodeEnded() | events.DecodeFailed():
                self.ledger.close(("decode", event.attempt))
        self.ledger.take(event, self.flow.receive(event))

    @rule(item=st.integers(0, 4), attempt=st.integers(0, 2), status=st.sampled_from(STATUSES))
    def encoder_answers(self, item, attempt, status):
        self.happens(events.EncodeAnswered(self.at, item, attempt, status, announced(item)))

    @rule(item=st.integers(0, 4), attempt=st.integers(0, 2), cause=st.sampled_from(CAUSES))
    def encoder_fails(self, item, attempt, cause):
        self.happens(events.EncodeFailed(self.at, item, attempt, cause))

    @rule(attempt=st.integers(0, 3), status=st.sampled_from(STATUSES))
    def prefiller_answers(self, attempt, status):
        self.happens(events.PrefillAnswered(self.at, attempt, status, BLOCKS))

    @rule(attempt=st.integers(0, 3), cause=st.sampled_from(CAUSES))
    def prefiller_fails(self, attempt, cause):
        self.happens(events.PrefillFailed(self.at, attempt, cause))

    @precondition(lambda self: any(key[0] == "decode" for key in self.ledger.open))
    @rule(status=st.sampled_from((200, 400, 500)))
    def engine_answers(self, status):
        for attempt in (0, 1):
            if ("decode", attempt) in self.ledger.open:
                self.happens(events.DecodeHeaders(self.at, attempt, status))
                return

    @precondition(lambda self: any(key[0] == "decode" for key in self.ledger.open))
    @rule(ends=st.booleans(), cause=st.sampled_from(CAUSES))
    def engine_ends(self, ends, cause):
        attempt = self.ledger.decoded[-1].attempt
        began = self.flow._state.name == "RELAYING"
        if ends and began:
            self.happens(events.DecodeEnded(self.at, attempt))
        else:
            self.happens(events.DecodeFailed(self.at, attempt, cause))

    @rule(seconds=st.sampled_from((0.0, 0.5, 2.0, 5.0)))
    def time_passes(self, seconds):
        self.at += seconds
        while self.ledger.wake_at is not None and self.ledger.wake_at <= self.at and not self.flow.is_over:
            self.ledger.wake_at = None
            self.happens(events.Woken(self.at))

    @rule(seldom=st.integers(0, 9))
    def client_goes(self, seldom):
        if seldom == 0:
            if not self.ledger.was_over:
                self.happens(events.ClientGone(self.at))
            else:
                assert self.flow.receive(events.ClientGone(self.at)) == []

    def teardown(self):
        if hasattr(self, "flow"):
            self.time_passes(60.0)
            assert self.flow.is_over, "time alone ends every flow"


AnyOrder.TestCase.settings = settings(stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase


class World:
    """What a driver asks: each leg's answer and how long it takes, drawn from a seed."""

    def __init__(self, seed):
        self.seed = seed
        rng = random.Random(f"{seed} client")
        self.gone_at = rng.uniform(0.1, 6.0) if rng.random() < 0.25 else None
        """When the client does not wait any more; nothing: it waits for ever."""

    def answer(self, command):
        """Seconds, and the event with a time to be put in; nothing for a server that hangs."""
        name = (type(command).__name__, command.attempt, getattr(command, "item", -1))
        rng = random.Random(f"{self.seed}{name}")
        delay = rng.uniform(0.01, 3.0)
        status, fails = rng.choice(STATUSES), rng.random() < 0.3
        if rng.random() < 0.1:
            return None
        match command:
            case commands.Encode(item, attempt):
                if fails:
                    return [(delay, lambda at: events.EncodeFailed(at, item, attempt, Cause.CUT))]
                return [(delay, lambda at: events.EncodeAnswered(at, item, attempt, status, announced(item)))]
            case commands.Prefill(attempt):
                if fails:
                    return [(delay, lambda at: events.PrefillFailed(at, attempt, Cause.UNREACHABLE))]
                return [(delay, lambda at: events.PrefillAnswered(at, attempt, status, BLOCKS))]
            case commands.Decode(attempt):
                began = (delay, lambda at: events.DecodeHeaders(at, attempt, rng.choice((200, 200, 500))))
                if fails and delay < 2.0:
                    return [(delay, lambda at: events.DecodeFailed(at, attempt, Cause.CUT))]
                if fails:
                    return [began, (2 * delay, lambda at: events.DecodeFailed(at, attempt, Cause.CUT))]
                return [began, (2 * delay, lambda at: events.DecodeEnded(at, attempt))]
        raise AssertionError(command)


def by_heap(flow, world):
    """The flow driven in virtual time by a heap."""
    heap, given, order = [(0.0, 0, None, events.Started)], [], 0
    if world.gone_at is not None:
        heap.append((world.gone_at, 0, None, events.ClientGone))
    cancelled, wound = set(), None
    while heap and not flow.is_over:
        at, _, leg, make = heapq.heappop(heap)
        if leg in cancelled or (leg == "timer" and at != wound):
            continue
        for command in flow.receive(make(at)):
            given.append((round(at, 6), command))
            order += 1
            match command:
                case commands.Encode() | commands.Prefill() | commands.Decode():
                    for delay, event in world.answer(command) or ():
                        order += 1
                        heapq.heappush(heap, (at + delay, order, leg_of(command), event))
                case commands.Cancel():
                    cancelled.add((command.stage.value, command.item, command.attempt))
                case commands.WakeAt():
                    wound = command.at
                    heapq.heappush(heap, (command.at, order, "timer", events.Woken))
    return given


def leg_of(command):
    return (type(command).__name__.lower(), getattr(command, "item", None), command.attempt)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


async def by_asyncio(flow, world):
    """The flow driven by tasks and timers of an event loop."""
    loop = asyncio.get_running_loop()
    given, legs, over = [], {}, loop.create_future()
    timer = None

    def happens(event):
        nonlocal timer
        for command in flow.receive(event):
            given.append((round(loop.time(), 6), command))
            match command:
                case commands.Encode() | commands.Prefill() | commands.Decode():
                    legs[leg_of(command)] = loop.create_task(run(command))
                case commands.Cancel():
                    legs[command.stage.value, command.item, command.attempt].cancel()
                case commands.WakeAt():
                    if timer:
                        timer.cancel()
                    timer = loop.call_at(command.at, lambda: happens(events.Woken(loop.time())))
        if flow.is_over and not over.done():
            over.set_result(None)

    async def run(command):
        began = loop.time()
        for delay, event in world.answer(command) or ():
            await asyncio.sleep(began + delay - loop.time())
            happens(event(loop.time()))

    if world.gone_at is not None:
        loop.call_at(world.gone_at, lambda: happens(events.ClientGone(loop.time())))
    happens(events.Started(loop.time()))
    await over
    if timer:
        timer.cancel()
    for task in legs.values():
        task.cancel()
    return given


@pytest.mark.parametrize("seed", range(120))
def test_a_heap_and_an_event_loop_give_the_same_commands(seed):
    def flow():
        limits = {"encode_timeout_s": 2.0, "encode_budget_s": 4.0, "prefill_timeout_s": 2.0, "request_budget_s": 20.0}
        return make_flow(seed % 5, 1 + seed % 3, seed % 4, max_parallel_encodes=1 + seed % 4, **limits)

    first = by_heap(flow(), World(seed))
    loop = VirtualLoop()
    try:
        second = loop.run_until_complete(by_asyncio(flow(), World(seed)))
    finally:
        loop.close()
    assert first == second
    ends = [command for _, command in first if isinstance(command, LAST)]
    assert len(ends) <= 1
    assert ends or World(seed).gone_at is not None


def test_the_worlds_that_are_driven_have_every_end_there_is():
    found = set()
    for seed in range(120):
        flow = make_flow(seed % 5, 1 + seed % 3, seed % 4, request_budget_s=20.0)
        found.add(type(by_heap(flow, World(seed))[-1][1]).__name__)
    assert {"End", "Break", "Refuse", "Cancel"} <= found
