"""Two ledgers that are charged at once and given back at the right events, exactly."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule, run_state_machine_as_test

from tessera.core.facts import FirstToken, InFlightLoad, Joined, Left, PrefixMatch
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.types import Ending, FirstTokenSource, Outcome
from tessera.core.work import EncodePlan, StageEnded, Work


def first_token(request_id="r1"):
    return FirstToken(at=1.0, request_id=request_id, source=FirstTokenSource.COUNTER)


def outcome(request_id="r1", ending=Ending.FINISHED):
    return Outcome(request_id=request_id, ending=ending, finished_at=2.0)


def recorded(build, ledger, request_id="r1", number=1, match=None):
    items = [
        build.item(100, num_embeds=90, identifier="a", num_bytes=7),
        build.item(50, num_embeds=50, identifier="b", num_bytes=11, index=1),
        build.item(100, num_embeds=90, identifier="a", num_bytes=7, index=2),
    ]
    priced = build.priced(1000, items, request_id=request_id)
    candidates = [build.candidate(number, match=match), build.candidate(number + 100)]
    ledger.record(build.decision(priced, build.stage(candidates)))
    return candidates[0].endpoint.id


def test_charged_at_the_decision_with_each_distinct_item_once(build):
    ledger = InflightLoadProducer()
    winner = recorded(build, ledger)
    assert ledger.load_of(winner) == InFlightLoad(
        num_requests=1, num_uncached_tokens=1250, num_items=2, media_bytes=18, encode_embeds=140
    )
    assert ledger.load_of("10.0.0.101:8000") == InFlightLoad()


def test_the_first_token_gives_back_prefill_and_encode_and_the_end_the_rest(build):
    ledger = InflightLoadProducer()
    winner = recorded(build, ledger)
    ledger.observe(first_token("other"))
    assert ledger.load_of(winner).num_uncached_tokens == 1250
    for _ in range(2):
        ledger.observe(first_token())
        assert ledger.load_of(winner) == InFlightLoad(num_requests=1, num_items=2, media_bytes=18)
    for _ in range(2):
        assert ledger.settle(outcome()) == ()
        assert ledger.load_of(winner) == InFlightLoad()


def test_the_end_gives_back_everything_where_no_first_token_came(build):
    ledger = InflightLoadProducer()
    winner = recorded(build, ledger)
    ledger.settle(outcome(ending=Ending.ABORTED))
    assert ledger.load_of(winner) == InFlightLoad()


@pytest.mark.parametrize(("matched", "uncached"), [(0, 1250), (250, 1000), (1250, 0), (2000, 0)])
def test_what_a_cache_holds_is_not_charged(build, matched, uncached):
    ledger = InflightLoadProducer()
    winner = recorded(build, ledger, match=PrefixMatch(num_matched_tokens=matched, num_total_tokens=1250))
    assert ledger.load_of(winner).num_uncached_tokens == uncached


def test_every_stage_charges_its_winner(build):
    ledger = InflightLoadProducer()
    encode, decode = (build.stage([build.candidate(n)], profile=name) for n, name in ((1, "encode"), (2, "decode")))
    nobody = build.stage([build.candidate(3)], None, profile="prefill")
    ledger.record(build.decision(build.priced(10), encode, nobody, decode))
    loads = [ledger.load_of(f"10.0.0.{n}:8000").num_requests for n in (1, 2, 3)]
    assert loads == [1, 1, 0]


def test_expected_answer_tokens_stay_until_the_end(build):
    def charged(max_output_tokens=None, **parameters):
        ledger = InflightLoadProducer(add_estimated_output_tokens=True, **parameters)
        priced = build.priced(100, max_output_tokens=max_output_tokens)
        ledger.record(build.decision(priced))
        before = ledger.load_of("10.0.0.1:8000").num_uncached_tokens
        ledger.observe(first_token())
        after = ledger.load_of("10.0.0.1:8000").num_uncached_tokens
        ledger.settle(outcome())
        assert ledger.load_of("10.0.0.1:8000") == InFlightLoad()
        return before, after

    assert charged() == (250, 150)
    assert charged(output_ratio=0.5) == (150, 50)
    assert charged(max_output_tokens=30) == (130, 30)
    assert charged(max_estimated_output_tokens=20) == (120, 20)
    assert charged(max_output_tokens=10, max_estimated_output_tokens=20) == (110, 10)


def test_matching_is_a_question(build):
    ledger = InflightLoadProducer()
    recorded(build, ledger)
    endpoints = [build.endpoint(n) for n in (2, 1)]
    assert [fact.num_requests for fact in ledger.match(build.priced(), endpoints)] == [0, 1]
    assert ledger.match(build.priced(), endpoints) == ledger.match(build.priced(), endpoints)


def test_ten_thousand_endpoints_leave_nothing_behind(build):
    ledger = InflightLoadProducer()
    for number in range(10_000):
        endpoint = build.endpoint(number % 250, port=number + 1)
        ledger.observe(Joined(at=0.0, endpoint=endpoint))
        candidate = build.candidate(endpoint=endpoint)
        ledger.record(build.decision(build.priced(10, request_id=f"r{number}"), build.stage([candidate])))
        ledger.observe(Left(at=0.0, endpoint=endpoint))
        ledger.settle(outcome(f"r{number}"))
    assert ledger._accounts == {}
    assert ledger._entries == {}


class Ledgers(RuleBasedStateMachine):
    """Any order of decisions, first tokens, ends and churn, beside sums that are made anew each time."""

    open = Bundle("open")

    def __init__(self):
        super().__init__()
        self.ledger = InflightLoadProducer(add_estimated_output_tokens=True)
        self.held = {}
        self.num = 0

    @rule(target=open, number=st.integers(1, 3), tokens=st.integers(0, 1000), items=st.lists(st.integers(1, 50)))
    def decide(self, number, tokens, items):
        self.num += 1
        request_id = f"r{self.num}"
        made = [self.build.item(n, identifier=f"i{i}", index=i, num_bytes=n) for i, n in enumerate(items)]
        priced = self.build.priced(tokens, made, request_id=request_id)
        self.ledger.record(self.build.decision(priced, self.build.stage([self.build.candidate(number)])))
        self.held[request_id] = (f"10.0.0.{number}:8000", tokens + sum(items), sum(items), len(items))
        return request_id

    @rule(request_id=open)
    def see_first_token(self, request_id):
        self.ledger.observe(first_token(request_id))
        endpoint, _, _, num_items = self.held[request_id]
        self.held[request_id] = (endpoint, 0, 0, num_items)

    @rule(request_id=consumes(open))
    def end(self, request_id):
        self.ledger.settle(outcome(request_id))
        del self.held[request_id]
        self.ledger.observe(first_token(request_id))

    @rule(number=st.integers(1, 3), joins=st.booleans())
    def churn(self, number, joins):
        self.ledger.observe((Joined if joins else Left)(at=0.0, endpoint=self.build.endpoint(number)))

    @rule(request_id=st.sampled_from(["never", "r0"]))
    def unknown(self, request_id):
        self.ledger.observe(first_token(request_id))
        self.ledger.settle(outcome(request_id))

    @invariant()
    def sums_are_those_of_the_open_requests(self):
        for number in (1, 2, 3):
            endpoint = f"10.0.0.{number}:8000"
            mine = [held for held in self.held.values() if held[0] == endpoint]
            load = self.ledger.load_of(endpoint)
            assert load.num_requests == len(mine)
            assert load.encode_embeds == sum(held[2] for held in mine)
            assert load.num_items == sum(held[3] for held in mine)
            assert load.num_uncached_tokens >= sum(held[1] for held in mine) >= 0
            assert load.media_bytes >= 0
        assert len(self.ledger._accounts) <= 3
        assert len(self.ledger._entries) == len(self.held)

    def teardown(self):
        for request_id in list(self.held):
            self.ledger.settle(outcome(request_id))
        assert self.ledger._accounts == {}
        assert self.ledger._entries == {}


def test_any_order_of_events(build):
    machine = type("Machine", (Ledgers,), {"build": build})
    run_state_machine_as_test(machine, settings=settings(max_examples=60, stateful_step_count=30))


def apart(build, ledger, encodes=None, **parameters):
    """A request whose stages run on endpoints 1 (decode), 2 (prefill) and 3 (encode)."""
    items = [
        build.item(100, num_embeds=90, identifier="a", num_bytes=7),
        build.item(50, num_embeds=50, identifier="b", num_bytes=11, index=1),
        build.item(100, num_embeds=90, identifier="a", num_bytes=7, index=2),
    ]
    match = PrefixMatch(num_matched_tokens=400, num_total_tokens=1250)
    rows = [build.candidate(1), build.candidate(2, match=match), build.candidate(3), build.candidate(4)]
    stages = [build.stage(rows, 0, "decode"), build.stage(rows, 1, "prefill"), build.stage(rows, 2, "encode")]
    if encodes:
        stages[2] = build.stage(rows, 2, "encode", encodes=encodes)
    ledger.record(build.decision(build.priced(1000, items), *stages, primary="decode"))
    return [row.endpoint.id for row in rows]


def stage_ended(stage, endpoint_id, request_id="r1", status=200):
    return StageEnded(
        at=1.0, request_id=request_id, stage=stage, endpoint_id=endpoint_id, status=status, seconds=0.1, num_items=2
    )


def test_each_stage_is_charged_with_its_own_work(build):
    ledger = InflightLoadProducer()
    decode, prefill, encode, _ = apart(build, ledger)
    assert ledger.load_of(encode) == InFlightLoad(num_requests=1, num_items=2, media_bytes=18, encode_embeds=140)
    assert ledger.load_of(prefill) == InFlightLoad(
        num_requests=1, num_items=2, media_bytes=18, num_uncached_tokens=1250 - 400
    )
    assert ledger.load_of(decode) == InFlightLoad(num_requests=1)


def test_a_prefill_that_finds_who_decodes_is_one_request_there(build):
    ledger = InflightLoadProducer()
    rows = [build.candidate(1), build.candidate(2)]
    stages = [build.stage(rows, 0, "decode"), build.stage(rows, 0, "prefill")]
    item = build.item(100, num_embeds=90, identifier="a", num_bytes=7)
    ledger.record(build.decision(build.priced(1000, [item]), *stages, primary="decode"))
    both = rows[0].endpoint.id
    held = {"num_requests": 1, "num_items": 1, "media_bytes": 7}
    assert ledger.load_of(both) == InFlightLoad(**held, num_uncached_tokens=1100, encode_embeds=90)
    ledger.observe(first_token())
    assert ledger.load_of(both) == InFlightLoad(**held)
    ledger.settle(outcome())
    assert ledger.load_of(both) == InFlightLoad()


def test_of_items_that_are_spread_each_encoder_has_its_own_and_who_prefills_the_rest(build):
    ledger = InflightLoadProducer()
    plan = EncodePlan({"b": "10.0.0.4:8000"}, is_told=True)
    decode, prefill, encode, spread = apart(build, ledger, plan)
    assert ledger.load_of(encode) == InFlightLoad()
    assert ledger.load_of(spread) == InFlightLoad(num_requests=1, num_items=1, media_bytes=11, encode_embeds=50)
    assert ledger.load_of(prefill).encode_embeds == 90
    assert ledger.load_of(decode).encode_embeds == 0


@pytest.mark.parametrize("status", [200, 503, 0])
def test_a_stage_that_ends_gives_its_own_back_once(build, status):
    ledger = InflightLoadProducer()
    decode, prefill, encode, other = apart(build, ledger)
    for wrong in (
        stage_ended(Work.ENCODE, other),
        stage_ended(Work.ENCODE, prefill),
        stage_ended(Work.ENCODE, encode, "r2"),
    ):
        ledger.observe(wrong)
        assert ledger.load_of(encode).encode_embeds == 140
    for _ in range(2):
        ledger.observe(stage_ended(Work.ENCODE, encode, status=status))
        assert ledger.load_of(encode) == InFlightLoad()
    assert ledger.load_of(prefill).num_uncached_tokens == 850
    ledger.observe(stage_ended(Work.PREFILL, prefill, status=status))
    ledger.observe(stage_ended(Work.DECODE, decode, status=status))
    assert ledger.load_of(prefill) == InFlightLoad()
    assert ledger.load_of(decode) == InFlightLoad(num_requests=1)
    ledger.settle(outcome())
    assert ledger.load_of(decode) == InFlightLoad()


@pytest.mark.parametrize("has_first_token", [True, False])
def test_what_no_stage_gave_back_the_first_token_or_the_end_does(build, has_first_token):
    ledger = InflightLoadProducer()
    decode, prefill, encode, _ = apart(build, ledger)
    if has_first_token:
        ledger.observe(first_token())
        assert ledger.load_of(decode) == InFlightLoad(num_requests=1)
    else:
        ledger.settle(outcome())
        assert ledger.load_of(decode) == InFlightLoad()
    assert ledger.load_of(encode) == ledger.load_of(prefill) == InFlightLoad()
