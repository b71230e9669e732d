import json
from dataclasses import replace
from pathlib import Path

import pytest

from tessera.core.facts import KVStored
from tessera.core.matching import engine_keys
from tessera.core.matching.block_keys import BlockHasher, HashAlgorithm, MediaSpan, block_key, extra_keys_of
from tessera.core.matching.engine_keys import EngineKeys, KeyMode, adopted, candidates, tagged
from tessera.core.matching.kv_wire import decode_batch

DATA = Path(__file__).parents[2] / "data" / "kv"


def recorded(name="events"):
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        yield from decode_batch(bytes.fromhex(json.loads(line)["payload_hex"]), at=0.0, endpoint_id="e").events


RECORDED = [event for event in recorded() if isinstance(event, KVStored)]


def made(hasher, ids, block_size=2, parent=None, **fields):
    """What an engine with that hasher says of a prompt without extra keys."""
    hashes = hasher.hashes(ids, block_size, parent=parent)
    return KVStored(
        at=0.0,
        endpoint_id="e",
        block_hashes=tuple(map(block_key, hashes)),
        parent_block_hash=block_key(parent) if parent else None,
        token_ids=tuple(ids),
        block_size=block_size,
        **fields,
    )


@pytest.mark.parametrize("algorithm", HashAlgorithm)
def test_the_engines_algorithm_is_found_out(algorithm):
    event = made(BlockHasher(algorithm, "7"), range(4))
    assert adopted(event, candidates("7")).algorithm is algorithm
    assert adopted(event, candidates("8")) is None


def test_a_recorded_engine_is_direct_with_its_seed():
    keys = EngineKeys(adopted(RECORDED[0], candidates("0")), 32)
    for event in RECORDED:
        assert keys.stored(event) == event.block_hashes
    assert (keys.mode, keys.is_direct, keys.num_unkeyed) == (KeyMode.DIRECT, True, 0)


def test_a_recorded_engine_of_unknown_seed_is_rechained_to_what_a_request_asks_for():
    hasher = BlockHasher(HashAlgorithm.XXHASH_CBOR, "unknown")
    keys = EngineKeys(hasher, 32)
    ours = {name: key for event in RECORDED for name, key in zip(event.block_hashes, keys.stored(event), strict=True)}
    assert (keys.mode, keys.num_unkeyed) == (KeyMode.RECHAINED, 0)
    picture = next(event for event in RECORDED if event.extra_keys[0] and isinstance(event.extra_keys[0][0], tuple))
    identifier, offset = picture.extra_keys[0][0]
    extra = extra_keys_of([MediaSpan(identifier, offset, 300)], 9, 32)
    asked = tuple(map(block_key, hasher.hashes(picture.token_ids, 32, extra)))
    assert tuple(ours[name] for name in picture.block_hashes) == asked
    assert [keys.key_of(name) for name in picture.block_hashes] == list(asked)
    salted = next(event for event in RECORDED if event.extra_keys[0] == ("tenant-a",))
    extra = extra_keys_of([], 4, 32, cache_salt="tenant-a")
    assert tuple(ours[name] for name in salted.block_hashes) == tuple(
        map(block_key, hasher.hashes(salted.token_ids, 32, extra))
    )


def test_blocks_behind_an_unknown_block_get_no_key():
    engine, ours = BlockHasher(seed="1"), BlockHasher(seed="2")
    whole = engine.hashes(range(8), 2)
    keys = EngineKeys(ours, 2)
    assert keys.stored(made(engine, range(4, 8), parent=whole[1])) == []
    assert (keys.mode, keys.num_unkeyed) == (KeyMode.UNKNOWN, 2)
    keys.stored(made(engine, range(4)))
    assert keys.stored(made(engine, range(4, 8), parent=whole[1])) == list(map(block_key, ours.hashes(range(8), 2)[2:]))


@pytest.mark.parametrize("key", [None, "text", "another"])
def test_an_unknown_extra_key_ends_the_chain(key):
    keys = EngineKeys(BlockHasher(seed="2"), 2)
    event = replace(made(BlockHasher(seed="1"), range(6)), extra_keys=(None, (key,), None))
    assert len(keys.stored(event)) == 1
    assert keys.num_unkeyed == 2


def test_an_adapters_blocks_are_chained_by_its_name_even_in_direct_mode():
    hasher = BlockHasher(seed="1")
    keys = EngineKeys(hasher, 2)
    plain = made(hasher, range(4))
    keys.stored(plain)
    hashes = hasher.hashes(range(4), 2, extra_keys_of([], 2, 2, lora=("a", "/secret")))
    event = replace(plain, block_hashes=tuple(map(block_key, hashes)), lora="a", extra_keys=(("a", "salt"), ("a",)))
    ours = extra_keys_of([], 2, 2, lora=("a", ""), cache_salt="salt")
    expected = list(map(block_key, hasher.hashes(range(4), 2, ours)))
    assert keys.stored(event) == expected
    assert not keys.is_direct
    assert [keys.key_of(each) for each in event.block_hashes] == expected
    assert [keys.key_of(each) for each in plain.block_hashes] == list(plain.block_hashes)
    for each in event.block_hashes:
        keys.forget(each)
    assert keys.is_direct


def test_a_further_tier_names_blocks_without_their_ids():
    engine, keys = BlockHasher(seed="1"), EngineKeys(BlockHasher(seed="2"), 2)
    event = made(engine, range(4))
    ours = keys.stored(event)
    assert keys.stored(replace(event, token_ids=(), tier="cpu", block_hashes=(*event.block_hashes, 5))) == ours


def test_other_kinds_of_cache_and_partial_blocks_are_passed_over():
    hasher = BlockHasher(seed="1")
    keys = EngineKeys(hasher, 4)
    assert keys.stored(made(hasher, range(8), 4, group=1, attention="mamba")) == ()
    assert keys.stored(made(hasher, range(2), 2)) == ()
    assert keys.is_foreign(1)
    assert not keys.is_foreign(0)
    assert keys.mode is KeyMode.UNKNOWN


def test_remembered_blocks_are_bounded(monkeypatch):
    monkeypatch.setattr(engine_keys, "MAX_CHAINED", 32)
    engine, keys = BlockHasher(seed="1"), EngineKeys(BlockHasher(seed="2"), 2)
    first = keys.stored(made(engine, range(64)))
    assert keys.take_dropped() == []
    keys.stored(made(engine, range(100, 104)))
    dropped = keys.take_dropped()
    assert dropped == first[: len(dropped)]
    assert len(dropped) == 4
    assert keys.take_dropped() == []


def test_extra_keys_of_an_event_that_gives_too_few():
    event = replace(RECORDED[0], extra_keys=(None,))
    assert tagged(event) == ({}, 1)
