"""The whole road of a decision: what is believed, who is chosen, what is remembered."""

from collections import Counter
from dataclasses import replace

import pytest

from tessera.core.errors import DropReason
from tessera.core.facts import EndpointState, FirstToken, FleetView, InFlightLoad, Load
from tessera.core.filters.concurrency_detector import ConcurrencyDetector
from tessera.core.filters.decode import DecodeFilter
from tessera.core.parts import TextPart
from tessera.core.plugin import Scorer
from tessera.core.rendering.prompt import PromptTokens
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.scorers.queue import QueueScorer
from tessera.core.types import Ending, FirstTokenSource, ModelProfile, Outcome

IDLE = Load(num_waiting=0, num_running=0, kv_usage_fraction=0.0, at=0.0)


def rng_of(request):
    return SeededRng(7, request.request_id)


def decide(router, request, view, at=0.0):
    return router.decide(request, view, at, rng_of(request))


def route_many(build, sizes, load=IDLE, at=0.0, num_endpoints=8):
    """Decides requests of these sizes, in text tokens, with nothing scraped in between."""
    router = build.router()
    view = build.view([build.endpoint(number) for number in range(num_endpoints)], load)
    decisions = [decide(router, build.text_request(n, f"r{i}"), view, at) for i, n in enumerate(sizes)]
    return decisions, router


class TestSpreading:
    """64 requests within one scrape period on 8 equal endpoints, where only our own counts move."""

    @pytest.mark.parametrize("size", [1, 250, 3000, 100_000])
    def test_equal_sizes_go_evenly(self, build, size):
        decisions, _ = route_many(build, [size] * 64)
        assert Counter(Counter(d.destinations[0].id for d in decisions).values()) == {8: 8}

    @pytest.mark.parametrize("largest", [4_000, 16_000, 100_000])
    def test_mixed_sizes_go_evenly_by_count_and_nobody_gets_twice_the_fair_share_of_tokens(self, build, largest):
        """Requests of 10 to ``largest`` tokens: the counts weigh more than the tokens, of 4 Mi each, do."""
        sizes = [10 if n % 3 else largest * (n % 7 + 1) // 7 for n in range(64)]
        decisions, _ = route_many(build, sizes)
        counts = Counter(d.destinations[0].id for d in decisions)
        assert max(counts.values()) <= 16
        assert set(counts.values()) == {8}
        tokens = Counter()
        for decision in decisions:
            tokens[decision.destinations[0].id] += decision.priced.num_prompt_tokens
        assert max(tokens.values()) < 2 * sum(sizes) / 8

    def test_a_giant_among_small_ones_is_left_alone(self, build):
        """Two million tokens outweigh the counts: its endpoint gets no more, the others stay below twice the share."""
        decisions, _ = route_many(build, [2_000_000] + [100] * 63)
        counts = Counter(d.destinations[0].id for d in decisions)
        assert counts[decisions[0].destinations[0].id] < 8
        assert max(counts.values()) <= 16

    def test_a_pool_whose_metrics_are_all_stale_is_spread_by_our_own_counts(self, build):
        load = Load(num_waiting=3, num_running=9, kv_usage_fraction=0.9, at=0.0)
        decisions, _ = route_many(build, [500] * 64, load, at=60.0)
        assert Counter(Counter(d.destinations[0].id for d in decisions).values()) == {8: 8}
        assert all(d.guesses == ("stale-metrics:8/8",) for d in decisions)

    def test_fallbacks_are_two_others(self, build):
        decisions, _ = route_many(build, [100] * 20)
        assert all(len({endpoint.id for endpoint in d.destinations}) == 3 for d in decisions)


class TestStaleness:
    def views(self, build, *ats):
        loads = [Load(num_waiting=n, kv_usage_fraction=0.1, at=at) for n, at in enumerate(ats)]
        states = [EndpointState(build.endpoint(n), load) for n, load in enumerate(loads)]
        return FleetView(tuple(states))

    def test_an_old_scrape_is_replaced_by_ignorance_and_named(self, build):
        router = build.router([(QueueScorer(), 1.0)])
        decision = decide(router, build.request(), self.views(build, 8.0, 7.99, None, 10.0), at=10.0)
        loads = [c[Load] for c in decision.primary_stage.candidates]
        assert [load.at for load in loads] == [8.0, None, None, 10.0]
        assert [load.num_waiting for load in loads] == [0, None, None, 3]
        assert decision.guesses == ("stale-metrics:2/4",)
        # Who does not answer is passed over: two of four do.
        assert decision.primary_stage.columns["queue-scorer"] == (1.0, 0.0)
        assert decision.primary_stage.filtered_by == (None, "stale-metrics", "stale-metrics", None)
        assert [endpoint.id for endpoint in decision.destinations] == [build.endpoint(n).id for n in (0, 3)]

    def test_where_most_do_not_answer_they_are_taken_for_the_longest_queue_known(self, build):
        router = build.router([(QueueScorer(), 1.0)])
        decision = decide(router, build.request(), self.views(build, 7.99, 7.99, 9.0, 9.0, 7.99), at=10.0)
        assert decision.primary_stage.columns["queue-scorer"] == (0.0, 0.0, 1.0, 0.0, 0.0)
        assert decision.primary_stage.filtered_by == (None,) * 5

    def test_nobody_is_passed_over_whom_a_filter_would_leave_alone(self, build):
        router = build.router(filters=[DecodeFilter()])
        states = [
            EndpointState(build.endpoint(n, role=role), Load(num_waiting=0, at=at))
            for n, role, at in ((1, "encode", 9.0), (2, "decode", 7.0))
        ]
        decision = decide(router, build.request(), FleetView(tuple(states)), at=10.0)
        assert [endpoint.id for endpoint in decision.destinations] == [build.endpoint(2).id]
        assert decision.primary_stage.filtered_by == ("decode-filter", None)

    def test_fresh_ones_are_no_guess(self, build):
        decision = decide(build.router(), build.request(), self.views(build, 9.0, 9.5), at=10.0)
        assert decision.guesses == ()


class TestRejections:
    def test_an_empty_pool(self, build):
        decision = decide(build.router(), build.request(), FleetView())
        assert decision.rejection.reason is DropReason.NO_ENDPOINTS
        assert decision.rejection.reason.status == 503
        assert decision.rejection.filter is None
        assert decision.rejection.message == "the pool has no endpoint"
        assert decision.destinations == ()

    def test_no_endpoint_has_the_role(self, build):
        view = build.view([build.endpoint(n, role="encode") for n in (1, 2)], IDLE)
        decision = decide(build.router(filters=[DecodeFilter()]), build.request(), view)
        assert (decision.rejection.reason, decision.rejection.filter) == (DropReason.NO_ENDPOINTS, "decode-filter")
        assert decision.rejection.reason == "rejected-no-endpoints"
        assert decision.primary_stage.filtered_by == ("decode-filter", "decode-filter")

    def test_all_endpoints_are_full(self, build):
        router = build.router(filters=[DecodeFilter(), ConcurrencyDetector(max_concurrency=1)])
        view = build.view([build.endpoint(1)], IDLE)
        assert decide(router, build.request("r1"), view).rejection is None
        decision = decide(router, build.request("r2"), view)
        assert decision.rejection.filter == "concurrency-detector"
        assert decision.rejection.reason == "rejected-saturated"
        assert decision.rejection.reason.status == 429

    def test_nothing_is_remembered_of_a_rejected_request(self, build):
        router = build.router(filters=[ConcurrencyDetector(max_concurrency=1)])
        view = build.view([build.endpoint(1)], IDLE)
        for number in range(3):
            decide(router, build.text_request(10, f"r{number}"), view)
        assert router.producers[0].load_of("10.0.0.1:8000").num_requests == 1


class TestSubset:
    @pytest.mark.parametrize(
        ("subset", "chosen"),
        [
            (("10.0.0.2:8000",), {2}),
            (("10.0.0.2:9999", "10.0.0.3:1"), {2, 3}),
            (("10.0.0.2",), {2}),
            (None, {1, 2, 3}),
        ],
    )
    def test_restricts_by_address(self, build, subset, chosen):
        view = build.view([build.endpoint(n) for n in (1, 2, 3)], IDLE)
        decision = decide(build.router(), build.request(subset=subset), view)
        assert {int(c.endpoint.address[-1]) for c in decision.primary_stage.candidates} == chosen

    def test_by_address_in_version_six_too(self, build):
        six = type(build.endpoint())(address="fd00::1", port=8000)
        view = build.view([six, build.endpoint(1)], IDLE)
        for entry in ("[fd00::1]:8000", "[fd00::1]:1"):
            decision = decide(build.router(), build.request(subset=(entry,)), view)
            assert [c.endpoint.id for c in decision.primary_stage.candidates] == ["[fd00::1]:8000"]

    @pytest.mark.parametrize("subset", [(), ("10.9.9.9:8000",), ("nonsense", ":", "[")])
    def test_that_matches_nobody_rejects(self, build, subset):
        view = build.view([build.endpoint(1)], IDLE)
        decision = decide(build.router(), build.request(subset=subset), view)
        assert decision.rejection.reason is DropReason.NO_ENDPOINTS
        assert f"of the {len(subset)} that the gateway allows" in decision.rejection.message


class TestMemory:
    def test_choosing_changes_nothing_and_gives_the_answer_of_deciding(self, build):
        _, router = route_many(build, [100] * 5)
        view = build.view([build.endpoint(number) for number in range(8)], IDLE)
        request = build.text_request(777, "asked")
        before = [router.producers[0].load_of(f"10.0.0.{n}:8000") for n in range(8)]
        first, second = (router.choose(request, view, 1.0, rng_of(request)) for _ in range(2))
        assert [router.producers[0].load_of(f"10.0.0.{n}:8000") for n in range(8)] == before
        decided = decide(router, request, view, 1.0)
        for other in (second, decided):
            assert other.destinations == first.destinations
            assert other.primary_stage.totals == first.primary_stage.totals
            assert other.primary_stage.columns == first.primary_stage.columns
            assert (other.plan, other.guesses, other.rejection) == (first.plan, first.guesses, first.rejection)

    def test_the_next_decision_sees_the_last_ones_load(self, build):
        router = build.router()
        view = build.view([build.endpoint(1)], IDLE)
        decide(router, build.text_request(100, "r1"), view)
        decision = decide(router, build.text_request(50, "r2"), view)
        facts = decision.primary_stage.candidates[0][InFlightLoad]
        assert (facts.num_requests, facts.num_uncached_tokens) == (1, 100)

    def test_the_first_token_and_the_end_reach_the_ledgers(self, build):
        router = build.router()
        endpoint = build.endpoint(1)
        decide(router, build.text_request(100, "r1"), build.view([endpoint], IDLE))
        router.observe(FirstToken(at=1.0, request_id="r1", source=FirstTokenSource.BODY))
        load = router.producers[0].load_of(endpoint.id)
        assert (load.num_requests, load.num_uncached_tokens) == (1, 0)
        assert router.settle(Outcome(request_id="r1", ending=Ending.FINISHED, finished_at=2.0)) == []
        assert router.producers[0].load_of(endpoint.id) == InFlightLoad()
        router.close()

    def test_the_plan_and_what_was_guessed_stand_in_the_decision(self, build):
        request = build.request(
            prompts=((build.media(reason="link"), TextPart(num_bytes=4)),), guesses=("body-reread",)
        )
        decision = decide(build.router(), request, build.view([build.endpoint(1)]), at=3.0)
        assert decision.plan == {"default": "10.0.0.1:8000"}
        assert decision.guesses == ("body-reread", "stale-metrics:1/1", "link:0")
        assert decision.at == 3.0


def test_tokenising_says_why_there_are_no_ids(build):
    request, draft = Router.read(b"", {}, ModelProfile(), request_id="r", at=0.0, wall_at=0.0)
    assert build.router().tokenise(request, draft, None) == PromptTokens(reason="no-renderer")


class Writes(Scorer):
    """Adds headers to answers, and notes for which endpoint."""

    def __init__(self, **headers):
        self.headers = headers

    def answer_headers(self, decision, served):
        return {name: f"{value} {served.id}" for name, value in self.headers.items()}


def test_answers_get_the_headers_of_every_plugin_that_writes_some(build):
    decision, served = build.decision(), build.endpoint(2)
    router = build.router()
    assert router.answer_headers(decision, served) == {}
    router = replace(router, answering=(Writes(a="one"), Writes(a="two", b="two")))
    assert router.answer_headers(decision, served) == {"a": "one 10.0.0.2:8000", "b": "two 10.0.0.2:8000"}


@pytest.mark.parametrize("value", ["a\r\nset-cookie: b", "é", "\0"])
def test_a_header_s_value_is_one_line(build, value):
    router = replace(build.router(), answering=(Writes(a=value),))
    with pytest.raises(AssertionError, match="a header's value is one line"):
        router.answer_headers(build.decision(), build.endpoint(2))
