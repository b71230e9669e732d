"""The road of a request through servers that share it, by the clock: the flow that the live sidecar drives too."""

import pytest

from tessera.config.load import load_file
from tessera.core.flow.settings import FlowSettings
from tessera.core.types import Ending, FirstTokenSource
from tessera.engine.events import Failed, FailureReason, KVPulled
from tessera.engine.roles import Role
from tessera.sim.client import Client
from tessera.sim.connections import Connections
from tessera.sim.content import Image, Text, user
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import Server, endpoints_of
from tessera.sim.sidecar import KV_LEASE_S, Hops, Sidecars
from tessera.sim.topology import BASE, FOLDER, Topology, profile_of

HOPS = Hops(network_s=0.25, sidecar_s=0.125)


def ask(name=""):
    large, small = Image(f"{name}a", 1280, 720), Image(f"{name}b", 640, 480)
    return user(large, small, large, Text(f"{name}t", 10), num_output_tokens=5)


@pytest.fixture
def fleet(round_engine):
    """Makes a fleet of engines whose first token comes 1 s after a request, the last 2 s after it."""

    class Engine(round_engine):
        def __init__(self, profile):
            super().__init__(profile)
            self.asked = []
            self.released = []
            self.fails = False
            self.forgets = False

        def submit(self, request, at):
            self.asked.append((at, request))
            super().submit(request, at)

        def advance(self, at):
            events = super().advance(at)
            if self.fails:
                ended = [event for event in events if hasattr(event, "num_prompt_tokens")]
                return [Failed(event.request_id, event.at, FailureReason.ITEM_TOO_LARGE) for event in ended]
            return events

        def release_kv(self, request_id, at):
            self.released.append((at, request_id))

        def stored_embeddings_bytes(self, identifier, at):
            return None if self.forgets else 1

    class Fleet:
        def __init__(self, num_encode=0, num_prefill=0, num_decode=1, *, spreads=True, decodes_bare=False, **limits):
            topology = Topology(
                name="t", num_encode=num_encode, num_prefill=num_prefill, num_decode=num_decode, spreads=spreads
            )
            self.kernel = Kernel()
            servers = [
                Server(self.kernel, each, Engine(profile_of(role, topology)), scrape_interval_s=None, phase=0.0)
                for each, role in zip(endpoints_of(topology.roles), topology.roles, strict=True)
            ]
            of = lambda role: [each for each in servers if each.engine.profile.role is role]  # noqa: E731
            self.encode, self.prefill, self.decode = of(Role.ENCODE), of(Role.PREFILL), servers[:num_decode]
            loaded = load_file(FOLDER / f"{topology.policy}.yaml")
            self.gateway = Gateway(loaded.router, servers, seed=0, source=FirstTokenSource.BODY, tells_cached=False)
            self.sidecars = Sidecars(
                self.kernel, servers, hops=HOPS, settings=FlowSettings(**limits), decodes_bare=decodes_bare
            )
            prompts = Prompts(loaded.profile, BASE.model.name, family_of(BASE), keeps_bodies=True)
            self.client = Client(self.kernel, self.gateway, self.sidecars, prompts, Connections(0, num_workers=1))
            self.ended = []
            self.client.on_end = self.ended.append
            for server in servers:
                server.on_event = self.sidecars.hear

        def ask(self, number=1):
            asks = [ask(str(n) if n else "") for n in range(number)]
            sent = [self.client.send(each, 0) for each in asks]
            self.kernel.run()
            assert self.client.num_in_flight == self.gateway.num_open == self.sidecars.num_open == 0
            assert self.ended == sent or number > 1
            return sent[0]

        def asked_of(self, servers):
            return [asked for server in servers for asked in server.engine.asked]

    return Fleet


def test_one_server_does_all_of_it_without_a_sidecar(fleet):
    made = fleet()
    sent = made.ask()
    ((at, request),) = made.asked_of(made.decode)
    assert (at, request.num_output_tokens, request.handover.fetched) == (0.0, 5, frozenset())
    assert (sent.first_at, sent.ended_at, sent.ending) == (1.0, 2.0, Ending.FINISHED)


def test_every_distinct_picture_is_encoded_once_and_all_at_once(fleet):
    made = fleet(num_encode=2)
    sent = made.ask()
    asked = made.asked_of(made.encode)
    # The sidecar, the network; each encoder gets one.
    assert sorted((at, [each.identifier for each in request.segments]) for at, request in asked) == [
        (0.375, ["a"]),
        (0.375, ["b"]),
    ]
    assert [len(server.engine.asked) for server in made.encode] == [1, 1]
    ((at, request),) = made.asked_of(made.decode)
    # 2 s of the encoders, the network back, the sidecar.
    assert at == 0.375 + 2 + 0.25 + 0.125
    assert request.handover.fetched == {"a", "b"}
    assert (sent.first_at, sent.ended_at) == (at + 1, at + 2)


def test_one_encoder_may_get_all_pictures_of_a_request(fleet):
    made = fleet(num_encode=2, spreads=False)
    made.ask(2)
    asked = [[request.request_id for _, request in server.engine.asked] for server in made.encode]
    assert sorted(asked) == [["r0/encode/0/0", "r0/encode/0/1"], ["r1/encode/0/0", "r1/encode/0/1"]]


def test_a_prompt_is_computed_elsewhere_and_its_kv_pulled(fleet):
    made = fleet(num_encode=1, num_prefill=1)
    sent = made.ask()
    ((prefilled_at, prefill),) = made.asked_of(made.prefill)
    assert prefilled_at == 0.375 + 2 + 0.25 + 0.375
    assert prefill.num_output_tokens == 1
    assert (prefill.handover.fetched, prefill.handover.kv_lease_s) == ({"a", "b"}, KV_LEASE_S)
    ((decoded_at, decode),) = made.asked_of(made.decode)
    assert decoded_at == prefilled_at + 2 + 0.25 + 0.125
    assert decode.num_output_tokens == 5
    assert (decode.handover.num_remote_tokens, decode.handover.fetched) == (prefill.num_prompt_tokens, frozenset())
    assert sent.first_at == decoded_at + 1
    # This engine says nothing of what it pulls: the blocks are given back when the answer begins.
    assert made.prefill[0].engine.released == [(decoded_at + 1 + 0.25, "r0/prefill/0")]


def test_pictures_of_a_computed_prompt_may_be_named_only(fleet):
    for decodes_bare, expected in ((True, {"a", "b"}), (False, set())):
        made = fleet(num_prefill=1, decodes_bare=decodes_bare)
        made.ask()
        assert made.asked_of(made.prefill)[0][1].handover.bare == frozenset()
        assert made.asked_of(made.decode)[0][1].handover.bare == expected


def test_kv_is_given_back_as_soon_as_it_was_pulled(fleet):
    made = fleet(num_prefill=1)
    decode = made.decode[0]
    made.kernel.at(4.0, lambda: decode.on_event(KVPulled("r0/decode/0", 4.0)))
    made.ask()
    # The prefill is with its server at 0.375 and done at 2.375, the decode begins at 2.75, its answer at 3.75.
    assert made.prefill[0].engine.released == [(3.75 + 0.25, "r0/prefill/0")]
    other = fleet(num_prefill=1)
    other.kernel.at(3.0, lambda: other.decode[0].on_event(KVPulled("r0/decode/0", 3.0)))
    other.ask()
    assert other.prefill[0].engine.released == [(3.25, "r0/prefill/0")]


def test_what_an_encoder_refuses_or_forgets_is_encoded_where_the_prompt_is_computed(fleet):
    for how in ("fails", "forgets"):
        made = fleet(num_encode=2)
        setattr(made.encode[0].engine, how, True)
        assert made.ask().ending is Ending.FINISHED
        ((_, request),) = made.asked_of(made.decode)
        assert len(request.handover.fetched) == 1


def test_what_is_late_is_given_up_and_encoded_here(fleet):
    made = fleet(num_encode=2, encode_timeout_s=1.0, encode_budget_s=1.5)
    assert made.ask().ending is Ending.FINISHED
    ((at, request),) = made.asked_of(made.decode)
    # The budget of all encode jobs ends at 1.5 s; then the sidecar begins the decode.
    assert (at, request.handover.fetched) == (1.5 + 0.125, frozenset())
    assert all(not server.engine.open for server in made.encode), "what is given up is aborted"


def test_an_answer_that_was_given_up_on_its_way_is_dropped(fleet):
    # Through with its work at 2.375 s, back at 2.625 s: given up at 2.5 s.
    made = fleet(num_encode=2, encode_timeout_s=9.0, encode_budget_s=2.5)
    assert made.ask().ending is Ending.FINISHED
    ((at, request),) = made.asked_of(made.decode)
    assert (at, request.handover.fetched) == (2.5 + 0.125, frozenset())


def test_a_client_that_goes_leaves_no_leg(fleet):
    made = fleet(num_encode=1)
    sent = made.client.send(ask(), 0)
    made.kernel.at(1.0, lambda: made.sidecars.abort(made.decode[0], sent.id))
    made.kernel.run()
    assert made.sidecars.num_open == 0
    assert made.asked_of(made.decode) == []


def test_the_router_is_told_how_the_stages_ended(fleet):
    made = fleet(num_encode=1)
    told = []
    made.sidecars.on_stages = lambda request_id, text, at: told.append((request_id, text, at))
    made.ask()
    # Encode: the sidecar, the network twice, 2 s of the encoder; the engine takes the request behind the sidecar again.
    assert told == [("r0", "encode=10.0.0.2:8000,2,200,2.625000;decode=10.0.0.1:8000,0,200,0.125000", 2.75)]


def test_a_prompt_whose_prefill_fails_is_computed_where_it_is_answered(fleet):
    made = fleet(num_prefill=1)
    made.prefill[0].engine.fails = True
    assert made.ask().ending is Ending.FINISHED
    ((_, request),) = made.asked_of(made.decode)
    assert request.handover.num_remote_tokens == 0
    assert made.prefill[0].engine.released == []


def test_a_decode_that_fails_ends_the_request(fleet):
    made = fleet(num_encode=1)
    made.decode[0].engine.fails = True
    assert made.ask().ending is Ending.FAILED


def test_load_is_reserved_on_every_pool(fleet):
    made = fleet(num_encode=2, num_prefill=3, num_decode=4)
    made.ask(12)
    counts = [len(server.engine.asked) for server in [*made.decode, *made.prefill]]
    assert counts == [3, 3, 3, 3, 4, 4, 4]
    # 12 pictures of 880 tokens and 12 of 300: as many tokens for each encoder as can be.
    tokens = [sum(request.num_prompt_tokens for _, request in server.engine.asked) for server in made.encode]
    assert abs(tokens[0] - tokens[1]) <= 882
