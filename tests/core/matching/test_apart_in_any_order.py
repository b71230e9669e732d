"""Stages apart under any order of events: nothing is given back twice, and nothing is left at the end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import EncoderMatch, FirstToken, FirstTokenCost, InFlightLoad, Joined, Left
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.matching.mm_embeddings_cache import MMEmbeddingsCacheProducer
from tessera.core.matching.ttft_cost import TTFTCostProducer
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome
from tessera.core.work import EncodePlan, StageEnded, Work

NUMBERS = range(1, 5)
ENDPOINTS = [f"10.0.0.{number}:8000" for number in NUMBERS]
WINNERS = st.fixed_dictionaries(
    {"decode": st.integers(0, 3)},
    optional={
        "prefill": st.none() | st.integers(0, 3),
        "encode": st.lists(st.integers(0, 3), min_size=1, max_size=3),
    },
)
EVENTS = st.lists(
    st.tuples(st.just("decide"), WINNERS)
    | st.tuples(
        st.just("stage"),
        st.tuples(st.sampled_from(Work), st.integers(0, 3), st.sampled_from([0, 200, 503]), st.integers(0, 3)),
    )
    | st.tuples(st.sampled_from(["first", "end", "fail"]), st.integers(0, 9))
    | st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 3)),
    max_size=40,
)


class Memories:
    """Three that follow stages, and the requests that are open."""

    def __init__(self, build):
        self.build = build
        self.ledger = InflightLoadProducer()
        self.costs = TTFTCostProducer()
        self.belief = MMEmbeddingsCacheProducer()
        self.all = (self.ledger, self.costs, self.belief)
        self.open = {}
        self.told = {}
        self.num = 0

    def observe(self, event):
        for each in self.all:
            each.observe(event)

    def decide(self, winners):
        self.num += 1
        build, request_id = self.build, f"r{self.num}"
        items = [build.item(10, identifier=f"i{index % 3}", index=index, num_bytes=5) for index in range(4)]
        priced = build.priced(100, items, request_id=request_id)
        facts = {
            (FirstTokenCost, FirstTokenCost.producer): FirstTokenCost(prefill_s=1.0, encode_s=0.1),
            (EncoderMatch, EncoderMatch.producer): EncoderMatch(identifiers=frozenset()),
        }
        rows = [Candidate(build.endpoint(number), facts) for number in NUMBERS]
        stages = []
        for name, winner in winners.items():
            if name == "encode":
                by_item = {f"i{index}": ENDPOINTS[encoder] for index, encoder in enumerate(winner)}
                won = tuple(rows[index].endpoint for index in dict.fromkeys(winner))
                stages.append(build.stage(rows, profile=name, winners=won, encodes=EncodePlan(by_item, is_told=True)))
            else:
                stages.append(build.stage(rows, winner, name))
        self.open[request_id] = build.decision(priced, *stages, primary="decode")
        self.told[request_id] = []
        for each in self.all:
            each.record(self.open[request_id])

    def stage(self, told):
        stage, index, status, num_items = told
        for request_id in ["unknown", *list(self.open)[:1]]:
            fields = {"request_id": request_id, "status": status, "num_items": num_items, "seconds": 0.1}
            event = StageEnded(at=1.0, stage=stage, endpoint_id=ENDPOINTS[index], **fields)
            self.told.setdefault(request_id, []).append(event)
            self.observe(event)

    def end(self, number, *, status=200):
        for request_id in list(self.open)[number : number + 1]:
            fields = {"decision": self.open.pop(request_id), "stages": tuple(self.told[request_id])}
            ended = Outcome(request_id=request_id, ending=Ending.FINISHED, status=status, finished_at=2.0, **fields)
            for each in self.all:
                each.settle(ended)

    def apply(self, kind, what):
        match kind:
            case "decide" | "stage" | "end":
                getattr(self, kind)(what)
            case "fail":
                self.end(what, status=500)
            case "first":
                for request_id in list(self.open)[what : what + 1]:
                    self.observe(FirstToken(at=1.0, request_id=request_id, source=FirstTokenSource.BODY))
            case _:
                made = Joined if kind == "join" else Left
                self.observe(made(at=1.0, endpoint=self.build.endpoint(what + 1)))

    def check(self):
        for endpoint in ENDPOINTS:
            load = self.ledger.load_of(endpoint)
            fields = (load.num_requests, load.num_uncached_tokens, load.num_items, load.media_bytes, load.encode_embeds)
            assert min(fields) >= 0
            assert self.costs.queued_s(endpoint) >= 0
        num_requests = sum(self.ledger.load_of(endpoint).num_requests for endpoint in ENDPOINTS)
        assert len(self.open) <= num_requests <= 5 * len(self.open)


@given(events=EVENTS)
def test_nothing_is_negative_and_nothing_is_left(build, events):
    memories = Memories(build)
    for kind, what in events:
        memories.apply(kind, what)
        memories.check()
    while memories.open:
        memories.end(0)
    assert all(memories.ledger.load_of(endpoint) == InFlightLoad() for endpoint in ENDPOINTS)
    assert [memories.costs.queued_s(endpoint) for endpoint in ENDPOINTS] == [0.0] * 4
    assert (memories.ledger._entries, memories.ledger._accounts) == ({}, {})
    assert (memories.costs._charges, memories.costs._accounts) == ({}, {})
    assert memories.belief._apart == {}


def test_the_same_endpoint_may_do_everything(build):
    memories = Memories(build)
    memories.decide({"decode": 0, "prefill": 0, "encode": [0, 0, 0]})
    assert memories.ledger.load_of(ENDPOINTS[0]).encode_embeds == 30
    # An item takes 3.1 ms to encode, which the others' 0.1 s are spared, and 0.3 ms to prepare.
    expected_s = 1.0 + (0.1 - 3 * 0.0031) + 3 * (0.0031 + 0.0003)
    assert memories.costs.queued_s(ENDPOINTS[0]) == pytest.approx(expected_s, abs=1e-4)
    memories.end(0)
    assert memories.ledger.load_of(ENDPOINTS[0]) == InFlightLoad()
