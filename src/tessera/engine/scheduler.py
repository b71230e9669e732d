"""What goes into the next step? Decodes first, then prefill chunks, then whoever waits, first come first served."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tessera.engine.costs import Costs, num_prefill_pairs
from tessera.engine.decodes import Decodes
from tessera.engine.encoding import LOST, Encoding
from tessera.engine.events import CacheCounters
from tessera.engine.kv_cache import KVCache, Match
from tessera.engine.profiles import EngineProfile
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
        self.encoding = Encoding(profile.encoder_cache_embeds)
        self.decodes = Decodes(profile.block_size)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """In order of admission."""
        self.pulling: dict[Sequence, None] = {}
        """Sequences that hold blocks for KV which a peer sends."""
        self.arrived: deque[Sequence] = deque()
        """Those whose KV has come. They are admitted before all who wait: behind one that has no room they would keep
        their blocks for ever."""
        self.pulls: list[tuple[Sequence, int]] = []
        """Those of the step that was put together last, with the tokens to pull; whoever asks for them takes them."""
        self.lost: list[Sequence] = []
        """Sequences that it gave up because an item of theirs can be had nowhere; to be taken likewise."""
        self.leased: dict[str, Sequence] = {}
        """Finished sequences whose prompt's blocks are kept for a peer, by request."""
        self._num_external_queried = 0
        self._num_pulled = 0
        self.num_preemptions = 0
        self._profile = profile
        self._costs = costs
        self._chunks: list[tuple[Sequence, int]] = []
        """Prefill chunks of the step that runs, in tokens."""

    @property
    def external_counters(self) -> CacheCounters:
        """In tokens: what the own cache lacked of prompts whose KV a peer kept, and what was pulled of it."""
        return CacheCounters(self._num_external_queried, self._num_pulled)

    def start(self, at: float) -> Stretch | None:
        """Put a step together that begins at ``at``, and say how often it is repeated; nothing where nobody is left.

        Steps are alike as long as they only decode, nobody finishes and no KV block is
        wanting. Who waits then cannot be admitted before one of these changes.
        """
        self._chunks = []
        self.encoding.begin()
        decodes = self.decodes
        num_preemptions = self.num_preemptions
        while self._num_spare_blocks() < 0:
            self._preempt_last()
        budget = self._continue_prefills(self._profile.max_num_batched_tokens - decodes.num_sequences)
        has_preempted = self.num_preemptions > num_preemptions
        if not has_preempted or not self.running:
            self._admit(budget)
        if not self._chunks and not decodes.num_sequences:
            return None
        self.kv.take(decodes.num_new_blocks(0, 1))
        num_tokens = decodes.num_sequences + sum(num_new for _, num_new in self._chunks)
        num_pairs = sum(num_prefill_pairs(sequence.num_computed, num_new) for sequence, num_new in self._chunks)
        return Stretch(
            start_at=at,
            fixed_s=self._costs.fixed_s(num_tokens, num_pairs, self._costs.encode_s(self.encoding.items)),
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
            self.encoding.release_passed(sequence)
            if sequence.num_computed == sequence.num_tokens:
                sequence.num_tokens += 1
                sampled.append(sequence)
                if sequence.num_tokens == sequence.num_target:
                    finished.append(sequence)
                elif not sequence.ticket.is_aborted:
                    self.decodes.join(sequence)
        self._chunks = []
        for sequence in finished:
            if self._is_leased(sequence):
                self._lease(sequence)
            else:
                self.drop(sequence)
        if self.kv.log is not None:
            self._name_blocks()
        return Ended(sampled, finished)

    def drop(self, sequence: Sequence) -> None:
        """A sequence is over: give back all that it holds. Between steps only, if it runs."""
        if sequence in self.running:
            del self.running[sequence]
            self._free(sequence)
            return
        if sequence in self.pulling:
            del self.pulling[sequence]
        elif sequence in self.arrived:
            self.arrived.remove(sequence)
        else:
            self.waiting.remove(sequence)
        # What was made ready for it before an item turned out to be lost.
        self.encoding.release_all(sequence)
        if sequence.holding.num_blocks:
            self.kv.release_reserved(sequence.holding, sequence.num_computed)

    def pulled(self, sequence: Sequence) -> None:
        """All KV that a peer kept for a sequence has come."""
        del self.pulling[sequence]
        sequence.num_computed = sequence.num_remote
        sequence.num_remote = 0
        self.arrived.append(sequence)

    def release_lease(self, request_id: str) -> bool:
        """Let go of the blocks that are kept for a peer; false where none are."""
        sequence = self.leased.pop(request_id, None)
        if sequence is None:
            return False
        self.kv.release(sequence.holding, sequence.num_computed)
        return True

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
                num_new = self.encoding.reach(sequence, num_new)
                if num_new == LOST:
                    self.drop(sequence)
                    self.lost.append(sequence)
                    continue
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
        for queue, reach in ((self.arrived, self._reach), (self.waiting, self._take_blocks)):
            budget = self._admit_from(queue, reach, budget)

    def _admit_from(self, queue: deque[Sequence], reach: Callable[[Sequence, int], int | None], budget: int) -> int:
        """Admit who is first until one cannot go ahead; what is left of the budget.

        ``reach`` says how many tokens the first can compute, or nothing where it has left the queue instead.
        """
        while queue and budget > 0 and len(self.running) < self._profile.max_num_seqs:
            sequence = queue[0]
            num_new = reach(sequence, budget)
            if num_new is None:
                continue
            if not num_new:
                break
            queue.popleft()
            self.running[sequence] = None
            self._add_chunk(sequence, num_new)
            budget -= num_new
        return budget

    def _take_blocks(self, sequence: Sequence, budget: int) -> int | None:
        """Tokens that the head of the queue can compute now; nothing where it has left the queue instead."""
        match = self.kv.match(sequence.holding.chain, sequence.num_tokens)
        if not self.kv.fits(sequence.num_tokens, match, self._num_spare_blocks()):
            return 0
        sequence.num_computed = match.num_blocks * self._profile.block_size
        if sequence.num_remote > sequence.num_computed:
            self._pull(sequence, match)
            return None
        num_new = self._reach(sequence, budget)
        if num_new:
            self.kv.hold(sequence.holding, match)
            self._count_admission(sequence)
        else:
            sequence.num_computed = sequence.next_span = 0
        return num_new

    def _reach(self, sequence: Sequence, budget: int) -> int | None:
        num_new = self.encoding.reach(sequence, min(sequence.num_tokens - sequence.num_computed, budget))
        if num_new != LOST:
            return num_new
        self.drop(sequence)
        self.lost.append(sequence)
        return None

    def _pull(self, sequence: Sequence, match: Match) -> None:
        """Hold blocks for the whole prompt, and ask for the KV that the own cache lacks."""
        self.waiting.popleft()
        self.kv.hold(sequence.holding, match)
        self.kv.reserve(sequence.holding, sequence.num_tokens)
        num_pulled = sequence.num_remote - sequence.num_computed
        self._num_external_queried += sequence.num_tokens - sequence.num_computed
        self._num_pulled += num_pulled
        sequence.num_pulled = num_pulled
        self._count_admission(sequence)
        self.pulling[sequence] = None
        self.pulls.append((sequence, num_pulled))

    def _is_leased(self, sequence: Sequence) -> bool:
        ticket = sequence.ticket
        asks = ticket.request.handover.kv_lease_s is not None and not ticket.is_aborted
        return asks and sequence is ticket.sequences[0]

    def _lease(self, sequence: Sequence) -> None:
        """It has its answer; the blocks of its prompt stay for a peer."""
        del self.running[sequence]
        if sequence.is_decoding:
            self.decodes.leave(sequence)
        self.encoding.release_all(sequence)
        self.leased[sequence.ticket.request.request_id] = sequence

    def _count_admission(self, sequence: Sequence) -> None:
        """Enter the prefix lookup of a sequence's first admission; what preemption makes it look up again is not."""
        if sequence.num_cached is not None:
            return
        sequence.num_cached = sequence.num_computed
        self.kv.count(sequence.num_tokens, sequence.num_computed)

    def _add_chunk(self, sequence: Sequence, num_new: int) -> None:
        if num_new:
            self.kv.grow(sequence.holding, sequence.num_computed + num_new)
            self._chunks.append((sequence, num_new))

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
        self.encoding.release_all(sequence)
        self.kv.release(sequence.holding, sequence.num_computed)
        sequence.num_computed = 0
        sequence.next_span = 0

    def _name_blocks(self) -> None:
        """For the log: blocks that decoding has filled get their names at once, not only when they are let go."""
        for sequence in self.running:
            num_computed = self.decodes.num_tokens(sequence) - 1
            if sequence.is_decoding and num_computed % self.kv.block_size == 0:
                self.kv.name(sequence.holding, num_computed)
