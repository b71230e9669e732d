"""The road of a request through servers that share it, by the clock."""

import pytest

from tessera.core.types import Ending
from tessera.engine.events import Failed, FailureReason, KVPulled
from tessera.sim.content import Image, Text, user
from tessera.sim.kernel import Kernel
from tessera.sim.pools import Pools
from tessera.sim.prompts import Prompts
from tessera.sim.run import family_of
from tessera.sim.servers import Server, endpoints
from tessera.sim.staged_client import KV_LEASE_S, Hops, StagedClient
from tessera.sim.topology import BASE

HOPS = Hops(network_s=0.25, sidecar_s=0.125)


def ask(name=""):
    large, small = Image(f"{name}a", 1280, 720), Image(f"{name}b", 640, 480)
    return user(large, small, large, Text(f"{name}t", 10), num_output_tokens=5)


@pytest.fixture
def fleet(round_engine):
    """Makes a fleet of engines whose first token comes 1 s after a request, the last 2 s after it."""

    class Engine(round_engine):
        def __init__(self):
            super().__init__()
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
        def __init__(self, num_encode=0, num_prefill=0, num_decode=1, *, spreads=True, decodes_bare=False):
            self.kernel = Kernel()
            found = iter(endpoints(num_encode + num_prefill + num_decode))
            make = lambda number: [  # noqa: E731
                Server(self.kernel, next(found), Engine(), scrape_interval_s=None, phase=0.0) for _ in range(number)
            ]
            self.decode, self.prefill, self.encode = make(num_decode), make(num_prefill), make(num_encode)
            self.pools = Pools(decode=self.decode, prefill=self.prefill, encode=self.encode, spreads=spreads, seed=0)
            prompts = Prompts(self.pools.profile, BASE.model.name, family_of(BASE))
            self.client = StagedClient(self.kernel, self.pools, prompts, HOPS, decodes_bare=decodes_bare)
            self.ended = []
            self.client.on_end = self.ended.append
            for server in [*self.decode, *self.prefill, *self.encode]:
                server.on_event = self.client.hear

        def ask(self, number=1):
            asks = [ask(str(n) if n else "") for n in range(number)]
            sent = [self.client.send(each, 0) for each in asks]
            self.kernel.run()
            assert self.client.num_in_flight == self.pools.num_open == 0
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
    # The sidecar, the network; each encoder gets one, the larger picture first.
    assert [(at, [each.identifier for each in request.segments]) for at, request in asked] == [
        (0.375, ["a"]),
        (0.375, ["b"]),
    ]
    ((at, request),) = made.asked_of(made.decode)
    # 2 s of the encoders, the network back, the sidecar.
    assert at == 0.375 + 2 + 0.25 + 0.125
    assert request.handover.fetched == {"a", "b"}
    assert (sent.first_at, sent.ended_at) == (at + 1, at + 2)


def test_one_encoder_may_get_all_pictures_of_a_request(fleet):
    made = fleet(num_encode=2, spreads=False)
    made.ask(2)
    asked = [[request.request_id for _, request in server.engine.asked] for server in made.encode]
    assert sorted(asked) == [["r0/encode/0", "r0/encode/1"], ["r1/encode/0", "r1/encode/1"]]


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
    assert made.prefill[0].engine.released == [(decoded_at + 1 + 0.25, "r0/prefill")]


def test_pictures_of_a_computed_prompt_may_be_named_only(fleet):
    for decodes_bare, expected in ((True, {"a", "b"}), (False, set())):
        made = fleet(num_prefill=1, decodes_bare=decodes_bare)
        made.ask()
        assert made.asked_of(made.prefill)[0][1].handover.bare == frozenset()
        assert made.asked_of(made.decode)[0][1].handover.bare == expected


def test_kv_is_given_back_as_soon_as_it_was_pulled(fleet):
    made = fleet(num_prefill=1)
    decode = made.decode[0]
    made.kernel.at(4.0, lambda: decode.on_event(KVPulled("r0", 4.0)))
    made.ask()
    # The prefill is with its server at 0.375 and done at 2.375, the decode begins at 2.75, its answer at 3.75.
    assert made.prefill[0].engine.released == [(3.75 + 0.25, "r0/prefill")]
    other = fleet(num_prefill=1)
    other.kernel.at(3.0, lambda: other.decode[0].on_event(KVPulled("r0", 3.0)))
    other.ask()
    assert other.prefill[0].engine.released == [(3.25, "r0/prefill")]


def test_what_an_encoder_fails_or_forgets_is_encoded_where_the_prompt_is_computed(fleet):
    for how in ("fails", "forgets"):
        made = fleet(num_encode=2)
        setattr(made.encode[0].engine, how, True)
        assert made.ask().ending is Ending.FINISHED
        ((_, request),) = made.asked_of(made.decode)
        assert len(request.handover.fetched) == 1


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
