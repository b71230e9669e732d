"""What goes into the next step? Decodes first, then prefill chunks, then whoever waits, first come first served."""

from collections import deque
from typing import NamedTuple

from tessera.engine.costs import Costs, num_prefill_pairs
from tessera.engine.decodes import Decodes
from tessera.engine.encoder_cache import EncoderCache
from tessera.engine.kv_cache import KVCache
from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import MediaSegment
from tessera.engine.sequences import Sequence
from tessera.engine.stretch import Stretch


class Ended(NamedTuple):
    """What came out of the steps that have ended."""

    sampled: list[Sequence]
    """Sequences whose prompt, or all that was lost by preemption, is computed: they have one token more."""
    finished: list[Sequence]
    """Sequences that have all their tokens."""


class Scheduler:
    """The batch, the queue before it, and the caches on the GPU.

    Source: vLLM 0.32, ``vllm/v1/core/sched/scheduler.py``. One thing is simpler: decodes
    come first whatever their order, so that none is starved by a chunk of an older prompt.
    """

    def __init__(self, profile: EngineProfile, costs: Costs, *, keeps_kv_log: bool = False) -> None:
        """Nobody waits and nobody runs."""
        self.kv = KVCache(profile.num_blocks, profile.block_size, keeps_log=keeps_kv_log)
        self.encoder = EncoderCache(profile.encoder_cache_embeds)
        self.decodes = Decodes(profile.block_size)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """In order of admission."""
        self.num_preemptions = 0
        self._profile = profile
        self._costs = costs
        self._chunks: list[tuple[Sequence, int]] = []
        """Prefill chunks of the step that runs, in tokens."""
        self._encoded: list[MediaSegment] = []
        """Items that the encoder runs in it."""
        self._num_encode_embeds = 0
        """What is left of its encoder budget."""

    def start(self, at: float) -> Stretch | None:
        """Put a step together that begins at ``at``, and say how often it is repeated; nothing where nobody is left.

        Steps are alike as long as they only decode, nobody finishes and no KV block is
        wanting. Who waits then cannot be admitted before one of these changes.
        """
        self._chunks = []
        self._encoded = []
        self._num_encode_embeds = self._profile.encoder_cache_embeds
        decodes = self.decodes
        num_preemptions = self.num_preemptions
        while self._num_spare_blocks() < 0:
            self._preempt_last()
        budget = self._continue_prefills(self._profile.max_num_batched_tokens - decodes.num_sequences)
        has_preempted = self.num_preemptions > num_preemptions
        if not has_preempted:
            self._admit(budget)
        if not self._chunks and not decodes.num_sequences:
            return None
        self.kv.take(decodes.num_new_blocks(0, 1))
        num_tokens = decodes.num_sequences + sum(num_new for _, num_new in self._chunks)
        num_pairs = sum(num_prefill_pairs(sequence.num_computed, num_new) for sequence, num_new in self._chunks)
        return Stretch(
            start_at=at,
            fixed_s=self._costs.fixed_s(num_tokens, num_pairs, self._costs.encode_s(self._encoded)),
            kv_s=self._costs.kv_s,
            num_decodes=decodes.num_sequences,
            num_context=decodes.num_context,
            num_steps=1 if self._chunks or has_preempted or self._has_prefill() else self._num_like_steps(),
        )

    def end(self, num_steps: int, *, is_first: bool) -> Ended:
        """So many steps of the stretch that runs have ended.

        Args:
            num_steps: 0 or more.
            is_first: whether the stretch's first step is among them: its blocks have been taken.
        """
        if not num_steps:
            return Ended([], [])
        self.kv.take(self.decodes.num_new_blocks(int(is_first), num_steps - is_first))
        self.decodes.advance(num_steps)
        finished = self.decodes.pop_finished()
        sampled: list[Sequence] = []
        for sequence, num_new in self._chunks:
            sequence.num_computed += num_new
            self._release_items(sequence)
            if sequence.num_computed == sequence.num_tokens:
                sequence.num_tokens += 1
                sampled.append(sequence)
                if sequence.num_tokens == sequence.num_target:
                    finished.append(sequence)
                elif not sequence.ticket.is_aborted:
                    self.decodes.join(sequence)
        self._chunks = []
        for sequence in finished:
            self.drop(sequence)
        if self.kv.log is not None:
            self._name_blocks()
        return Ended(sampled, finished)

    def drop(self, sequence: Sequence) -> None:
        """A sequence is over: give back all that it holds. Between steps only, if it runs."""
        if sequence in self.running:
            del self.running[sequence]
            self._free(sequence)
        else:
            self.waiting.remove(sequence)

    def num_used_blocks(self, first: int, num_steps: int) -> int:
        """KV blocks held with those of so many coming steps, from the ``first`` one on."""
        return self.kv.num_used + self.decodes.num_new_blocks(first, num_steps)

    def _num_like_steps(self) -> int:
        decodes = self.decodes
        num_steps = decodes.num_steps_to_finish()
        return 1 + decodes.num_steps_within(self.kv.num_free, 1, num_steps - 1)

    def _has_prefill(self) -> bool:
        return len(self.running) > self.decodes.num_sequences

    def _num_spare_blocks(self) -> int:
        """Free KV blocks without those that the decodes of this step will take."""
        return self.kv.num_free - self.decodes.num_new_blocks(0, 1)

    def _continue_prefills(self, budget: int) -> int:
        """Chunks of prompts that are under way; what is left of the budget."""
        if not self._has_prefill():
            return budget
        for sequence in [each for each in self.running if not each.is_decoding]:
            num_new = min(sequence.num_tokens - sequence.num_computed, budget)
            if num_new <= 0 or sequence not in self.running:
                continue
            if self._make_room_for(sequence, num_new):
                num_new = self._encode(sequence, num_new)
                self._add_chunk(sequence, num_new)
                budget -= num_new
        return budget

    def _make_room_for(self, sequence: Sequence, num_new: int) -> bool:
        """Preempt from the end until the chunk fits; false where that reached the sequence itself."""
        num_blocks = self.kv.blocks_for(sequence.num_computed + num_new) - sequence.holding.num_blocks
        while num_blocks > self._num_spare_blocks():
            if self._preempt_last() is sequence:
                return False
        return True

    def _admit(self, budget: int) -> None:
        while self.waiting and budget > 0 and len(self.running) < self._profile.max_num_seqs:
            sequence = self.waiting[0]
            match = self.kv.match(sequence.holding.chain, sequence.num_tokens)
            if not self.kv.fits(sequence.num_tokens, match, self._num_spare_blocks()):
                break
            sequence.num_computed = match.num_blocks * self._profile.block_size
            num_new = self._encode(sequence, min(sequence.num_tokens - sequence.num_computed, budget))
            if not num_new:
                sequence.num_computed = sequence.next_span = 0
                break
            self.waiting.popleft()
            self.running[sequence] = None
            self.kv.hold(sequence.holding, match)
            self._add_chunk(sequence, num_new)
            budget -= num_new
            self._count_admission(sequence)

    def _count_admission(self, sequence: Sequence) -> None:
        """Enter the prefix lookup of a sequence's first admission; what preemption makes it look up again is not."""
        if sequence.was_admitted:
            return
        sequence.was_admitted = True
        self.kv.count(sequence.num_tokens, sequence.num_computed)
        if sequence.ticket.num_cached_tokens is None:
            sequence.ticket.num_cached_tokens = sequence.num_computed

    def _add_chunk(self, sequence: Sequence, num_new: int) -> None:
        if num_new:
            self.kv.grow(sequence.holding, sequence.num_computed + num_new)
            self._chunks.append((sequence, num_new))

    def _encode(self, sequence: Sequence, num_new: int) -> int:
        """Have the items ready that a chunk touches; how much of the chunk can go ahead."""
        start = sequence.num_computed
        end = start + num_new
        for span in sequence.spans[sequence.next_span :]:
            if span.start >= end:
                break
            if span.end <= start:
                sequence.next_span += 1
            elif not self._have_item(sequence, span.item):
                return max(0, span.start - start)
        return num_new

    def _have_item(self, sequence: Sequence, item: MediaSegment) -> bool:
        if not self.encoder.hold(item.identifier, sequence):
            if item.num_embeds > self._num_encode_embeds or not self.encoder.fits(item.num_embeds):
                return False
            self.encoder.store(item.identifier, item.num_embeds, sequence)
            self._num_encode_embeds -= item.num_embeds
            self._encoded.append(item)
        sequence.held_items.add(item.identifier)
        return True

    def _release_items(self, sequence: Sequence) -> None:
        for span in sequence.spans[sequence.next_span :]:
            if span.end > sequence.num_computed:
                break
            self.encoder.release(span.item.identifier, sequence)
            sequence.held_items.discard(span.item.identifier)
            sequence.next_span += 1

    def _preempt_last(self) -> Sequence:
        """Send the sequence that was admitted last back to the head of the queue; all of it is computed again."""
        sequence, _ = self.running.popitem()
        self._free(sequence)
        self.waiting.appendleft(sequence)
        self.num_preemptions += 1
        return sequence

    def _free(self, sequence: Sequence) -> None:
        if sequence.is_decoding:
            self.decodes.leave(sequence)
        for identifier in sequence.held_items:
            self.encoder.release(identifier, sequence)
        sequence.held_items.clear()
        self.kv.release(sequence.holding, sequence.num_computed)
        sequence.num_computed = 0
        sequence.next_span = 0

    def _name_blocks(self) -> None:
        """For the log: blocks that decoding has filled get their names at once, not only when they are let go."""
        for sequence in self.running:
            num_computed = self.decodes.num_tokens(sequence) - 1
            if sequence.is_decoding and num_computed % self.kv.block_size == 0:
                self.kv.name(sequence.holding, num_computed)
