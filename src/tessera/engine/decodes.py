"""Which sequences generate, how far are they, and what will they need?

All of them go forward one token in each step, so that none has to be touched: what
differs between them is kept relative to the number of steps so far.
"""

from heapq import heapify, heappop, heappush
from typing import Final

from tessera.engine.sequences import Sequence

_MAX_STALE: Final = 64
_Entry = tuple[int, int, Sequence]


def _is_current(entry: _Entry) -> bool:
    """Whether the sequence still decodes as it did then: not if it has left, or was preempted since."""
    return entry[2].is_decoding and entry[2].finish_step == entry[0]


class Decodes:
    """The decoding part of the batch."""

    __slots__ = ("_block_size", "_by_finish", "_num_by_phase", "num_context", "num_sequences", "num_steps")

    def __init__(self, block_size: int) -> None:
        """Nobody decodes."""
        self.num_steps = 0
        """Steps of the engine so far."""
        self.num_sequences = 0
        self.num_context = 0
        """Context tokens that the next step reads, of all."""
        self._block_size = block_size
        self._num_by_phase = [0] * block_size
        """Sequences by ``(tokens computed - steps) mod block size``: who needs a block when."""
        self._by_finish: list[_Entry] = []

    def join(self, sequence: Sequence) -> None:
        """A sequence that has its first token, or again all its tokens, generates from the next step on."""
        sequence.is_decoding = True
        sequence.finish_step = self.num_steps + sequence.num_target - sequence.num_tokens
        self.num_sequences += 1
        self.num_context += sequence.num_tokens
        self._num_by_phase[(sequence.num_computed - self.num_steps) % self._block_size] += 1
        heappush(self._by_finish, (sequence.finish_step, sequence.order, sequence))
        if len(self._by_finish) > 2 * self.num_sequences + _MAX_STALE:
            self._by_finish = [entry for entry in self._by_finish if _is_current(entry)]
            heapify(self._by_finish)

    def leave(self, sequence: Sequence) -> None:
        """It generates no more, for whatever reason; its counts are brought up to date."""
        self.update(sequence)
        sequence.is_decoding = False
        self.num_sequences -= 1
        self.num_context -= sequence.num_tokens
        self._num_by_phase[(sequence.num_computed - self.num_steps) % self._block_size] -= 1

    def update(self, sequence: Sequence) -> None:
        """Bring a decoding sequence's counts up to date."""
        sequence.num_tokens = self.num_tokens(sequence)
        sequence.num_computed = sequence.num_tokens - 1

    def num_tokens(self, sequence: Sequence) -> int:
        """Prompt and output tokens of a decoding sequence."""
        return sequence.num_target - (sequence.finish_step - self.num_steps)

    def advance(self, num_steps: int) -> None:
        """So many steps have ended."""
        self.num_steps += num_steps
        self.num_context += self.num_sequences * num_steps

    def pop_finished(self) -> list[Sequence]:
        """Sequences that have all their tokens, in order of arrival; they have left."""
        finished: list[Sequence] = []
        heap = self._by_finish
        while heap and heap[0][0] <= self.num_steps:
            entry = heappop(heap)
            if _is_current(entry):
                self.leave(entry[2])
                finished.append(entry[2])
        return finished

    def num_steps_to_finish(self) -> int:
        """Steps until the next sequence has all its tokens. There must be one."""
        heap = self._by_finish
        while not _is_current(heap[0]):
            heappop(heap)
        return heap[0][0] - self.num_steps

    def num_new_blocks(self, first: int, num_steps: int) -> int:
        """KV blocks that the steps from the ``first`` coming one on need, 0 being the next."""
        size, num_by_phase = self._block_size, self._num_by_phase
        num_blocks = num_steps // size * self.num_sequences
        start = self.num_steps + first
        for step in range(start, start + num_steps % size):
            num_blocks += num_by_phase[-step % size]
        return num_blocks

    def num_steps_within(self, num_blocks: int, first: int, at_most: int) -> int:
        """How many steps from the ``first`` coming one on so many blocks suffice for, no more than ``at_most``."""
        if self.num_new_blocks(first, at_most) <= num_blocks:
            return at_most
        num_steps = num_blocks // self.num_sequences * self._block_size
        while self.num_new_blocks(first, num_steps + 1) <= num_blocks:
            num_steps += 1
        return num_steps
