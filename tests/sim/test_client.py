"""What a client sees of its requests, with an engine whose first token takes 1 s and whose last 2 s."""

import pytest

from tessera.core.types import Ending, FirstTokenSource, ModelProfile
from tessera.engine.events import Failed, FailureReason
from tessera.engine.profiles import PROFILES
from tessera.sim.client import Client
from tessera.sim.connections import Connections
from tessera.sim.content import Text, user
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import Server, endpoints
from tessera.sim.sidecar import Sidecars

ASK = user(Text("q", 10), num_output_tokens=5)


class Bench:
    def __init__(self, build, engine, *, num_servers=1, **fields):
        self.kernel = Kernel()
        self.servers = [
            Server(self.kernel, each, engine(), scrape_interval_s=0.05, phase=0.5) for each in endpoints(num_servers)
        ]
        self.gateway = Gateway(build.router(), self.servers, seed=0, source=FirstTokenSource.BODY, tells_cached=False)
        prompts = Prompts(ModelProfile(), "m", family_of(PROFILES["h200-tp2-qwen3-vl-32b"]))
        self.connections = Connections(0, num_workers=1)
        sidecars = Sidecars(self.kernel, self.servers)
        self.client = Client(self.kernel, self.gateway, sidecars, prompts, self.connections, **fields)
        self.sent, self.over = [], []
        self.client.on_end = lambda sent: self.over.append((self.kernel.now, sent.id))
        for server in self.servers:
            server.on_event = sidecars.hear

    def send(self, at):
        self.kernel.at(at, lambda: self.sent.append(self.client.send(ASK, 0)))


def test_times_are_the_clients(build, round_engine):
    bench = Bench(build, round_engine)
    bench.send(1.0)
    bench.kernel.run()
    (sent,) = bench.sent
    assert (sent.sent_at, sent.first_at, sent.ended_at, sent.ending) == (1.0, 2.0, 3.0, Ending.FINISHED)
    assert (sent.ttft_s, sent.tpot_s) == (1.0, 0.25)
    assert sent.endpoint_id == "10.0.0.1:8000"
    assert bench.over == [(3.0, sent.id)]


def test_the_network_delays_both_ways(build, round_engine):
    bench = Bench(build, round_engine, delay_s=0.25)
    bench.send(1.0)
    bench.kernel.run()
    (sent,) = bench.sent
    assert (sent.first_at, sent.ended_at, sent.ttft_s) == (2.5, 3.5, 1.5)


def test_who_gives_up_gets_nothing_and_leaves_nothing(build, round_engine):
    bench = Bench(build, round_engine, timeout_s=1.5)
    bench.send(1.0)
    bench.kernel.run()
    (sent,) = bench.sent
    assert (sent.ending, sent.first_at, sent.ended_at) == (Ending.ABORTED, 2.0, 2.5)
    assert bench.servers[0].engine.open == {}
    assert (bench.client.num_in_flight, bench.gateway.num_open) == (0, 0)


def test_who_gives_up_before_the_request_arrived_never_asked(build, round_engine):
    bench = Bench(build, round_engine, delay_s=0.5, timeout_s=0.25)
    bench.send(1.0)
    bench.kernel.run()
    assert bench.sent[0].ending is Ending.ABORTED
    assert bench.gateway.num_open == 0
    assert bench.servers[0].engine.due == []


def test_an_answer_within_the_timeout_is_no_failure(build, round_engine):
    bench = Bench(build, round_engine, timeout_s=2.5)
    bench.send(1.0)
    bench.kernel.run()
    assert bench.sent[0].ending is Ending.FINISHED
    assert bench.over == [(3.0, bench.sent[0].id)]


def test_a_cut_connection_is_not_used_again(build, round_engine):
    bench = Bench(build, round_engine, timeout_s=1.5)
    bench.send(1.0)
    bench.kernel.run()
    assert bench.connections.take(2.5).id == "0-0-2"


def test_a_connection_is_used_again_once_its_answer_has_ended(build, round_engine):
    bench = Bench(build, round_engine)
    bench.send(1.0)
    bench.kernel.run()
    assert bench.connections.take(3.5).id == "0-0-1"


def test_nobody_to_ask_is_a_failure(build, round_engine):
    bench = Bench(build, round_engine, num_servers=0)
    bench.send(1.0)
    bench.kernel.run()
    assert [each.ending for each in bench.sent] == [Ending.REJECTED]
    assert bench.over == [(1.0, bench.sent[0].id)]


def test_what_an_engine_refuses_is_a_failure(build, round_engine):
    bench = Bench(build, round_engine)
    bench.send(1.0)
    refused = Failed("r0", 1.5, FailureReason.PROMPT_TOO_LONG)
    bench.kernel.at(1.5, lambda: bench.servers[0].engine.abort("r0", 1.5))
    bench.kernel.at(1.5, lambda: bench.client.hear(refused))
    bench.kernel.run()
    assert bench.sent[0].ending is Ending.FAILED
    assert bench.gateway.num_open == 0


@pytest.mark.parametrize("at", [0.5, 1.0, 1.9, 2.5, 3.1, 3.9, 5.0])
def test_arrived_is_over_and_in_flight(build, round_engine, at):
    bench = Bench(build, round_engine, num_servers=2, timeout_s=1.75, delay_s=0.05)
    for number in range(20):
        bench.send(0.2 * number)
    bench.kernel.at(at, lambda: seen.append((bench.client.num_sent, len(bench.over), bench.client.num_in_flight)))
    seen = []
    bench.kernel.run()
    ((sent, over, in_flight),) = seen
    assert sent == over + in_flight
    assert bench.client.num_sent == len(bench.over) == 20
