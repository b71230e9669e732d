"""What decoding sequences need, against counting each of them."""

from hypothesis import given
from hypothesis import strategies as st

from tessera.engine.decodes import Decodes
from tessera.engine.requests import EngineRequest, TextSegment
from tessera.engine.sequences import Sequence, Ticket

SIZE = 4


def sequence(order: int, num_prompt: int, num_output: int) -> Sequence:
    """One that has its first token."""
    ticket = Ticket(EngineRequest(f"r{order}", (TextSegment(order, num_prompt),), num_output))
    made = ticket.start(order, SIZE)[0]
    made.num_computed = num_prompt
    made.num_tokens = num_prompt + 1
    return made


def test_one_sequence() -> None:
    decodes = Decodes(SIZE)
    one = sequence(0, num_prompt=6, num_output=5)
    decodes.join(one)
    assert (decodes.num_sequences, decodes.num_context) == (1, 7)
    # Tokens 7 and 8 lie in the second block, token 9 in a third.
    assert [decodes.num_new_blocks(0, steps) for steps in range(5)] == [0, 0, 0, 1, 1]
    assert [decodes.num_new_blocks(step, 1) for step in range(4)] == [0, 0, 1, 0]
    assert decodes.num_steps_to_finish() == 4
    decodes.advance(3)
    assert (decodes.num_tokens(one), decodes.num_context) == (10, 10)
    assert decodes.pop_finished() == []
    decodes.advance(1)
    assert decodes.pop_finished() == [one]
    assert (one.num_tokens, one.num_computed) == (11, 10)
    assert (decodes.num_sequences, decodes.num_context) == (0, 0)


def test_those_who_finish_at_once_come_in_order_of_arrival() -> None:
    decodes = Decodes(SIZE)
    late, soon = sequence(1, 3, 4), sequence(0, 5, 4)
    decodes.join(late)
    decodes.join(soon)
    decodes.advance(3)
    assert decodes.pop_finished() == [soon, late]


def test_one_that_left_and_came_back_finishes_once() -> None:
    decodes = Decodes(SIZE)
    one = sequence(0, 3, 4)
    decodes.join(one)
    decodes.advance(1)
    decodes.leave(one)
    assert (one.num_tokens, one.num_computed, decodes.num_context) == (5, 4, 0)
    decodes.advance(5)
    one.num_tokens += 1
    one.num_computed = 5
    decodes.join(one)
    assert decodes.num_steps_to_finish() == 1
    decodes.advance(1)
    assert decodes.pop_finished() == [one]
    decodes.advance(9)
    assert decodes.pop_finished() == []


def test_memory_does_not_grow_with_those_who_left() -> None:
    decodes = Decodes(SIZE)
    for order in range(1000):
        one = sequence(order, 3, 1_000_000)
        decodes.join(one)
        decodes.leave(one)
    assert len(decodes._by_finish) <= 66


@given(
    sizes=st.lists(st.tuples(st.integers(1, 20), st.integers(40, 60)), min_size=1, max_size=8),
    before=st.integers(0, 20),
    first=st.integers(0, 9),
    num_steps=st.integers(0, 30),
    num_blocks=st.integers(0, 40),
)
def test_blocks_as_if_counted_one_by_one(
    sizes: list[tuple[int, int]], before: int, first: int, num_steps: int, num_blocks: int
) -> None:
    decodes = Decodes(SIZE)
    decodes.advance(3)
    sequences = [sequence(order, *size) for order, size in enumerate(sizes)]
    for each in sequences:
        decodes.join(each)
    decodes.advance(before)
    held = [decodes.num_tokens(each) - 1 for each in sequences]

    def needed(steps: int) -> int:
        return sum(-(-(tokens + first + steps) // SIZE) - -(-(tokens + first) // SIZE) for tokens in held)

    assert decodes.num_context == sum(held) + len(held)
    assert decodes.num_new_blocks(first, num_steps) == needed(num_steps)
    within = decodes.num_steps_within(num_blocks, first, num_steps)
    assert needed(within) <= num_blocks
    assert within == num_steps or needed(within + 1) > num_blocks
