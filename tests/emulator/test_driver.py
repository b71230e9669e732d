"""Does the engine's time go by on the clock, and does everybody get its tokens when they come?"""

from array import array
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.core.facts import KVRemoved, KVStored
from tessera.core.matching.block_keys import BlockHasher
from tessera.emulator import EmulatorSettings
from tessera.emulator.driver import GRANULARITY_S, Driver
from tessera.emulator.kv_names import BlockNames
from tessera.emulator.metrics import Metrics
from tessera.emulator.prompts import EnginePrompt
from tessera.emulator.tickets import NewToken, Work, WorkFailed
from tessera.engine.engine import Engine
from tessera.engine.profiles import PROFILES
from tessera.engine.requests import EngineRequest

from .manual_loop import ManualLoop

FITTED = PROFILES["h200-tp2-qwen3-vl-32b"]


def driver(loop, *, speed=1.0, profile=FITTED, kv_feed=None):
    engine = Engine(profile, tells_kv_events=kv_feed is not None)
    return Driver(engine, Metrics(EmulatorSettings(model="m")), speed=speed, kv_feed=kv_feed, loop=loop)


def work(name, num_tokens, num_output_tokens, *, num_choices=1, first_id=0, block_size=16):
    prompt = EnginePrompt(token_ids=array("q", range(first_id, first_id + num_tokens)))
    request = EngineRequest(name, prompt.segments(block_size), num_output_tokens, num_choices)
    return Work(request, prompt, "length")


def num_tokens_by_time(ticket, loop):
    """Turn the clock until all is there: when were how many tokens of each choice there?"""
    seen = []
    while not ticket.is_done:
        loop.run(loop.now + GRANULARITY_S / 10)
        seen += [(round(loop.now - 1000.0, 4), token.choice, token.position) for token in ticket._take(None)]
    return seen


@pytest.mark.parametrize("speed", [1.0, 4.0])
def test_tokens_come_step_by_step_at_the_engines_pace(speed):
    loop = ManualLoop()
    ticket = driver(loop, speed=speed).submit([work("r", 100, 4)])
    seen = num_tokens_by_time(ticket, loop)
    # Latency 27 ms, CPU 4; a step of a few tokens 17.4.
    assert [position for _, _, position in seen] == [0, 1, 2, 3]
    expected = pytest.approx([0.0485, 0.0659, 0.0833, 0.1007], abs=0.001 + 0.0001 * speed)
    assert [at * speed for at, _, _ in seen] == expected


def test_tokens_that_come_close_together_are_sent_together():
    loop = ManualLoop()
    ticket = driver(loop, speed=1000.0).submit([work("r", 100, 400)])
    loop.run()
    assert ticket.is_done is False
    assert [token.position for token in ticket._take(None)] == list(range(400))
    # 7 s of the engine in 7 ms.
    assert loop.num_calls <= 10
    assert ticket.is_done


def test_calls_that_come_late_delay_their_own_tokens_alone():
    loop = ManualLoop(late_s=0.01)
    ticket = driver(loop).submit([work("r", 100, 101)])
    loop.run()
    # The engine takes 27 + 4 + 101 x 17.4 ms; the last call is 10 ms late, all before it cost nothing.
    assert loop.now - 1000.0 == pytest.approx(0.031 + 101 * 0.0174 + 0.01, abs=0.005)
    assert ticket.changed.is_set()


def test_choices_and_prompts_are_numbered_through():
    loop = ManualLoop()
    ticket = driver(loop).submit([work("a", 100, 2, num_choices=2), work("b", 50, 2)])
    seen = num_tokens_by_time(ticket, loop)
    assert sorted((choice, position) for _, choice, position in seen) == [(c, p) for c in range(3) for p in range(2)]
    assert ticket.works[0].num_cached_tokens == 0


def test_no_more_than_asked_for_are_taken():
    loop = ManualLoop()
    ticket = driver(loop).submit([work("r", 10, 3)])
    loop.run()
    assert ticket._take(2) == [NewToken(0, 0, None), NewToken(0, 1, None)]
    assert ticket._take(2) == [NewToken(0, 2, "length")]


def test_what_the_cache_held_is_told_with_the_end():
    loop = ManualLoop()
    running = driver(loop)
    running.submit([work("first", 100, 5)])
    loop.run()
    ticket = running.submit([work("again", 100, 5)])
    loop.run()
    assert ticket.num_cached_tokens == 96


def test_an_abort_frees_the_engine_and_nobody_hears_of_it():
    loop = ManualLoop()
    running = driver(loop)
    gone = running.submit([work("gone", 100, 5000)])
    loop.run(1000.5)
    before = list(gone.works[0].num_produced)
    running.abort(gone)
    running.abort(gone)
    loop.run()
    facts = running.facts()
    assert (facts.num_running, facts.kv_usage_fraction) == (0, 0.0)
    assert gone.works[0].num_produced == before
    assert loop.now < 1000.6


async def test_what_the_engine_refuses_fails_that_request_alone():
    loop = ManualLoop()
    running = driver(loop)
    refused = running.submit([work("r", 730_001, 1)])
    other = running.submit([work("o", 10, 1)])
    loop.run()
    with pytest.raises(WorkFailed, match="prompt-too-long"):
        await refused.next_tokens()
    assert await other.next_tokens() == [NewToken(0, 0, "length")]


def test_the_prefix_cache_is_reset_between_requests():
    loop = ManualLoop()
    running = driver(loop)
    running.submit([work("first", 100, 5)])
    assert running.reset_prefix_cache()
    loop.run(1000.1)
    assert running.reset_prefix_cache() is False
    loop.run()
    assert running.reset_prefix_cache() is True
    again = running.submit([work("again", 100, 5)])
    loop.run()
    assert again.num_cached_tokens == 0


def test_a_closed_driver_makes_no_calls():
    loop = ManualLoop()
    running = driver(loop)
    ticket = running.submit([work("r", 10, 3)])
    running.close()
    loop.run()
    assert (loop.num_calls, ticket.changed.is_set()) == (0, False)


def test_two_hundred_at_once():
    loop = ManualLoop()
    running = driver(loop)
    tickets = [running.submit([work(f"r{n}", 200, 400, first_id=1000 * n)]) for n in range(200)]
    loop.run(1005)
    assert running.facts().num_running == 200
    loop.run()
    assert all(len(ticket._take(None)) == 400 for ticket in tickets)
    assert running.facts().num_generation_tokens == 200 * 400
    assert loop._calls == []


class Told:
    """A feed that names blocks and keeps what a subscriber would believe."""

    def __init__(self, block_size):
        self.names = BlockNames(BlockHasher(seed="0"), block_size)
        self.expect, self.forget = self.names.expect, self.names.forget
        self.held = set()

    def tell(self, told):
        for event in self.names.published(told):
            match event:
                case KVStored(block_hashes=hashes, parent_block_hash=parent, token_ids=ids, block_size=size):
                    assert not self.held & set(hashes)
                    assert parent is None or parent in self.held
                    assert len(ids) == len(hashes) * size
                    self.held |= set(hashes)
                case KVRemoved(block_hashes=hashes):
                    self.held -= {*hashes}
                    assert len(hashes) == 1


SMALL = replace(FITTED, max_num_batched_tokens=24, max_num_seqs=5, block_size=4, num_blocks=24, encoder_cache_embeds=12)
REQUESTS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.003, 0.02, 0.1]),
        st.integers(0, 3),
        st.integers(1, 40),
        st.integers(1, 30),
        st.sampled_from([1, 1, 2]),
        st.none() | st.sampled_from([0.0, 0.03, 0.05, 0.07, 0.2]),
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(REQUESTS)
def test_a_subscriber_believes_what_the_engine_holds(requests):
    loop = ManualLoop()
    feed = Told(SMALL.block_size)
    running = driver(loop, profile=SMALL, kv_feed=feed)
    for number, (gap_s, family, num_tokens, num_output_tokens, num_choices, patience_s) in enumerate(requests):
        loop.run(loop.now + gap_s)
        asked = work(
            f"r{number}",
            num_tokens,
            num_output_tokens,
            num_choices=num_choices,
            first_id=1000 * family,
            block_size=SMALL.block_size,
        )
        ticket = running.submit([asked])
        if patience_s is not None:
            loop.call_at(loop.now + patience_s, lambda ticket=ticket: running.abort(ticket))
    loop.run()
    kv = running._engine._scheduler.kv
    assert (kv.num_used, len(feed.held)) == (0, kv.num_cached)
    assert len(feed.names) == kv.num_cached
    assert feed.names._chains == {}
