import json
from hashlib import sha256
from pathlib import Path

import pytest
import xxhash

from tessera.core.facts import KVStored
from tessera.core.matching.block_keys import (
    BlockHasher,
    HashAlgorithm,
    MediaSpan,
    block_key,
    extra_keys_of,
)
from tessera.core.matching.engine_keys import tagged
from tessera.core.matching.kv_wire import decode_batch

DATA = Path(__file__).parents[2] / "data" / "kv"
SAMPLES = {"events": 70, "epd-pd": 170}
"""Blocks stored in each recording of a vLLM 0.32 that ran with PYTHONHASHSEED=0 and blocks of 32 tokens."""

VECTORS = {
    HashAlgorithm.SHA256: (
        "066b1e8987e027138e98701c46128929378935f9b6cd1549105ae6b4f0d71198",
        "fe8fa5dda3210d0ca2031e37cbe3b001186773cd1c710beb2d45fcb51d434798",
        "d477360ab9218a5be13ac975d669c181557fdffd597341c3ca9cd51d3ab75da0",
        14599778413544168864,
    ),
    HashAlgorithm.SHA256_CBOR: (
        "9bd96a485ad84efdafb72ee48a1d7a69bcead0f8f0433173941b276b9581eef0",
        "dc918a88b139e5afe60b88eda27508d4aee16c10fdc354791efea06206ac0749",
        "d202e4fed5059d3f8f0ff25dba3f7e1912693cb0283712e5d0494b68cce4a05d",
        15008610146675105885,
    ),
}


def stored_blocks(name):
    for line in (DATA / f"{name}.jsonl").read_text().splitlines():
        batch = decode_batch(bytes.fromhex(json.loads(line)["payload_hex"]), at=0.0, endpoint_id="e")
        yield from (event for event in batch.events if isinstance(event, KVStored))


@pytest.mark.parametrize("algorithm", VECTORS)
def test_the_engines_own_vectors(algorithm):
    none_hash, first, second, key = VECTORS[algorithm]
    hasher = BlockHasher(algorithm)
    hashes = hasher.hashes(range(32), 16, {1: (("mm", "abc", 5),)})
    assert hasher.none_hash.hex() == none_hash
    assert [each.hex() for each in hashes] == [first, second]
    assert block_key(hashes[1]) == key


@pytest.mark.parametrize(
    ("algorithm", "seed", "head"),
    [
        (HashAlgorithm.SHA256, "0", "1973e238"),
        (HashAlgorithm.SHA256, "42", "c0bc02c9"),
        (HashAlgorithm.SHA256_CBOR, "0", "4e1195df"),
        (HashAlgorithm.SHA256_CBOR, "42", "9fa6eb00"),
    ],
)
def test_the_seed_begins_the_chain(algorithm, seed, head):
    assert BlockHasher(algorithm, seed).none_hash.hex().startswith(head)


@pytest.mark.parametrize("name", SAMPLES)
def test_every_recorded_hash_is_computed_from_ids_and_keys(name):
    hasher = BlockHasher(HashAlgorithm.SHA256, "0")
    known, num_blocks = {}, 0
    for event in stored_blocks(name):
        parent = known[event.parent_block_hash] if event.parent_block_hash is not None else None
        extra_keys, num_known = tagged(event)
        hashes = hasher.hashes(event.token_ids, event.block_size, extra_keys, parent)
        assert num_known == len(event.block_hashes)
        assert tuple(map(block_key, hashes)) == event.block_hashes
        known |= dict(zip(event.block_hashes, hashes, strict=True))
        num_blocks += len(hashes)
    assert num_blocks == SAMPLES[name]


def test_the_recorded_picture_is_predicted_from_its_place_in_the_prompt():
    events = list(stored_blocks("events"))
    first = next(event for event in events if event.extra_keys[0] and isinstance(event.extra_keys[0][0], tuple))
    second = events[events.index(first) + 1]
    ids = first.token_ids + second.token_ids
    identifier, offset = first.extra_keys[0][0]
    keys = extra_keys_of([MediaSpan(identifier, offset, 300)], len(ids) // 32, 32)
    hashes = BlockHasher(seed="0").hashes(ids, 32, keys)
    assert tuple(map(block_key, hashes)) == first.block_hashes + second.block_hashes


@pytest.mark.parametrize("algorithm", HashAlgorithm)
def test_only_full_blocks_have_a_hash_and_a_chain_can_be_continued(algorithm):
    hasher = BlockHasher(algorithm)
    ids = [*range(40), 300, 70_000, 2**20]
    whole = hasher.hashes(ids, 4)
    assert len(whole) == 10
    assert {len(each) for each in whole} == {32 if "sha" in algorithm else 16}
    assert hasher.hashes(ids[8:], 4, parent=whole[1]) == whole[2:]
    assert hasher.hashes(ids[:3], 4) == []


def test_xxhash_is_the_128_bit_xxh3_of_the_same_bytes():
    hasher = BlockHasher(HashAlgorithm.XXHASH_CBOR, "0")
    none_hash = xxhash.xxh3_128_digest(b"\x610")
    assert hasher.none_hash == none_hash
    assert hasher.hashes([0, 1], 2) == [xxhash.xxh3_128_digest(b"\x83\x50" + none_hash + b"\x82\x00\x01\xf6")]


def test_cbor_is_canonical_for_every_width_of_integer_and_every_extra_key():
    hasher = BlockHasher(HashAlgorithm.SHA256_CBOR)
    ids = [23, 24, 255, 256, 65_535, 65_536, 2**18, 2**32 - 1, 2**32]
    written = bytes.fromhex("17 1818 18ff 190100 19ffff 1a00010000 1a00040000 1affffffff 1b0000000100000000")
    extra = (("lora", "a", ""), ("mm", "é", -28), ("cache_salt", "s"), ("prompt_embeds", b"\x01"))
    keys = (
        b"\x84\x83\x64lora\x61a\x60\x83\x62mm\x62" + "é".encode() + b"\x38\x1b"
        b"\x82\x6acache_salt\x61s\x82\x6dprompt_embeds\x41\x01"
    )
    expected = sha256(b"\x83\x58\x20" + hasher.none_hash + b"\x89" + written + keys).digest()
    assert hasher.hashes(ids, 9, {0: extra}) == [expected]
    with pytest.raises(OverflowError):
        hasher.hashes([2**64], 1)


def test_an_item_is_in_every_block_it_overlaps_with_its_offset_from_each():
    keys = extra_keys_of([MediaSpan("a", 2, 6), MediaSpan("b", 9, 3)], 4, 4, lora=("l", "/p"), cache_salt="s")
    lora = ("lora", "l", "/p")
    assert keys == {
        0: (lora, ("mm", "a", 2), ("cache_salt", "s")),
        1: (lora, ("mm", "a", -2)),
        2: (lora, ("mm", "b", 1)),
        3: (lora,),
    }


def test_an_item_behind_the_last_full_block_or_without_tokens_has_no_keys():
    assert extra_keys_of([MediaSpan("a", 8, 4), MediaSpan("b", 4, 0)], 2, 4) == {}


def test_one_picture_twice_in_a_block_is_hashed_as_two_strings():
    keys = extra_keys_of([MediaSpan("abc", 0, 1), MediaSpan("abc", 1, 1)], 1, 4)
    first, second = (key[1] for key in keys[0])
    assert first == second
    assert first is not second


def test_a_huge_item_is_bounded_in_blocks(monkeypatch):
    monkeypatch.setattr("tessera.core.matching.block_keys.MAX_MEDIA_BLOCKS", 3)
    assert list(extra_keys_of([MediaSpan("a", 0, 8), MediaSpan("b", 8, 8)], 99, 4)) == [0, 1, 2]
