import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.config.blocks import decode
from tessera.core.facts import Joined, KVCleared, KVRemoved, KVStored, Left, Load, PrefixMatch, Scraped
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, block_key, extra_keys_of
from tessera.core.matching.engine_keys import KeyMode
from tessera.core.matching.kv_parameters import IndexerConfig, InMemoryConfig, KVBlockIndexConfig
from tessera.core.matching.kv_wire import decode_batch
from tessera.core.matching.precise_prefix_cache import PrecisePrefixCacheProducer
from tessera.core.media.digests import text_digests
from tessera.core.parts import TextPart
from tessera.core.types import Candidate, Ending, ItemSpan, Outcome, Usage

DATA = Path(__file__).parents[2] / "data" / "kv"


def recorded(endpoint_id, *steps):
    for line in (DATA / "events.jsonl").read_text().splitlines():
        row = json.loads(line)
        if not steps or row["step"] in steps:
            yield from decode_batch(bytes.fromhex(row["payload_hex"]), at=0.0, endpoint_id=endpoint_id).events


@pytest.fixture
def one(build):
    return build.endpoint(1)


def joined(producer, *endpoints):
    for endpoint in endpoints:
        producer.observe(Joined(at=0.0, endpoint=endpoint))
    return producer


def told(producer, events):
    for event in events:
        producer.observe(event)


def exact(build, ids, items=(), spans=(), **fields):
    return replace(build.priced(items=items, **fields), token_ids=list(ids), spans=tuple(spans))


def made(hasher, ids, endpoint, block_size=2, **fields):
    hashes = tuple(map(block_key, hasher.hashes(ids, block_size)))
    return KVStored(
        **{"at": 0.0, "endpoint_id": endpoint.id, "block_hashes": hashes, "token_ids": tuple(ids)}
        | {"block_size": block_size}
        | fields
    )


def picture(build):
    """The recorded prompt with a picture of 300 tokens, as a request with token ids."""
    first, second = recorded("e", "image")
    identifier, offset = first.extra_keys[0][0]
    ids = (*first.token_ids, *second.token_ids, 1)
    item = build.item(300, identifier=identifier)
    return exact(build, ids[:-1], [item], [ItemSpan(0, offset, 300)]), ids


@pytest.mark.parametrize(("seed", "mode"), [("0", KeyMode.DIRECT), ("1", KeyMode.RECHAINED)])
def test_a_recorded_picture_is_matched_exactly_in_both_modes(build, one, seed, mode):
    producer = joined(PrecisePrefixCacheProducer(hash_seed=seed), one, build.endpoint(2))
    told(producer, recorded(one.id, "text", "image"))
    request, ids = picture(build)
    held, other = producer.match(replace(request, token_ids=ids), [one, build.endpoint(2)])
    assert (held.num_matched_tokens, held.num_total_tokens, held.is_exact) == (320, 321, True)
    assert (held.num_matched_text_tokens, held.num_matched_media_tokens) == (20, 300)
    assert (other.num_matched_tokens, other.is_exact) == (0, True)
    assert producer.key_modes() == {(one.id, 0): mode}
    assert producer.num_unkeyed == 0


def test_the_last_token_is_computed_in_any_case(build, one):
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    told(producer, recorded(one.id, "image"))
    request, _ = picture(build)
    assert producer.match(request, [one])[0].num_matched_tokens == 288


def test_another_picture_or_salt_shares_only_what_lies_before(build, one):
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    told(producer, recorded(one.id, "text", "image"))
    request, _ = picture(build)
    other = replace(request, items=(build.item(300, identifier="other"),))
    assert producer.match(other, [one])[0].num_matched_tokens == 0
    text = next(recorded(one.id, "text"))
    assert producer.match(exact(build, (*text.token_ids, 1)), [one])[0].num_matched_tokens == 128
    salted = exact(build, (*text.token_ids, 1), cache_salt="tenant-a")
    assert producer.match(salted, [one])[0].num_matched_tokens == 0
    told(producer, recorded(one.id, "text-salted"))
    assert producer.match(salted, [one])[0].num_matched_tokens == 128


def test_the_recorded_reset_leaves_what_was_stored_after_it(build, one):
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    told(producer, recorded(one.id))
    assert producer.index.num_blocks == 1


@pytest.mark.parametrize("seed", ["0", "1"])
def test_the_recorded_evictions_leave_what_was_stored_more_often_than_removed(build, one, seed):
    producer = joined(PrecisePrefixCacheProducer(hash_seed=seed), one)
    copies = Counter()
    for event in recorded(one.id):
        if isinstance(event, KVCleared):
            break
        producer.observe(event)
        copies.update(event.block_hashes) if isinstance(event, KVStored) else copies.subtract(event.block_hashes)
    removed = {name for name, num_copies in copies.items() if num_copies <= 0}
    assert len(removed) >= 4
    assert producer.index.num_blocks == len(copies) - len(removed)
    if seed == "0":
        assert not any(producer.index.holds(one.id, 0, name) for name in removed)


def test_an_adapters_prompt_matches_by_its_name(build, one):
    hasher = BlockHasher(seed="0")
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    hashes = hasher.hashes(range(4), 2, extra_keys_of([], 2, 2, lora=("a", "/path")))
    event = made(hasher, range(4), one, lora="a", extra_keys=(("a",), ("a",)))
    event = replace(event, block_hashes=tuple(map(block_key, hashes)))
    told(producer, [made(hasher, range(90, 94), one), event])
    assert producer.match(exact(build, range(5), lora="a"), [one])[0].num_matched_tokens == 4
    assert producer.match(exact(build, range(5)), [one])[0].num_matched_tokens == 0
    told(producer, [KVRemoved(at=0.0, endpoint_id=one.id, block_hashes=event.block_hashes[1:])])
    assert producer.match(exact(build, range(5), lora="a"), [one])[0].num_matched_tokens == 2


def test_tiers_weigh_and_whole_blocks_count(build, one):
    hasher = BlockHasher(seed="0")
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    told(producer, [made(hasher, range(10), one, tier="cpu")])
    assert producer.match(exact(build, range(11)), [one])[0].num_matched_tokens == 8


@pytest.mark.parametrize("seed", ["0", "other"])
def test_a_block_stored_twice_stays_until_it_is_removed_twice(build, one, seed):
    hasher = BlockHasher(seed="0")
    producer = joined(PrecisePrefixCacheProducer(hash_seed=seed), one)
    event = made(hasher, range(4), one)
    removed = KVRemoved(at=0.0, endpoint_id=one.id, block_hashes=event.block_hashes)
    told(producer, [event, event, removed])
    assert producer.match(exact(build, range(5)), [one])[0].num_matched_tokens == 4
    told(producer, [removed])
    assert producer.match(exact(build, range(5)), [one])[0].num_matched_tokens == 0
    assert producer.index.num_blocks == 0


def test_an_engine_that_hashes_as_we_can_is_preferred_to_an_earlier_one_that_does_not(build, one):
    two = build.endpoint(2)
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one, two)
    told(producer, [made(BlockHasher(seed="stranger"), range(4), one)])
    assert producer.hash_algorithm is None
    assert producer.match(exact(build, range(5)), [one])[0].num_matched_tokens == 4
    cbor = BlockHasher(HashAlgorithm.SHA256_CBOR, "0")
    told(producer, [made(cbor, range(4), two), made(BlockHasher(seed="stranger"), range(4), one)])
    assert producer.hash_algorithm is HashAlgorithm.SHA256_CBOR
    assert producer.key_modes() == {(one.id, 0): KeyMode.RECHAINED, (two.id, 0): KeyMode.DIRECT}
    matches = producer.match(exact(build, range(5)), [one, two])
    assert [match.num_matched_tokens for match in matches] == [4, 4]


def test_each_endpoints_own_block_size_counts(build, one):
    hasher, two = BlockHasher(seed="0"), build.endpoint(2)
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one, two)
    told(producer, [made(hasher, range(12), one, 4), made(hasher, range(12), two, 6)])
    told(producer, [made(hasher, range(2), one, 2)])
    matches = producer.match(exact(build, range(12)), [two, one, two])
    assert [match.num_matched_tokens for match in matches] == [6, 8, 6]
    told(producer, [made(hasher, range(6), one, 6)])
    assert producer.match(exact(build, range(12)), [one])[0].num_matched_tokens == 6


def test_whoever_leaves_restarts_or_is_cleared_is_forgotten(build, one):
    hasher = BlockHasher(seed="0")
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0", speculative_indexing=True), one)
    event = made(hasher, range(4), one)

    def matched():
        return producer.match(exact(build, range(5)), [one])[0].num_matched_tokens

    told(producer, [event, KVCleared(at=1.0, endpoint_id=one.id, rank=1)])
    assert matched() == 4
    told(producer, [KVCleared(at=1.0, endpoint_id=one.id)])
    assert matched() == 0
    scraped = Scraped(at=1.0, endpoint_id=one.id, load=Load(), process_start_at=5.0)
    told(producer, [event, scraped, scraped])
    assert matched() == 4
    told(producer, [replace(scraped, process_start_at=6.0)])
    assert matched() == 0
    told(producer, [event, Left(at=2.0, endpoint=one), event])
    assert (matched(), producer.index.num_endpoints, producer.key_modes()) == (0, 0, {})


def test_a_decision_is_expected_to_be_cached_for_a_while(build, one):
    producer = joined(PrecisePrefixCacheProducer(speculative_indexing=True), one, build.endpoint(2))
    producer.record(build.decision(exact(build, range(48)), at=10.0))
    later = exact(build, [*range(32), 7, 8], request_id="r2")
    for at, expected in ((11.9, 32), (12.0, 0)):
        request = replace(later, request=replace(later.request, at=at))
        matches = producer.match(request, [one, build.endpoint(2)])
        assert [match.num_matched_tokens for match in matches] == [expected, 0]
    silent = joined(PrecisePrefixCacheProducer(), one)
    silent.record(build.decision(exact(build, range(48))))
    assert silent.index.num_endpoints == 0


def test_a_request_without_ids_gets_the_approximate_fact_and_it_says_so(build, one):
    producer = joined(PrecisePrefixCacheProducer(), one)
    request = build.priced(100, items=[build.item(identifier="m0")])
    producer.record(build.decision(request))
    approximate = producer.match(request, [one])
    assert [match.is_exact for match in approximate] == [False]
    assert approximate == producer._approximate.match(request, [one])


def test_cached_tokens_correct_the_approximate_belief_under_any_name(build, one):
    producer = joined(PrecisePrefixCacheProducer(), one)
    producer.name = "mine"
    text = TextPart(num_bytes=640, digests=text_digests(b"x" * 640))
    for request_id in ("r1", "r2"):
        request = build.priced(160, request_id=request_id, prompts=((text,),))
        facts = {(PrefixMatch, "mine"): producer.match(request, [one])[0]}
        decision = build.decision(request, build.stage([Candidate(one, facts)]))
        producer.record(decision)
    assert facts[PrefixMatch, "mine"].num_matched_tokens == 160
    usage = Usage(prompt_tokens=160, cached_tokens=64)
    producer.settle(Outcome(request_id="r2", ending=Ending.FINISHED, decision=decision, usage=usage, finished_at=1.0))
    # 64 were cached, and two blocks of 16 are allowed beyond.
    assert producer.match(request, [one])[0].num_matched_tokens == 96


def test_blocks_without_a_key_stay_counted_when_their_engine_is_gone(build, one):
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0"), one)
    orphan = made(BlockHasher(seed="stranger"), range(4), one, parent_block_hash=77)
    told(producer, [orphan, KVCleared(at=0.0, endpoint_id=one.id), orphan])
    assert producer.num_unkeyed == 4
    told(producer, [Left(at=0.0, endpoint=one)])
    assert (producer.num_unkeyed, producer.index.num_blocks) == (4, 0)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["store", "store", "store", "remove", "clear", "leave", "join", "restart"]),
        st.integers(1, 3),
        st.integers(0, 1),
        st.integers(0, 3),
    ),
    max_size=40,
)


@pytest.mark.parametrize("seed", ["0", "another"])
@given(steps=STEPS)
def test_any_order_of_events_is_survived_and_no_block_is_claimed_that_was_not_stored(build, seed, steps):
    index = KVBlockIndexConfig(in_memory_config=InMemoryConfig(size=6))
    producer = PrecisePrefixCacheProducer(
        hash_seed=seed, indexer_config=IndexerConfig(kv_block_index_config=index), speculative_indexing=False
    )
    hasher, prompts, stored = BlockHasher(seed="0"), [range(n, n + 6) for n in range(4)], set()
    for at, (what, number, rank, prompt) in enumerate(steps):
        endpoint = build.endpoint(number)
        event = made(hasher, prompts[prompt], endpoint, rank=rank)
        match what:
            case "store":
                stored.add((endpoint.id, prompt))
                producer.observe(event)
            case "remove":
                names = event.block_hashes[rank:]
                producer.observe(KVRemoved(at=at, endpoint_id=endpoint.id, rank=rank, block_hashes=names))
            case "clear":
                producer.observe(KVCleared(at=at, endpoint_id=endpoint.id, rank=rank))
            case "restart":
                producer.observe(Scraped(at=at, endpoint_id=endpoint.id, load=Load(), process_start_at=float(at)))
            case _:
                kind = Joined if what == "join" else Left
                producer.observe(kind(at=at, endpoint=endpoint))
        assert producer.index.num_blocks <= 6
        for index, ids in enumerate(prompts):
            for each in map(build.endpoint, (1, 2, 3)):
                (fact,) = producer.match(exact(build, (*ids, 9)), [each])
                assert fact.num_matched_tokens == 0 or (each.id, index) in stored
    for each in map(build.endpoint, (1, 2, 3)):
        producer.observe(Left(at=99.0, endpoint=each))
    assert (producer.index.num_blocks, producer.index.num_endpoints, producer.key_modes()) == (0, 0, {})


def test_ids_that_no_engine_takes_match_nothing(build, one):
    producer = joined(PrecisePrefixCacheProducer(), one)
    for ids in ([2**70] * 32, [-1] * 32, []):
        assert producer.match(exact(build, ids), [one])[0].num_matched_tokens == 0


def test_ten_thousand_endpoints_that_come_and_go_leave_nothing(build):
    producer = PrecisePrefixCacheProducer(hash_seed="0")
    event = made(BlockHasher(seed="0"), range(4), build.endpoint(1))
    for number in range(10_000):
        endpoint = replace(build.endpoint(1), port=1 + number)
        joined(producer, endpoint)
        producer.observe(replace(event, endpoint_id=endpoint.id))
        producer.observe(Left(at=0.0, endpoint=endpoint))
    assert (producer.index.num_blocks, producer.index.num_endpoints, producer.key_modes()) == (0, 0, {})


def test_the_index_has_the_configured_size(build, one):
    index = KVBlockIndexConfig(in_memory_config=InMemoryConfig(size=10))
    producer = joined(PrecisePrefixCacheProducer(indexer_config=IndexerConfig(kv_block_index_config=index)), one)
    told(producer, [made(BlockHasher(), range(n, n + 8), one) for n in range(50)])
    assert producer.index.num_blocks <= 10


def test_llmds_parameters_load():
    data = {
        "hashSeed": "42",
        "tokenProcessorConfig": {"blockSizeTokens": 64, "hashSeed": "1", "hashAlgorithm": "xxh64"},
        "indexerConfig": {
            "kvBlockIndexConfig": {
                "inMemoryConfig": {"size": 100, "podCacheSize": 10},
                "costAwareMemoryConfig": {"size": "2GiB"},
                "enableMetrics": True,
                "metricsLoggingInterval": "1m",
            },
            "kvCacheBackendConfigs": [{"name": "gpu", "weight": 1.0}, {"name": "cpu", "weight": 0.5}],
        },
        "kvEventsConfig": {
            "topicFilter": "kv@",
            "concurrency": 8,
            "engineType": "vllm",
            "discoverPods": True,
            "podDiscoveryConfig": {"podLabelSelector": "a=b", "podNamespace": "n", "socketPort": 5556}
            | {"replaySocketPort": 5558},
        },
        "speculativeIndexing": True,
        "speculativeTTL": "500ms",
    }
    producer, problems = decode(PrecisePrefixCacheProducer, data, "p")
    assert problems == []
    assert producer.speculative_ttl == 0.5
    assert producer.kv_events_config.pod_discovery_config.replay_socket_port == 5558
    assert (list(producer.check()), [path for path, _ in producer.cautions()]) == ([], [])


def test_what_is_not_there_is_told():
    data = {
        "indexerConfig": {"kvBlockIndexConfig": {"redisConfig": {"address": "r"}}},
        "kvEventsConfig": {"zmqEndpoint": "tcp://*:5557"},
    }
    producer, problems = decode(PrecisePrefixCacheProducer, data, "p")
    assert problems == []
    assert [path for path, _ in producer.check()] == ["indexerConfig.kvBlockIndexConfig.redisConfig"]
    assert [path for path, _ in producer.cautions()] == ["kvEventsConfig.zmqEndpoint"]


def test_who_has_said_nothing_has_blocks_as_large_as_the_last_engines(build, one):
    """So that its keys are those that ``prepare`` has made."""
    hasher, other = BlockHasher(seed="0"), build.endpoint(2)
    producer = joined(PrecisePrefixCacheProducer(hash_seed="0", speculative_indexing=True), one, other)
    told(producer, [made(hasher, range(8), one, block_size=4)])
    request = exact(build, range(9))
    request = replace(request, block_keys=dict.fromkeys(producer.prepare(request), (7, 8)))
    assert [size for _, size in request.block_keys] == [4]
    producer.record(build.decision(request, build.stage([build.candidate(endpoint=other)])))
    assert [each.num_matched_tokens for each in producer.match(request, [one, other])] == [0, 8]


class TestMiscounts:
    """Token ids that are as many as the engine's tokens may be right; others are wrong."""

    @pytest.fixture
    def producer(self):
        producer = PrecisePrefixCacheProducer()
        producer.name = "mine"
        return producer

    @staticmethod
    def settle(build, producer, num_tokens, *, is_exact=True, **fields):
        fact = PrefixMatch(num_matched_tokens=0, num_total_tokens=9, is_exact=is_exact)
        row = Candidate(build.endpoint(), {(PrefixMatch, "mine"): fact})
        outcome = Outcome(
            **{
                "request_id": "r1",
                "ending": Ending.FINISHED,
                "usage": Usage(prompt_tokens=num_tokens),
                "finished_at": 1.0,
            }
            | {"decision": build.decision(build.priced(model="m"), build.stage([row]))}
            | fields
        )
        return [each.message for each in producer.settle(outcome)]

    def test_one_more_is_told_once_and_counted(self, build, producer):
        (message,) = self.settle(build, producer, 10)
        assert message.startswith("model 'm': the engine counted 10 prompt tokens, 9 were foreseen: ")
        assert self.settle(build, producer, 8) == []
        assert producer.num_miscounted == 2

    @pytest.mark.parametrize(
        ("num_tokens", "fields"),
        [
            (9, {}),
            (10, {"is_exact": False}),
            (10, {"ending": Ending.FAILED}),
            (10, {"usage": None}),
            (10, {"decision": None}),
        ],
    )
    def test_what_tells_nothing(self, build, producer, num_tokens, fields):
        assert self.settle(build, producer, num_tokens, **fields) == []
        assert producer.num_miscounted == 0

    def test_another_producers_matches_are_not_ours(self, build):
        assert self.settle(build, PrecisePrefixCacheProducer(), 10) == []
