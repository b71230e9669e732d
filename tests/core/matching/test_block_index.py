import sys
import tracemalloc
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tessera.core.matching import block_index
from tessera.core.matching.block_index import BYTES_PER_BLOCK, NO_MATCH, BlockIndex, BlockMatch

ENDPOINTS = ("a", "b")
RANKS = (0, 1)
TIERS = {"gpu": 1.0, "cpu": 0.5}
KEYS = st.lists(st.integers(0, 7), max_size=6)


def match(index, endpoint_id, keys, at=0.0):
    (found,) = index.match([endpoint_id], keys, at)
    return found


def naive_match(copies, speculative, endpoint_id, keys, at):
    """The best rank's longest prefix, block by block, from counters alone."""
    ranks = {rank for name, rank, _, _ in copies if name == endpoint_id} or {0}
    best = NO_MATCH
    for rank in ranks:
        num_blocks, weight = 0, 0.0
        for key in keys:
            weights = [each for tier, each in TIERS.items() if copies[endpoint_id, rank, tier, key]]
            if speculative.get((endpoint_id, key), at) > at and not weights:
                weights = [1.0]
            if not weights:
                break
            num_blocks += 1
            weight += max(weights)
        best = max(best, BlockMatch(num_blocks, weight), key=lambda each: each.weight)
    return best


class AnyEvents(RuleBasedStateMachine):
    """Stores, removals, clears and expectations in any order, against counters."""

    def __init__(self):
        super().__init__()
        self.index = BlockIndex(tiers=TIERS, max_blocks=10_000)
        self.copies = Counter()
        self.speculative = {}
        self.at = 0.0

    @rule(
        name=st.sampled_from(ENDPOINTS),
        rank=st.sampled_from(RANKS),
        tier=st.sampled_from([*TIERS, "storage"]),
        keys=KEYS,
        repeats=st.integers(1, 2),
    )
    def store(self, name, rank, tier, keys, repeats):
        for _ in range(repeats):
            self.index.store(name, rank, keys, tier)
            if tier in TIERS:
                self.copies.update((name, rank, tier, key) for key in keys)

    @rule(name=st.sampled_from(ENDPOINTS), rank=st.sampled_from(RANKS), tier=st.sampled_from(["gpu", "cpu"]), keys=KEYS)
    def remove(self, name, rank, tier, keys):
        self.index.remove(name, rank, keys, tier)
        for key in keys:
            if self.copies[name, rank, tier, key] <= 1:
                self.copies.pop((name, rank, tier, key), None)
            else:
                self.copies[name, rank, tier, key] -= 1

    @rule(name=st.sampled_from(ENDPOINTS), rank=st.sampled_from(RANKS), keys=KEYS)
    def drop(self, name, rank, keys):
        self.index.drop(name, rank, keys)
        for tier in TIERS:
            for key in keys:
                self.copies.pop((name, rank, tier, key), None)

    @rule(name=st.sampled_from(ENDPOINTS))
    def leave(self, name):
        self.index.clear(name)
        self.copies = Counter({each: n for each, n in self.copies.items() if each[0] != name})
        self.speculative = {each: until for each, until in self.speculative.items() if each[0] != name}

    @rule(name=st.sampled_from(ENDPOINTS), keys=KEYS)
    def speculate(self, name, keys):
        self.index.speculate(name, keys, at=self.at, until=self.at + 2.0)
        self.speculative |= {(name, key): self.at + 2.0 for key in keys}

    @rule(seconds=st.sampled_from([0.5, 1.0, 3.0]))
    def time_passes(self, seconds):
        self.at += seconds

    @rule(keys=KEYS)
    def match(self, keys):
        names = [*ENDPOINTS, "unknown", *ENDPOINTS]
        for name, found in zip(names, self.index.match(names, keys, self.at), strict=True):
            expected = naive_match(self.copies, self.speculative, name, keys, self.at)
            assert found.weight == expected.weight
            if expected.weight == expected.num_blocks:
                assert found == expected

    @invariant()
    def counts_what_is_there(self):
        alive = {each for each, n in self.copies.items() if n > 0}
        assert self.index.num_blocks == len(alive)
        assert len(self.index._holders) == len({each[3] for each in alive})
        for name in ENDPOINTS:
            for rank in RANKS:
                for key in range(8):
                    assert self.index.holds(name, rank, key) == any((name, rank, t, key) in alive for t in TIERS)


TestAnyEvents = AnyEvents.TestCase
TestAnyEvents.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_the_longest_prefix_from_the_start():
    index = BlockIndex()
    index.store("a", 0, [1, 2, 4])
    assert match(index, "a", [1, 2, 3, 4]) == BlockMatch(2, 2.0)
    assert match(index, "a", [2, 1]) == BlockMatch(2, 2.0)
    assert match(index, "a", [3, 1]) == match(index, "b", [1]) == match(index, "a", []) == NO_MATCH


def test_a_block_counts_at_its_best_tier():
    index = BlockIndex()
    index.store("a", 0, [1, 2])
    index.store("a", 0, [2, 3], "cpu")
    assert match(index, "a", [1, 2, 3, 4]) == BlockMatch(3, 2.8)
    index.remove("a", 0, [2])
    assert match(index, "a", [1, 2, 3]).weight == pytest.approx(2.6)


def test_a_block_stored_twice_is_there_until_it_is_removed_twice():
    index = BlockIndex()
    index.store("a", 0, [1])
    index.store("a", 0, [1])
    index.remove("a", 0, [1])
    assert match(index, "a", [1]) == BlockMatch(1, 1.0)
    index.remove("a", 0, [1, 1, 9])
    assert (index.num_blocks, index.num_endpoints) == (0, 0)


def test_ranks_are_caches_of_their_own():
    index = BlockIndex()
    index.store("a", 0, [1, 2])
    index.store("a", 1, [1, 2, 3])
    assert match(index, "a", [1, 2, 3]).num_blocks == 3
    index.clear("a", 1)
    assert match(index, "a", [1, 2, 3]).num_blocks == 2
    index.store("a", 1, [3])
    assert match(index, "a", [1, 2, 3]).num_blocks == 2


def test_expectations_fill_gaps_until_they_end():
    index = BlockIndex()
    index.store("a", 0, [1])
    index.speculate("a", [1, 2], at=0.0, until=2.0)
    assert match(index, "a", [1, 2, 3], 1.99).num_blocks == 2
    assert match(index, "a", [1, 2, 3], 2.0).num_blocks == 1
    index.speculate("b", [1], at=0.0, until=2.0)
    index.speculate("b", [], at=2.0, until=4.0)
    assert index.num_endpoints == 1


def test_expectations_are_bounded(monkeypatch):
    monkeypatch.setattr(block_index, "MAX_SPECULATIVE", 10)
    index = BlockIndex()
    for start in range(0, 100, 5):
        index.speculate("a", range(start, start + 5), at=0.0, until=2.0)
    assert match(index, "a", range(90, 100), 1.0).num_blocks == 10
    assert match(index, "a", range(89, 100), 1.0).num_blocks == 0


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), KEYS, st.booleans()), max_size=40), st.integers(1, 8))
def test_never_over_its_bound_and_never_more_than_was_stored(steps, max_blocks):
    index = BlockIndex(max_blocks=max_blocks)
    stored = set()
    for name, keys, is_store in steps:
        (index.store if is_store else index.remove)(name, 0, keys)
        stored |= {(name, key) for key in keys if is_store}
        assert index.num_blocks <= max_blocks
        held = {(each, key) for each in "abc" for key in range(8) if index.holds(each, 0, key)}
        assert held <= stored
        assert len(held) == index.num_blocks


def test_who_would_exceed_the_bound_pays_with_its_own_oldest():
    index = BlockIndex(max_blocks=40)
    index.store("a", 0, range(20))
    index.store("b", 0, range(100, 120))
    index.store("b", 0, [120])
    assert match(index, "a", range(20)).num_blocks == 20
    assert not index.holds("b", 0, 100)
    assert index.holds("b", 0, 120)
    assert index.num_evicted == 2
    index.store("c", 0, [1, 2])
    assert index.num_blocks <= 40


def test_ten_thousand_endpoints_that_come_and_go_leave_nothing():
    index = BlockIndex()
    for number in range(10_000):
        index.store(f"e{number}", number % 3, [number, number + 1])
        index.speculate(f"e{number}", [number], at=float(number), until=number + 2.0)
        index.clear(f"e{number}")
    assert (index.num_blocks, index.num_endpoints, len(index._holders)) == (0, 0, 0)
    index.store("next", 0, [1])
    assert index._endpoints["next"].ranks[0].bit == 1, "masks do not grow with endpoints that are gone"


def test_ranks_of_an_endpoint_are_bounded():
    index = BlockIndex()
    for rank in range(1000):
        index.store("a", rank, [1])
    assert index.num_blocks == block_index.MAX_RANKS


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="counts CPython's bytes")
@pytest.mark.parametrize(("num_engines", "num_sharing"), [(1, 1), (500, 1), (500, 2)])
@pytest.mark.parametrize("num_blocks", [1000, 44_000])
def test_a_block_takes_as_many_bytes_as_stated(num_blocks, num_engines, num_sharing):
    """Also where another engine held it and gave it up."""
    index = BlockIndex()
    for engine in range(num_engines):
        index.store(f"e{engine}", 0, [-engine - 1])
    tracemalloc.start()
    try:
        for engine in range(num_engines - num_sharing, num_engines):
            index.store(f"e{engine}", 0, ((1 << 63) + key for key in range(num_blocks)))
        index.store("gives up", 0, ((1 << 63) + key for key in range(num_blocks)))
        index.remove("gives up", 0, ((1 << 63) + key for key in range(num_blocks)))
        assert index.num_blocks == num_blocks * num_sharing + num_engines
        used = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert used / (num_blocks * num_sharing) < BYTES_PER_BLOCK
