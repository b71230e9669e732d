"""What simulator tests share: an engine whose times are round numbers, and scenarios of a few requests."""

import heapq
from pathlib import Path

import pytest

from tessera.engine.events import CacheCounters, EngineFacts, Finished, FirstToken
from tessera.engine.profiles import PROFILES
from tessera.sim.scenario import parse_scenario


class RoundEngine:
    """A stand-in: the first token comes 1 s after a request, the last 2 s after it; nobody waits for anybody."""

    def __init__(self, profile=PROFILES["h200-tp2-qwen3-vl-32b"]):
        self.profile = profile
        self.due = []
        self.num_first_tokens = 0
        self.open = {}

    def submit(self, request, at):
        self.open[request.request_id] = request
        heapq.heappush(self.due, (at + 1.0, request.request_id, "first"))
        heapq.heappush(self.due, (at + 2.0, request.request_id, "last"))

    def abort(self, request_id, at):
        self.open.pop(request_id, None)
        self.due = [each for each in self.due if each[1] != request_id]
        heapq.heapify(self.due)

    @property
    def next_at(self):
        return self.due[0][0] if self.due else None

    def advance(self, at):
        events = []
        while self.due and self.due[0][0] <= at:
            when, request_id, what = heapq.heappop(self.due)
            if what == "first":
                self.num_first_tokens += 1
                events.append(FirstToken(request_id, when))
            else:
                request = self.open.pop(request_id)
                events.append(Finished(request_id, when, request.num_prompt_tokens, 7, request.num_output_tokens))
        return events

    def facts(self, at):
        assert self.next_at is None or at <= self.next_at, "asked for an instant that has passed"
        none = CacheCounters(0, 0)
        return EngineFacts(
            num_waiting=0,
            num_running=len(self.open),
            kv_usage_fraction=0.25,
            num_blocks=100,
            block_size=16,
            num_first_tokens=self.num_first_tokens,
            prefix_cache=none,
            processor_cache=none,
            encoder_cache=none,
            num_preemptions=0,
            num_prompt_tokens=0,
            num_generation_tokens=0,
        )


@pytest.fixture
def round_engine():
    return RoundEngine


WORKLOAD = "{type: shared-prefix, num_groups: 6, num_prompts_per_group: 3, question_tokens: 40, output_tokens: 20}"
LOAD = "{{mode: {mode}, rates: {rates}, duration_s: 10, pause_s: 5, warm_up: {{duration_s: 5, rate: 4}}}}"
SMALL = """
description: a small fleet
endpoints: {endpoints}
workload: {workload}
load: {load}
policies: {policies}
seeds: 2
"""


@pytest.fixture
def small():
    """Makes a scenario whose runs take a fraction of a second."""

    def make(
        *,
        endpoints=2,
        mode="ladder",
        rates="[4, 8]",
        policies="[llm-d-multimodal]",
        workload=WORKLOAD,
        load=LOAD,
        extra="",
    ):
        load = load.format(mode=mode, rates=rates)
        text = SMALL.format(endpoints=endpoints, workload=workload, load=load, policies=policies) + extra
        return parse_scenario(text, "small", Path())

    return make
