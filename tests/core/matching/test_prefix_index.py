"""The index equals a naive model under any order of operations, and keeps within its bounds."""

from collections import OrderedDict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tessera.core.matching import prefix_index
from tessera.core.matching.prefix_index import PrefixIndex

ENDPOINTS = ("a", "b", "c")
CHAINS = ((1, 2, 3, 4), (1, 2, 5), (1, 6), (7, 8, 9, 10, 11), (7, 8), (12,))
endpoints = st.sampled_from(ENDPOINTS)
some_chain = st.sampled_from(CHAINS)
capacities = st.integers(0, 40)


class Against(RuleBasedStateMachine):
    """The index beside dictionaries that do the same one key at a time."""

    def __init__(self):
        super().__init__()
        self.index = PrefixIndex()
        self.naive = {}
        self.capacity = {}
        self.number = 0
        self.used = {}

    def evict(self, endpoint, capacity):
        held = self.naive[endpoint]
        self.capacity[endpoint] = capacity
        while held and sum(held.values()) > capacity:
            held.popitem(last=False)

    @rule(endpoint=endpoints, chain=some_chain, weight=st.integers(0, 9), capacity=capacities, at=st.integers(0, 3))
    def insert(self, endpoint, chain, weight, capacity, at):
        weights = [weight + place for place in range(len(chain))]
        self.index.insert(endpoint, chain, weights, capacity, at)
        self.used |= {(endpoint, key): at for key in chain}
        held = self.naive.setdefault(endpoint, OrderedDict())
        for key, tokens in reversed(list(zip(chain, weights, strict=True))):
            held[key] = max(1, tokens)
            held.move_to_end(key)
        self.evict(endpoint, capacity)

    @rule(endpoint=endpoints, tokens=st.integers(-1, 20), capacity=capacities)
    def charge(self, endpoint, tokens, capacity):
        self.index.charge(endpoint, tokens, capacity)
        if endpoint in self.naive and tokens > 0:
            self.number += 1
            self.naive[endpoint]["anonymous", self.number] = tokens
            self.evict(endpoint, capacity)

    @rule(endpoint=endpoints, chain=some_chain, kept=st.integers(0, 4), at=st.integers(0, 3))
    def drop(self, endpoint, chain, kept, at):
        self.index.drop(endpoint, chain[kept:], at)
        for key in chain[kept:]:
            if self.used.get((endpoint, key), 0) <= at:
                self.naive.get(endpoint, {}).pop(key, None)

    @rule(endpoint=endpoints)
    def add(self, endpoint):
        self.index.add(endpoint)
        self.naive.setdefault(endpoint, OrderedDict())

    @rule(endpoint=endpoints)
    def clear(self, endpoint):
        self.index.clear(endpoint)
        self.naive.get(endpoint, OrderedDict()).clear()

    @rule(endpoint=endpoints)
    def remove(self, endpoint):
        self.index.remove(endpoint)
        self.naive.pop(endpoint, None)

    @invariant()
    def equals_the_naive_model(self):
        for chain in CHAINS:
            expected = []
            for endpoint in ENDPOINTS:
                held = self.naive.get(endpoint, {})
                expected.append(next((depth for depth, key in enumerate(chain) if key not in held), len(chain)))
            assert self.index.depths(chain, ENDPOINTS) == expected
        assert len(self.index) == len(self.naive)
        assert self.index.num_keys == len({k for held in self.naive.values() for k in held if isinstance(k, int)})
        for endpoint, held in self.naive.items():
            assert self.index.num_tokens(endpoint) == sum(held.values())
            assert self.index.num_entries(endpoint) == len(held)
            assert not held or self.index.num_tokens(endpoint) <= self.capacity[endpoint]


def test_equals_a_naive_model():
    run_state_machine_as_test(Against, settings=settings(max_examples=150, stateful_step_count=30))


def test_a_chain_loses_its_tail_first_and_the_oldest_chain_before_others():
    index = PrefixIndex()
    index.insert("a", (1, 2, 3), (10, 10, 10), 60)
    index.insert("a", (4, 5, 6), (10, 10, 10), 60)
    index.insert("a", (7,), (10,), 60)
    assert [index.depths(chain, ["a"]) for chain in ((1, 2, 3), (4, 5, 6), (7,))] == [[2], [3], [1]]
    index.insert("a", (1, 2), (10, 10), 60)
    index.insert("a", (8, 9), (10, 10), 60)
    assert [index.depths(chain, ["a"]) for chain in ((1, 2), (4, 5, 6), (7,), (8, 9))] == [[2], [1], [1], [2]]


def test_a_chain_larger_than_the_cache_keeps_its_head():
    index = PrefixIndex()
    index.insert("a", (1, 2, 3), (10, 10, 10), 25)
    assert index.depths((1, 2, 3), ["a"]) == [2]
    index.insert("a", (9,), (26,), 25)
    assert (index.depths((9,), ["a"]), index.num_tokens("a")) == ([0], 0)


def test_a_gap_ends_a_match_for_that_endpoint_alone():
    index = PrefixIndex()
    for endpoint in ("a", "b"):
        index.insert(endpoint, (1, 2, 3), (1, 1, 1), 99)
    index.drop("a", (2,), 0.0)
    assert index.depths((1, 2, 3), ["a", "b", "unknown", "a"]) == [1, 3, 0, 1]
    assert index.depths((), ["a"]) == [0]
    assert index.depths((1,), []) == []


def test_entries_are_bounded_whatever_the_capacity(monkeypatch):
    monkeypatch.setattr(prefix_index, "MAX_ENTRIES", 3)
    index = PrefixIndex()
    index.insert("a", (1, 2, 3, 4, 5), (1,) * 5, 1 << 60)
    assert (index.depths((1, 2, 3, 4, 5), ["a"]), index.num_entries("a")) == ([3], 3)


def test_ten_thousand_joins_and_leaves_leave_nothing():
    index = PrefixIndex()
    index.insert("stays", (1, 2), (1, 1), 99)
    for number in range(10_000):
        name = f"e{number}"
        index.insert(name, (1, 2, number + 10), (1, 1, 1), 99)
        assert index.depths((1, 2, number + 10), [name, "stays"]) == [3, 2]
        index.remove(name)
    assert (len(index), index.num_keys, index.depths((1, 2), ["stays"])) == (1, 2, [2])
    index.remove("stays")
    assert (len(index), index.num_keys) == (0, 0)
