"""Are KV events those that a real vLLM published, byte for byte?"""

import json
from array import array
from pathlib import Path

import msgspec
import pytest

from tessera.core.facts import KVCleared, KVRemoved, KVStored
from tessera.core.matching.block_keys import BlockHasher
from tessera.core.matching.kv_wire import encode_batch
from tessera.emulator.kv_names import BlockNames
from tessera.emulator.pictures import PromptItem
from tessera.emulator.prompts import FIRST_ANSWER_ID, EnginePrompt
from tessera.engine.events import BlocksRemoved, BlocksStored, CacheCleared
from tessera.engine.requests import EngineRequest

LINES = (Path(__file__).parents[1] / "data" / "kv" / "events.jsonl").read_text().splitlines()
RECORDED = {row["seq"]: bytes.fromhex(row["payload_hex"]) for row in map(json.loads, LINES)}
"""Batches of a vLLM with blocks of 32 tokens, started with PYTHONHASHSEED=0."""


def item(identifier, num_tokens):
    return PromptItem(
        identifier=identifier, width=1, height=1, num_tokens=num_tokens, num_embeds=num_tokens, num_wrapper_tokens=2
    )


def expect(names, name, ids, *, block_size=32, num_output_tokens=1, **rest):
    prompt = EnginePrompt(token_ids=array("q", ids), **rest)
    names.expect(EngineRequest(name, prompt.segments(block_size), num_output_tokens), prompt)


def told(batch):
    """The events of a recorded batch, undecoded."""
    return msgspec.msgpack.decode(batch)[1]


def stored(name, first_block, keys, at=1.0, choice=0):
    return BlocksStored(name, at, first_block, keys, choice)


# Which recorded batches tell of one prompt, from its first block on; its pictures; its salt.
CASES = {
    "text": ([0], (), None),
    "text-salted": ([1], (), "tenant-a"),
    "image": ([2, 3], ((4, 300),), None),
    "image-own-uuid": ([6, 7], ((4, 300),), None),
    "long-decode": ([11, 12, 13], (), None),
}


@pytest.mark.parametrize("case", CASES)
def test_a_recorded_prompt(case):
    numbers, places, salt = CASES[case]
    batches = [RECORDED[number] for number in numbers]
    ids = [token_id for batch in batches for token_id in told(batch)[0]["token_ids"]]
    keys = told(batches[0])[0]["extra_keys"]
    items = tuple(item(keys[0][0][0], num_tokens) for _, num_tokens in places)
    names = BlockNames(BlockHasher(seed="0"), 32)
    expect(names, "r", ids, items=items, offsets=tuple(offset for offset, _ in places), cache_salt=salt)
    first = 0
    for batch in batches:
        end = first + len(told(batch)[0]["block_hashes"])
        published = names.published([stored("r", first, range(first, end))])
        assert encode_batch(published, ts=msgspec.msgpack.decode(batch)[0]) == batch
        first = end


def test_a_prompt_that_goes_on_from_what_is_there():
    image, turn = told(RECORDED[2])[0], told(RECORDED[9])[0]
    first, second = image["extra_keys"][0][0], turn["extra_keys"][-1][-1]
    block = 9 + len(turn["block_hashes"]) - 1
    items = (item(first[0], 300), item(second[0], 300))
    names = BlockNames(BlockHasher(seed="0"), 32)
    ids = image["token_ids"] + turn["token_ids"]
    expect(names, "r", ids, items=items, offsets=(first[1], second[1] + 32 * block))
    published = names.published([stored("r", 9, range(9, block + 1))])
    assert encode_batch(published, ts=msgspec.msgpack.decode(RECORDED[9])[0]) == RECORDED[9]


def test_evictions_are_told_one_by_one_and_before_the_blocks_that_they_made_room_for():
    names = BlockNames(BlockHasher(seed="0"), 4)
    expect(names, "old", range(8), block_size=4)
    expect(names, "new", range(100, 112), block_size=4)
    (before,) = names.published([stored("old", 0, range(2))])
    events = [
        BlocksRemoved(2.0, range(1, 2)),
        stored("new", 0, range(2, 3), 2.0),
        BlocksRemoved(2.0, range(1)),
        stored("new", 1, range(3, 5), 2.0),
    ]
    published = names.published(events)
    assert [type(event) for event in published] == [KVRemoved, KVRemoved, KVStored]
    assert [event.block_hashes for event in published[:2]] == [before.block_hashes[1:], before.block_hashes[:1]]
    assert (len(published[2].block_hashes), published[2].token_ids) == (3, tuple(range(100, 112)))
    assert len(names) == 3


def test_a_block_that_comes_and_goes_at_once_goes_last():
    names = BlockNames(BlockHasher(seed="0"), 4)
    expect(names, "r", range(8), block_size=4)
    published = names.published([stored("r", 0, range(1)), BlocksRemoved(1.0, range(1)), stored("r", 1, range(1, 2))])
    assert [type(event) for event in published] == [KVStored, KVRemoved, KVStored]
    assert published[0].block_hashes == published[1].block_hashes
    assert published[2].parent_block_hash == published[0].block_hashes[0]


def test_blocks_of_different_steps_requests_or_choices_are_not_joined():
    names = BlockNames(BlockHasher(seed="0"), 4)
    for name in "ab":
        expect(names, name, range(6), block_size=4, num_output_tokens=7)
    events = [
        stored("a", 0, range(1)),
        stored("b", 1, range(1, 2)),
        stored("b", 2, range(2, 3), 2.0),
        stored("b", 3, range(3, 4), 2.0, choice=1),
    ]
    assert [len(event.block_hashes) for event in names.published(events)] == [1, 1, 1, 1]


def test_answers_have_tokens_of_their_own():
    names = BlockNames(BlockHasher(seed="0"), 4)
    expect(names, "r", [1, 2, 3], block_size=4, num_output_tokens=9)
    events = names.published([stored("r", 0, range(2)), stored("r", 0, range(2, 4), choice=1)])
    ids = [event.token_ids for event in events]
    assert [each[:3] for each in ids] == [(1, 2, 3), (1, 2, 3)]
    assert min(ids[0][3:] + ids[1][3:]) >= FIRST_ANSWER_ID
    assert not set(ids[0][3:]) & set(ids[1][3:])
    assert events[0].extra_keys == (None, None)


def test_nothing_is_left_of_what_is_cleared_and_forgotten():
    names = BlockNames(BlockHasher(seed="0"), 4)
    expect(names, "r", range(8), block_size=4)
    published = names.published([stored("r", 0, range(2)), CacheCleared(2.0)])
    assert isinstance(published[1], KVCleared)
    names.forget("r")
    assert len(names) == 0
    assert names._chains == {}
