import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessera.live.kv_sequence import BatchSequence, Heard


def test_numbers_in_order_are_due():
    sequence = BatchSequence()
    for number in range(3):
        assert sequence.hear(number) is Heard.NEXT
        sequence.applied(number)


def test_a_gap_is_a_gap_until_it_is_filled_or_given_up():
    sequence = BatchSequence()
    assert sequence.hear(2) is Heard.GAP
    for number in range(5):
        sequence.applied(number)
    assert [sequence.hear(number) for number in (3, 4)] == [Heard.KNOWN] * 2
    assert sequence.hear(5) is Heard.NEXT


@pytest.mark.parametrize("number", [0, 3, 7])
def test_a_number_that_was_heard_before_is_a_new_engines(number):
    sequence = BatchSequence()
    sequence.hear(7)
    sequence.applied(7)
    assert sequence.hear(number) is Heard.BACKWARDS
    assert sequence.due == 0


@given(st.lists(st.integers(0, 9)))
def test_a_batch_is_applied_once_an_engine_and_in_order(numbers):
    sequence, applied = BatchSequence(), []
    for number in numbers:
        heard = sequence.hear(number)
        if heard is Heard.BACKWARDS:
            applied = []
        if heard is not Heard.KNOWN:
            sequence.applied(number)
            applied.append(number)
        assert applied == sorted(set(applied))
