import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.core.facts import KVCleared, KVRemoved, KVStored
from tessera.core.matching import kv_wire
from tessera.core.matching.kv_wire import decode_batch, encode_batch

DATA = Path(__file__).parents[2] / "data" / "kv"
PAYLOADS = [
    bytes.fromhex(json.loads(line)["payload_hex"])
    for path in sorted(DATA.glob("*.jsonl"))
    for line in path.read_text().splitlines()
]
pack = msgspec.msgpack.encode
HASH = st.integers(0, 2**64 - 1)
NAME = st.text(max_size=5)
EXTRA_KEY = NAME | st.binary(max_size=5) | st.tuples(NAME, st.integers(-99, 99))
STORED = st.builds(
    KVStored,
    at=st.just(1.0),
    endpoint_id=st.just("e"),
    rank=st.just(2),
    block_hashes=st.lists(HASH, max_size=3).map(tuple),
    parent_block_hash=st.none() | HASH,
    token_ids=st.lists(st.integers(0, 2**31), max_size=5).map(tuple),
    block_size=st.integers(1, 64),
    extra_keys=st.none() | st.lists(st.none() | st.lists(EXTRA_KEY, max_size=3).map(tuple), max_size=3).map(tuple),
    tier=st.sampled_from(["gpu", "cpu", "storage"]),
    lora=st.none() | st.text("abc", min_size=1, max_size=3),
    group=st.none() | st.integers(0, 3),
    attention=st.none() | st.sampled_from(["full_attention", "mamba"]),
)
REMOVED = st.builds(
    KVRemoved,
    at=st.just(1.0),
    endpoint_id=st.just("e"),
    rank=st.just(2),
    block_hashes=st.lists(HASH, max_size=3).map(tuple),
    tier=st.sampled_from(["gpu", "cpu"]),
    group=st.none() | st.integers(0, 3),
)
EVENTS = st.lists(STORED | REMOVED | st.just(KVCleared(at=1.0, endpoint_id="e", rank=2)), max_size=4)


def decode(payload, **fields):
    return decode_batch(payload, **{"at": 1.0, "endpoint_id": "e"} | fields)


def stored(**fields):
    head = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": [7, 8], "block_size": 2}
    return head | fields


def test_recorded_batches_are_read_and_written_byte_for_byte():
    assert len(PAYLOADS) == 30
    for payload in PAYLOADS:
        batch = decode(payload)
        assert batch.num_skipped == 0
        assert encode_batch(batch.events, ts=batch.ts, rank=batch.rank) == payload


def test_the_first_recorded_batch():
    (event,) = decode(PAYLOADS[-16]).events
    assert event.block_hashes[:2] == (9347024127733473122, 6688733767884234130)
    assert (event.block_size, len(event.token_ids), event.token_ids[0]) == (32, 128, 151644)
    assert (event.tier, event.group, event.attention, event.extra_keys) == ("gpu", 0, "full_attention", (None,) * 4)


@pytest.mark.parametrize("as_arrays", [False, True])
@given(events=EVENTS)
def test_round_trip_in_both_shapes(as_arrays, events):
    payload = encode_batch(events, ts=0.5, rank=2, as_arrays=as_arrays)
    batch = decode(payload)
    assert list(batch.events) == events
    assert (batch.ts, batch.rank, batch.num_skipped) == (0.5, 2, 0)


def test_older_arrays_end_early():
    batch = decode(pack([1.0, [["BlockStored", [5], 4, [1, 2], 2, None], ["BlockRemoved", [5]], ["AllBlocksCleared"]]]))
    assert batch.events == (
        KVStored(at=1.0, endpoint_id="e", block_hashes=(5,), parent_block_hash=4, token_ids=(1, 2), block_size=2),
        KVRemoved(at=1.0, endpoint_id="e", block_hashes=(5,)),
        KVCleared(at=1.0, endpoint_id="e"),
    )


def test_whole_hashes_are_known_by_their_last_64_bits():
    (event,) = decode(pack([1.0, [stored(block_hashes=[bytes(31) + b"\x09"], parent_block_hash=bytes(32))]])).events
    assert (event.block_hashes, event.parent_block_hash) == ((9,), 0)


def test_a_rank_that_is_given_wins():
    payload = pack([1.0, [], 3])
    assert (decode(payload).rank, decode(payload, rank=1).rank, decode(pack([1.0, [], 10**9])).rank) == (3, 1, 0)


def test_unknown_fields_and_kinds_are_skipped():
    unknown = [{"type": "BlockMoved", "x": 1}, {"no": "type"}, ["What"], 7, None, {1: 2}, {"type": "BlockRemoved"}]
    batch = decode(pack([1.0, [stored(novel=[{}]), *unknown, ["BlockRemoved", [5]]], 0, "more"]))
    assert [type(event) for event in batch.events] == [KVStored, KVRemoved]
    assert batch.num_skipped == len(unknown)


@pytest.mark.parametrize(
    "key", [None, 7, 1.5, True, [], ["a"], ["a", "b"], ["a", 1, 2], [1, "a"], ["a", True], {"mm": 1}, ["a", 1.0]]
)
def test_an_extra_key_of_unknown_kind_is_no_media_and_no_salt(key):
    batch = decode(pack([1.0, [stored(extra_keys=[[key, ["m", -4], "s", b"d"]])]]))
    assert batch.events[0].extra_keys == ((None, ("m", -4), "s", b"d"),)


def test_an_adapter_without_a_name_is_nobodys():
    (event,) = decode(pack([1.0, [stored(lora_id=3)]])).events
    assert event.lora == "\x003"


@pytest.mark.parametrize(
    "fields",
    [
        {"block_size": 0},
        {"block_size": 1 << 21},
        {"block_hashes": [-1]},
        {"block_hashes": [b"short"]},
        {"token_ids": [-1]},
        {"token_ids": ["1"]},
        {"extra_keys": [3]},
    ],
)
def test_an_event_that_is_not_as_it_should_be_is_skipped(fields):
    batch = decode(pack([1.0, [stored(**fields), stored()]]))
    assert (len(batch.events), batch.num_skipped) == (1, 1)


@pytest.mark.parametrize("payload", [b"", b"\xc1", pack([]), pack({}), pack(["x", []]), pack([1.0, 5]), b"\x93" * 9999])
def test_what_is_no_batch_is_refused(payload):
    with pytest.raises(ValueError, match="no batch"):
        decode(payload)


def test_sizes_are_bounded(monkeypatch):
    nested = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(ValueError, match="recursion"):
        decode(pack([1.0, [msgspec.Raw(nested), stored()]]))
    monkeypatch.setattr(kv_wire, "MAX_EVENTS", 2)
    with pytest.raises(ValueError, match="3 events"):
        decode(pack([1.0, [stored()] * 3]))
    monkeypatch.setattr(kv_wire, "MAX_BATCH_BYTES", 100)
    with pytest.raises(ValueError, match="at most 100"):
        decode(bytes(101))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_value_error(payload):
    for each in (payload, b"\x93\xca\x00\x00\x00\x00\x91" + payload + b"\xc0"):
        try:
            decode(each)
        except ValueError:
            continue
