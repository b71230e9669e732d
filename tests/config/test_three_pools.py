"""llm-d's guides for stages apart load unchanged and send each request where they say; ours spreads its pictures."""

import base64
import json
import struct
import zlib
from pathlib import Path

import pytest

from tessera.config import document
from tessera.config.endpoints import read_endpoints_file
from tessera.config.load import load_data, load_file
from tessera.core.facts import EndpointState, FleetView, InFlightLoad, Joined, Load
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.work import StageEnded, Work

EXAMPLES = Path(__file__).parents[2] / "examples"
ENDPOINTS, _ = read_endpoints_file(EXAMPLES / "endpoints-three-pools.yaml")
ENCODERS = {f"10.0.0.{number}:8000" for number in (1, 2, 3)}
PREFILLERS = {f"10.0.1.{number}:8000" for number in (1, 2)}
DECODERS = {f"10.0.2.{number}:8000" for number in (1, 2)}
HEADERS = {":path": "/v1/chat/completions"}


def picture(width, height, seed=0):
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    png = head + struct.pack(">I", 1) + b"IDAT" + bytes([seed]) + bytes(4) + struct.pack(">I", 0) + b"IEND" + bytes(4)
    return "data:image/png;base64," + base64.b64encode(png).decode()


def body(*pictures, text="What is this?"):
    content = [{"type": "text", "text": text}]
    content += [{"type": "image_url", "image_url": {"url": picture(*each)}} for each in pictures]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()


class Fleet:
    """A router of an example over the three pools."""

    def __init__(self, name, endpoints=ENDPOINTS, waiting=(), loaded=None):
        self.loaded = loaded or load_file(EXAMPLES / f"{name}.yaml")
        assert self.loaded.missing_plugins == ()
        self.router = self.loaded.router
        loads = dict(waiting)
        pages = [Load(num_waiting=loads.get(each.id, 0), num_running=0, at=0.0) for each in endpoints]
        self.view = FleetView(tuple(map(EndpointState, endpoints, pages)))
        for each in endpoints:
            self.router.observe(Joined(at=0.0, endpoint=each))
        self.num = 0

    def ask(self, *pictures, text="What is this?", headers=HEADERS):
        self.num += 1
        read = Router.read(
            body(*pictures, text=text), headers, self.loaded.profile, request_id=f"r{self.num}", at=0.0, wall_at=0.0
        )
        return self.router.decide(read[0], self.view, 0.0, SeededRng(0, f"r{self.num}"))

    def told(self, decision):
        return self.router.request_headers(decision)

    def producer(self, type_name):
        return next(each for each in self.router.producers if each.type == type_name)


HD, UHD = (1280, 720), (3840, 2160)


@pytest.mark.parametrize(
    ("name", "stages", "text_stages"),
    [
        ("llm-d-e-pd", {"decode", "encode"}, {"decode"}),
        ("llm-d-e-p-d", {"decode", "prefill", "encode"}, {"decode", "prefill"}),
        ("llm-d-p-d", {"decode", "prefill"}, {"decode", "prefill"}),
    ],
)
def test_the_guides_route_as_llm_d_does(name, stages, text_stages):
    fleet = Fleet(name)
    pools = {"encode": ENCODERS, "prefill": PREFILLERS, "decode": DECODERS}
    headers = {"prefill": "x-prefiller-host-port", "encode": "x-encoder-hosts-ports"}
    for number in range(20):
        pictures = [(*HD, number), (*UHD, number), (*HD, number)] if number % 2 else []
        expected = stages if pictures else text_stages
        decision = fleet.ask(*pictures, text=f"{number} " * 300)
        assert decision.rejection is None
        plan = {key: value for key, value in decision.plan.items() if not key.isdigit()}
        assert plan.keys() == expected
        assert all(plan[stage] in pools[stage] for stage in expected)
        destinations = [endpoint.id for endpoint in decision.destinations]
        assert destinations[0] == plan["decode"]
        assert set(destinations) == DECODERS
        told = fleet.told(decision)
        assert told == {headers[stage]: plan[stage] for stage in expected if stage in headers}
        encoders = [value for key, value in decision.plan.items() if key.isdigit()]
        assert encoders == ([plan["encode"]] * 3 if "encode" in expected else [])


def test_the_guides_choose_the_encoder_with_the_shortest_queue():
    waiting = {"10.0.0.1:8000": 3, "10.0.0.2:8000": 0, "10.0.0.3:8000": 1}
    for name in ("llm-d-e-pd", "llm-d-e-p-d"):
        assert Fleet(name, waiting=waiting).ask((*HD, 1)).plan["encode"] == "10.0.0.2:8000"


def test_the_encoder_that_holds_the_picture_is_chosen_again():
    fleet = Fleet("llm-d-e-p-d")
    first = [fleet.ask((*HD, number)).plan["encode"] for number in range(12)]
    assert len(set(first)) > 1
    assert [fleet.ask((*HD, number), text="Again").plan["encode"] for number in range(12)] == first


def test_each_pool_is_charged_with_its_own_work():
    fleet = Fleet("llm-d-e-p-d")
    decision = fleet.ask((*HD, 1), (*HD, 2), (*HD, 1), text="x" * 4000)
    ledger, plan = fleet.producer("inflight-load-producer"), decision.plan
    tokens = decision.priced.num_prompt_tokens
    num_bytes = sum(each.item.num_bytes for each in decision.priced.distinct_items())
    media = {"num_requests": 1, "num_items": 2, "media_bytes": num_bytes}
    encoding, prefilling = InFlightLoad(encode_embeds=1800, **media), InFlightLoad(num_uncached_tokens=tokens, **media)
    assert tokens == 3 * 900 + 1001
    assert ledger.load_of(plan["encode"]) == encoding
    assert ledger.load_of(plan["prefill"]) == prefilling
    assert ledger.load_of(plan["decode"]) == InFlightLoad(num_requests=1)

    def ended(stage):
        event = StageEnded(
            at=1.0, request_id="r1", stage=stage, endpoint_id=plan[stage], status=200, seconds=0.1, num_items=2
        )
        fleet.router.observe(event)

    ended(Work.ENCODE)
    assert ledger.load_of(plan["encode"]) == InFlightLoad()
    assert ledger.load_of(plan["prefill"]) == prefilling
    ended(Work.PREFILL)
    ended(Work.PREFILL)
    ended(Work.DECODE)
    assert ledger.load_of(plan["prefill"]) == InFlightLoad()
    assert ledger.load_of(plan["decode"]) == InFlightLoad(num_requests=1)


@pytest.mark.parametrize(
    ("gone", "guess", "left"),
    [
        ("encode", "no-encode-endpoint", {"decode", "prefill"}),
        ("prefill", "no-prefill-endpoint", {"decode", "encode"}),
    ],
)
def test_without_an_optional_pool_the_request_goes_on_and_says_so(gone, guess, left):
    fleet = Fleet("llm-d-e-p-d", [each for each in ENDPOINTS if each.labels["llm-d.ai/role"] != gone])
    decision = fleet.ask((*HD, 1))
    assert decision.rejection is None
    assert guess in decision.guesses
    assert {key for key in decision.plan if not key.isdigit()} == left


def test_without_who_decodes_it_is_turned_away():
    fleet = Fleet("llm-d-e-p-d", [each for each in ENDPOINTS if each.labels["llm-d.ai/role"] != "decode"])
    decision = fleet.ask((*HD, 1))
    assert decision.rejection is not None
    assert decision.rejection.reason == "rejected-no-endpoints"
    assert [stage.profile for stage in decision.stages] == ["decode"]


def test_an_empty_fleet_is_turned_away_by_every_example():
    for name in ("llm-d-e-pd", "llm-d-e-p-d", "llm-d-p-d", "e-pd-spread"):
        assert Fleet(name, []).ask((*HD, 1)).rejection is not None


def busy(fleet, num):
    """Requests of a long text on both who decode."""
    for number in range(num):
        fleet.ask(text=f"{number} " * 20_000)


def test_ours_leaves_pictures_where_that_is_sooner_and_spreads_them_where_it_is_not():
    fleet = Fleet("e-pd-spread")
    pictures = [(*UHD, 1), (*HD, 2), (*UHD, 1), (*HD, 3), (*UHD, 4), (*UHD, 5)]
    idle = fleet.ask(*pictures[:2])
    assert [stage.profile for stage in idle.stages] == ["decode"]
    fleet = Fleet("e-pd-spread")
    busy(fleet, 8)
    decision = fleet.ask(*pictures)
    encoders = [decision.plan[str(index)] for index in range(6)]
    assert set(encoders) == ENCODERS
    # Three large ones on three encoders, the small ones behind them, what repeats with the first of it.
    assert len({encoders[0], encoders[4], encoders[5]}) == 3
    assert encoders[2] == encoders[0]
    told = fleet.told(decision)
    assert set(told["x-encoder-hosts-ports"].split(",")) == ENCODERS
    distinct = [encoders[index] for index in (0, 1, 3, 4, 5)]
    assert told["x-tessera-encode-plan"] == ",".join(f"{index}={encoder}" for index, encoder in enumerate(distinct))
    ledger = fleet.producer("inflight-load-producer")
    embeds = sum(each.num_embeds for each in decision.priced.distinct_items())
    assert sum(ledger.load_of(encoder).encode_embeds for encoder in ENCODERS) == embeds
    assert ledger.load_of(decision.plan["decode"]).encode_embeds == 0
    costs = fleet.producer("ttft-cost-producer")
    assert min(costs.queued_s(encoder) for encoder in ENCODERS) > 0.4


def test_what_we_know_to_be_one_item_has_an_index_for_each_way_to_write_it():
    data = document.parse((EXAMPLES / "e-pd-spread.yaml").read_text())
    pricer = next(each for each in data["plugins"] if each["type"] == "token-producer")
    pricer["parameters"]["urlKeysIgnored"] = ["sig"]
    fleet = Fleet("e-pd-spread", loaded=load_data(data))
    busy(fleet, 8)
    first, padless = picture(*UHD, 1), picture(*UHD, 1).rstrip("=")
    assert first != padless
    links = ["https://x/a?sig=1", "https://x/a?sig=2", "https://x/b", "https://x/a?sig=2"]
    urls = [*links[:2], first, padless, *links[2:], padless]
    content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    asked = json.dumps({"model": "m", "messages": [{"role": "user", "content": content}]}).encode()
    read = Router.read(asked, HEADERS, fleet.loaded.profile, request_id="r", at=0.0, wall_at=0.0)
    decision = fleet.router.decide(read[0], fleet.view, 0.0, SeededRng(0, "r"))
    assert len(decision.priced.distinct_items()) == 3
    told = fleet.told(decision)["x-tessera-encode-plan"]
    by_index = dict(entry.split("=") for entry in told.partition(";")[0].split(","))
    assert list(by_index) == ["0", "1", "2", "3", "4"]
    assert by_index["0"] == by_index["1"]
    assert by_index["2"] == by_index["3"]
    assert set(by_index.values()) == ENCODERS


@pytest.mark.parametrize(("status", "apart"), [(200, False), (503, True)])
def test_ours_does_not_send_what_the_decoder_was_given_before(status, apart):
    fleet = Fleet("e-pd-spread", ENDPOINTS[:-1])
    busy(fleet, 4)
    pictures = ((*UHD, 1), (*UHD, 2))
    decision = fleet.ask(*pictures)
    for encoder in sorted({decision.plan["0"], decision.plan["1"]}):
        num_items = sum(decision.plan[index] == encoder for index in "01")
        told = {"request_id": decision.request.request_id, "endpoint_id": encoder, "num_items": num_items}
        fleet.router.observe(StageEnded(at=1.0, stage=Work.ENCODE, status=status, seconds=0.5, **told))
    # Another text before the pictures: no KV cache covers them.
    again = fleet.ask(*pictures, text="Else?")
    assert ("encode" in again.plan) is apart


def test_who_prefills_is_told_of_a_peer_that_holds_more():
    data = document.parse((EXAMPLES / "llm-d-p-d.yaml").read_text())
    data["plugins"].append({"type": "p2p-source-producer", "parameters": {"minCachedTokenDelta": 100}})
    fleet = Fleet("llm-d-p-d", loaded=load_data(data))
    prompt = "Be brief. " * 200
    first = fleet.ask(text=prompt)
    assert "x-kv-cache-source-host-port" not in fleet.told(first)
    holders = {first.plan["prefill"], first.plan["decode"]}
    fleet.view = FleetView(tuple(each for each in fleet.view.endpoints if each.endpoint.id != first.plan["prefill"]))
    told = fleet.told(second := fleet.ask(text=prompt))
    assert second.plan["prefill"] not in holders
    assert told["x-kv-cache-source-host-port"] == first.plan["decode"]
    assert told["x-prefiller-host-port"] == second.plan["prefill"]
    # Now it holds as much itself.
    assert "x-kv-cache-source-host-port" not in fleet.told(fleet.ask(text=prompt))
