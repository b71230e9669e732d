"""The shape of a Decision as JSON, and the bound on how many are remembered."""

import dataclasses

import msgspec
import pytest

from tessera.core.facts import EncoderMatch, InFlightLoad, Load
from tessera.core.filters.decode import DecodeFilter
from tessera.core.parts import TextPart, TokenPart
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import Basis, Candidate, FirstTokenSource, ItemSpan, ModelProfile, Note, PricedItem
from tessera.telemetry.records import DecisionLog, decision_record, item_record, without_token_ids

HEADERS = {":method": "POST", ":path": "/v1/chat/completions", "x-request-id": "client-1"}
BODY = b"""{"model": "org/vlm", "stream": true, "messages": [{"role": "user", "content": [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": "http://x/a.png?secret=1"}}]}]}"""


@pytest.fixture
def decision(build):
    """Of a request with a linked picture, over two decoders and an encoder."""
    endpoints = [build.endpoint(1, role="decode"), build.endpoint(2, role="encode"), build.endpoint(3, role="decode")]
    load = Load(num_waiting=0, num_running=1, kv_usage_fraction=0.25, at=9.0)
    request, _ = Router.read(BODY, HEADERS, ModelProfile(), request_id="r1", at=10.0, wall_at=1e9)
    router = build.router(filters=[DecodeFilter()])
    return router.decide(request, build.view(endpoints, load), 10.0, SeededRng(7, "r1"))


def test_the_whole_record(decision):
    record = decision_record(decision)
    winner, loser = ("10.0.0.1:8000", "10.0.0.3:8000")
    if record["stages"][0]["winner"] == loser:
        winner, loser = loser, winner
    (stage,) = record.pop("stages")
    (item,) = record["priced"].pop("items")
    assert record == {
        "request_id": "r1",
        "client_request_id": "client-1",
        "at": 10.0,
        "wall_at": 1e9,
        "priced": {
            "dialect": "chat",
            "model": "org/vlm",
            "stream": True,
            "body_bytes": len(BODY),
            "num_text_tokens": 5,
            "num_prompt_tokens": 230,
        },
        "plan": {"default": winner},
        "guesses": ["link:0"],
        "rejection": None,
    }
    assert (stage["profile"], stage["winner"], stage["runner_up"], stage["fallbacks"]) == (
        "default",
        winner,
        loser,
        [loser],
    )
    assert item == {
        "index": 0,
        "modality": "image",
        "format": None,
        "width": None,
        "height": None,
        "num_frames": None,
        "duration_s": None,
        "num_tokens": 225,
        "num_embeds": 225,
        "num_wrapper_tokens": 0,
        "basis": "default",
        "rule_basis": "default",
        "size_basis": "default",
        "reason": "link",
        "identifier": decision.priced.items[0].identifier,
    }


def test_a_candidates_row(decision):
    first, second, _ = decision_record(decision)["stages"][0]["candidates"]
    total = first.pop("total")
    assert first == {
        "endpoint": "10.0.0.1:8000",
        "facts": {
            "Load": {
                "num_waiting": 0,
                "num_running": 1,
                "kv_usage_fraction": 0.25,
                "block_size": None,
                "num_blocks": None,
                "num_cache_tokens": None,
                "running_loras": [],
                "waiting_loras": [],
                "max_loras": None,
                "at": 9.0,
            },
            "InFlightLoad": dict.fromkeys(
                ["num_requests", "num_uncached_tokens", "num_items", "media_bytes", "encode_embeds"], 0
            ),
        },
        "scores": {
            "token-load-scorer": 1 - 230 / 4_194_304,
            "active-request-scorer": 1.0,
            "queue-scorer": 1.0,
            "kv-cache-utilization-scorer": 0.75,
        },
        "filtered_by": None,
    }
    assert total == pytest.approx(2 * (1 - 230 / 4_194_304) + 1 + 1 + 0.75)
    assert (second["filtered_by"], second["scores"], second["total"]) == ("decode-filter", {}, None)


def test_what_filters_say_of_themselves(build):
    stage = dataclasses.replace(build.stage([build.candidate(1)]), notes={"f": Note("kept 1 of 1", "lot")})
    (record,) = decision_record(build.decision(None, stage))["stages"]
    assert record["notes"] == {"f": "kept 1 of 1"}


def test_it_is_json_and_comes_back_equal(decision):
    record = decision_record(decision)
    assert msgspec.json.decode(msgspec.json.encode(record)) == record


def test_it_holds_no_text_and_no_link(decision):
    encoded = msgspec.json.encode(decision_record(decision))
    assert b"What is this" not in encoded
    assert b"secret" not in encoded


@pytest.mark.parametrize("text", ["\ud800"])
def test_lone_surrogates_of_a_body_do_not_break_it(build, text):
    body = BODY.replace(b"org/vlm", text.encode("utf-8", "surrogatepass")).replace(b"What", rb"\ud800")
    body = body.replace(b'"type": "image_url"', rb'"type": "image_url", "uuid": "\ud800"')
    request, _ = Router.read(body, HEADERS, ModelProfile(), request_id="r1", at=0.0, wall_at=0.0)
    decision = build.router().decide(request, build.view([build.endpoint(1)]), 0.0, SeededRng(7, "r1"))
    assert msgspec.json.decode(msgspec.json.encode(decision_record(decision)))["priced"]["model"] == "?"


def test_a_rejection(build):
    decision = build.router().decide(build.request(), build.view([]), 0.0, SeededRng(7, "r1"))
    record = decision_record(decision)
    assert record["rejection"] == {
        "reason": "rejected-no-endpoints",
        "filter": None,
        "message": "the pool has no endpoint",
    }
    (stage,) = record["stages"]
    assert (stage["candidates"], stage["winner"], stage["runner_up"], stage["fallbacks"]) == ([], None, None, [])


def test_facts_of_named_producers_and_of_sets(build):
    facts = {
        (InFlightLoad, "second-ledger"): InFlightLoad(num_requests=2),
        (EncoderMatch, EncoderMatch.producer): EncoderMatch(identifiers=frozenset({"b", "a"})),
    }
    stage = build.stage([Candidate(build.endpoint(1), facts)])
    (row,) = decision_record(build.decision(None, stage))["stages"][0]["candidates"]
    assert row["facts"]["EncoderMatch"] == {"identifiers": ["a", "b"]}
    assert row["facts"]["InFlightLoad/second-ledger"]["num_requests"] == 2
    assert "InFlightLoad" not in row["facts"]


def test_each_basis_by_its_word(build):
    item = PricedItem(
        index=3,
        item=build.media(width=4, height=5, format="png"),
        num_tokens=7,
        num_embeds=6,
        num_wrapper_tokens=2,
        rule_basis=Basis.LEARNED,
        size_basis=Basis.EXACT,
        reason="learned-model",
    )
    record = item_record(item)
    assert (record["basis"], record["rule_basis"], record["size_basis"]) == ("learned", "learned", "exact")
    assert (record["width"], record["height"], record["num_tokens"], record["num_embeds"]) == (4, 5, 7, 6)


class TestDecisionLog:
    def logged(self, build, num, **limits):
        log = DecisionLog(**limits)
        for number in range(num):
            log.add(build.decision(build.priced(request_id=f"r{number}", headers={"x-request-id": f"c{number % 3}"})))
        return log

    def test_finds_by_our_id_and_the_newest_by_the_clients(self, build):
        log = self.logged(build, 7)
        assert log.find("r2").request.request_id == "r2"
        assert log.find("c1").request.request_id == "r4"
        assert log.find("c9") is None

    def test_lists_the_newest_first(self, build):
        log = self.logged(build, 7)
        assert [row["request_id"] for row in log.newest(3)] == ["r6", "r5", "r4"]
        assert len(list(log.newest(100))) == 7
        assert list(log.newest(0)) == []
        assert next(iter(log.newest(1))) == {
            "request_id": "r6",
            "client_request_id": "c0",
            "wall_at": 0.0,
            "model": "",
            "num_prompt_tokens": 0,
            "num_items": 0,
            "endpoint": "10.0.0.1:8000",
            "rejected": None,
            "guesses": [],
        }

    def test_forgets_the_oldest_beyond_the_number(self, build):
        log = self.logged(build, 7, max_records=3)
        assert [row["request_id"] for row in log.newest()] == ["r6", "r5", "r4"]
        assert log.find("r3") is None

    def test_forgets_the_oldest_beyond_the_bytes_but_never_the_newest(self, build):
        assert len(list(self.logged(build, 7, max_bytes=7_000).newest())) == 2
        assert [row["request_id"] for row in self.logged(build, 7, max_bytes=1).newest()] == ["r6"]

    def test_a_large_fleet_or_a_long_prompt_takes_more_room(self, build):
        wide = build.stage([build.candidate(number) for number in range(100)])
        long = ((TextPart(num_bytes=1, digests=bytes(40_000)),), (TokenPart(num_tokens=1, digests=bytes(10_000)),))
        many = ((TextPart(num_bytes=1),) * 125,)
        for prompts, stages in (((), [wide]), (long, []), (many, [])):
            log = DecisionLog(max_bytes=90_000)
            for number in range(3):
                log.add(build.decision(build.priced(request_id=f"r{number}", prompts=prompts), *stages))
            assert [row["request_id"] for row in log.newest()] == ["r2"]

    def test_believed_holders_of_many_items_take_more_room(self, build):
        """A thousand items on each of 64 endpoints would be four megabytes that nobody counts."""
        item = build.item(identifier="i0")
        holds = {(EncoderMatch, "any"): EncoderMatch(identifiers=frozenset(f"i{n}" for n in range(100)))}
        stage = build.stage([Candidate(build.endpoint(number), holds) for number in (1, 2)])
        # 2,000 for a decision, 500 for each of two rows, and 64 for each of 200 names; without items nobody asks.
        for items, num_bytes in ([item], 15_800), ([], 3_000):
            log = DecisionLog(max_bytes=2 * num_bytes)
            for number in range(3):
                log.add(build.decision(build.priced(request_id=f"r{number}", items=items), stage))
            assert [row["request_id"] for row in log.newest()] == ["r2", "r1"]
            log = DecisionLog(max_bytes=2 * num_bytes - 1)
            for number in range(3):
                log.add(build.decision(build.priced(request_id=f"r{number}", items=items), stage))
            assert [row["request_id"] for row in log.newest()] == ["r2"]

    def test_token_ids_are_not_kept_and_take_no_room(self, build):
        priced = dataclasses.replace(
            build.priced(7, [build.item(3)]), token_ids=list(range(100_000)), spans=(ItemSpan(0, 5, 3),)
        )
        decision = build.decision(priced)
        log = DecisionLog(max_bytes=6_000)
        log.add(decision)
        log.add(decision)
        assert len(list(log.newest())) == 2
        kept = log.find("r1")
        assert (kept.priced.token_ids, kept.priced.spans) == (None, ())
        assert kept.priced.num_prompt_tokens == 10
        assert decision_record(kept) == decision_record(decision)
        assert len(decision.priced.token_ids) == 100_000

    def test_a_decision_without_token_ids_is_kept_as_it_is(self, build):
        decision = build.decision()
        assert without_token_ids(decision) is decision

    def test_so_do_headers_that_are_kept(self, build):
        headers = {f"x-{number}": "v" * 1020 for number in range(32)}
        assert sum(len(name) + len(text) for name, text in headers.items()) == 32_758
        log = DecisionLog(max_bytes=3 * 3_000 + 2 * 32_758)
        for number in range(3):
            log.add(build.decision(build.priced(request_id=f"r{number}", headers=headers)))
        assert [row["request_id"] for row in log.newest()] == ["r2", "r1"]

    def test_a_rejected_decision_has_no_endpoint(self, build):
        log = DecisionLog()
        log.add(build.router().decide(build.request(), build.view([]), 0.0, SeededRng(7, "r1")))
        (row,) = log.newest()
        assert (row["endpoint"], row["rejected"]) == (None, "rejected-no-endpoints")


def test_the_sources_are_ordered_best_first():
    """``OpenRequests`` relies on it."""
    assert list(FirstTokenSource) == ["body", "counter", "predicted"]
    assert dataclasses.is_dataclass(Load)
