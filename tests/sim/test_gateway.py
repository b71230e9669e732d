"""The router in virtual time: ledgers charged and released when a live one would charge and release them."""

import pytest

from tessera.core.facts import InFlightLoad
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.types import Ending, FirstTokenSource, Usage
from tessera.engine.requests import EngineRequest, TextSegment
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.servers import Server, endpoints


class Bench:
    """A gateway before one or more servers; requests of 64 text tokens, numbered."""

    def __init__(self, build, engine, source, number=1, **fields):
        self.build, self.kernel = build, Kernel()
        self.servers = [
            Server(self.kernel, each, engine(), scrape_interval_s=0.05, phase=0.5) for each in endpoints(number)
        ]
        self.router = build.router()
        self.ledger = next(each for each in self.router.memories if isinstance(each, InflightLoadProducer))
        self.gateway = Gateway(self.router, self.servers, seed=0, source=source, **({"tells_cached": False} | fields))
        for server in self.servers:
            server.on_event = self.hear
        self.outcomes = []

    def hear(self, event):
        if type(event).__name__ == "FirstToken":
            self.gateway.first_token(event.request_id, event.at)
        else:
            self.gateway.ended(event.request_id, Ending.FINISHED, event.at, usage=Usage(prompt_tokens=64))

    def send(self, name, at, *, submits=True):
        def go():
            server = self.gateway.decide(self.build.text_request(64, name, at=at))
            if submits:
                server.submit(EngineRequest(name, (TextSegment(1, 64),), 2))

        self.kernel.at(at, go)

    def look(self, at, seen):
        self.kernel.at(at, lambda: seen.append(self.ledger.load_of(self.servers[0].endpoint.id)))


def loads(*tokens_and_requests):
    return [InFlightLoad(num_uncached_tokens=tokens, num_requests=requests) for tokens, requests in tokens_and_requests]


def test_by_body_tokens_go_at_the_first_token_and_the_request_at_its_end(build, round_engine):
    bench, seen = Bench(build, round_engine, FirstTokenSource.BODY), []
    bench.send("a", 1.0)
    for at in (0.9, 1.1, 1.9, 2.1, 2.9, 3.1):
        bench.look(at, seen)
    bench.kernel.run()
    assert seen == loads((0, 0), (64, 1), (64, 1), (0, 1), (0, 1), (0, 0))
    assert bench.gateway.num_open == 0


def test_by_prediction_tokens_go_when_the_rate_says_so_at_the_next_decision(build, round_engine):
    bench, seen = Bench(build, round_engine, FirstTokenSource.PREDICTED), []
    bench.send("a", 1.0)
    bench.send("b", 1.003)
    bench.look(1.0035, seen)
    bench.send("c", 1.005)
    bench.look(1.006, seen)
    bench.kernel.run()
    # 64 tokens take 4.02 ms: a is over at 1.005, b behind it (8.04 ms from 1.003 on) is not.
    assert seen == loads((128, 2), (128, 3))


def test_by_counter_tokens_go_with_the_first_scrape_that_shows_them(build, round_engine):
    bench, seen = Bench(build, round_engine, FirstTokenSource.COUNTER), []
    # A trusted counter takes 20 scrapes, each looked at at a decision; then all first tokens are waited for.
    for number in range(30):
        bench.send(f"w{number}", 10.0 + 0.1 * number)
    bench.send("z", 14.5)
    # a's first token comes at 16.0, between the scrapes at 15.975 and 16.025.
    bench.send("a", 15.0)
    bench.send("b", 16.01)
    bench.look(16.015, seen)
    bench.send("c", 16.03)
    bench.look(16.04, seen)
    bench.kernel.run()
    # First a and b have none, then b and c: by prediction all were gone after 4 ms each.
    assert [each.num_uncached_tokens for each in seen] == [128, 128]


def test_a_rejected_request_goes_nowhere_and_leaves_nothing(build, round_engine):
    bench = Bench(build, round_engine, FirstTokenSource.BODY)
    request = build.text_request(64, "a", at=1.0, subset=("10.9.9.9:1",))
    assert bench.gateway.decide(request) is None
    assert bench.gateway.num_open == 0


@pytest.mark.parametrize(("tells_cached", "told"), [(True, 48), (False, None)])
def test_usage_tells_cached_tokens_only_where_the_engine_does(build, round_engine, tells_cached, told, monkeypatch):
    bench = Bench(build, round_engine, FirstTokenSource.BODY, tells_cached=tells_cached)
    usages = []
    monkeypatch.setattr(type(bench.ledger), "settle", lambda self, outcome: usages.append(outcome.usage) or ())
    bench.gateway.decide(build.text_request(64, "a", at=1.0))
    usage = Usage(prompt_tokens=64, completion_tokens=9, cached_tokens=48)
    bench.gateway.ended("a", Ending.FINISHED, 2.0, usage=usage)
    assert usages == [Usage(prompt_tokens=64, completion_tokens=9, cached_tokens=told)]
