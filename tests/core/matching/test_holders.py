"""The table equals a naive model under any order of operations, and its masks stay as narrow as the fleet."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from tessera.core.matching.holders import Holders

KEYS = st.lists(st.integers(0, 7), max_size=6)
CHAINS = ((0, 1, 2, 3), (1, 1, 2), (7, 6), (5,), ())


class Against(RuleBasedStateMachine):
    """The table beside one set of keys for each holder."""

    def __init__(self):
        super().__init__()
        self.holders = Holders()
        self.naive = {}

    @rule()
    def join(self):
        if len(self.naive) < 4:
            bit = self.holders.join()
            assert bit not in self.naive
            assert bit.bit_count() == 1
            assert bit < 1 << 4, "bits are given out anew"
            self.naive[bit] = set()

    @rule(place=st.integers(0, 3), keys=KEYS)
    def hold(self, place, keys):
        if bit := self.bit(place):
            self.holders.hold(keys, bit)
            self.naive[bit] |= set(keys)

    @rule(place=st.integers(0, 3), keys=KEYS)
    def let_go(self, place, keys):
        if bit := self.bit(place):
            self.holders.let_go(keys, bit)
            self.naive[bit] -= set(keys)

    @rule(place=st.integers(0, 3))
    def leave(self, place):
        if bit := self.bit(place):
            self.holders.let_go(self.naive.pop(bit), bit)
            self.holders.leave(bit)

    def bit(self, place):
        return dict(enumerate(self.naive)).get(place)

    @invariant()
    def equals_the_sets(self):
        assert len(self.holders) == len(set().union(*self.naive.values()))
        bits = [*self.naive, 0, *self.naive]
        for chain in CHAINS:
            depths = [
                next((depth for depth, key in enumerate(chain) if key not in self.naive[bit]), len(chain)) if bit else 0
                for bit in bits
            ]
            assert self.holders.depths(chain, bits) == depths
            assert self.holders.depths(chain, []) == []


def test_equals_a_naive_model():
    run_state_machine_as_test(Against, settings=settings(max_examples=80, stateful_step_count=30))


def test_a_chain_ends_for_each_holder_where_its_own_first_gap_is():
    holders = Holders()
    one, two, three = holders.join(), holders.join(), holders.join()
    holders.hold([10, 11, 12], one)
    holders.hold([10, 12], two)
    assert holders.depths([10, 11, 12], [three, two, one, 0, two]) == [0, 1, 3, 0, 1]
    holders.let_go([10], one)
    assert holders.depths([10, 11, 12], [one, two]) == [0, 1]


def test_ten_thousand_that_come_and_go_leave_nothing():
    holders = Holders()
    stays = holders.join()
    holders.hold([1, 2], stays)
    for number in range(10_000):
        bit = holders.join()
        assert bit == 2
        holders.hold([1, 2, number + 10], bit)
        holders.let_go([1, 2, number + 10], bit)
        holders.leave(bit)
    assert len(holders) == 2
    holders.let_go([1, 2], stays)
    holders.leave(stays)
    assert len(holders) == 0
    assert holders.join() == 1
