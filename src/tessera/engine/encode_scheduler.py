"""What goes into the next step of a server that only encodes? Pictures of whoever came first, within two budgets."""

from collections import deque

from tessera.engine.costs import Costs
from tessera.engine.decodes import Decodes
from tessera.engine.encoding import LOST, Encoding
from tessera.engine.events import CacheCounters
from tessera.engine.kv_cache import KVCache
from tessera.engine.profiles import EngineProfile
from tessera.engine.scheduler import Ended
from tessera.engine.sequences import Sequence
from tessera.engine.stretch import Stretch


class EncodeScheduler:
    """The batch and the queue before it, without KV and without answers.

    Prompts are gone through in chunks as in the whole engine, so that a step has at most
    ``max_num_batched_tokens`` tokens and the encoder cache's size in embeddings; the text
    between the pictures costs nothing. A request is over when its prompt is through.
    Source: vLLM 0.32, the model runner of ``ec_producer``.
    """

    def __init__(self, profile: EngineProfile, costs: Costs) -> None:
        """Nobody waits and nobody runs."""
        self.encoding = Encoding(profile.encoder_cache_embeds)
        self.waiting: deque[Sequence] = deque()
        self.running: dict[Sequence, None] = {}
        """In order of admission."""
        self.lost: list[Sequence] = []
        """As ``Scheduler.lost``."""
        self.num_preemptions = 0
        # What the whole engine has and this one never fills.
        self.kv = KVCache(1, profile.block_size)
        self.decodes = Decodes(profile.block_size)
        self.pulling: dict[Sequence, None] = {}
        self.arrived: deque[Sequence] = deque()
        self.pulls: list[tuple[Sequence, int]] = []
        self.leased: dict[str, Sequence] = {}
        self.external_counters = CacheCounters(0, 0)
        self._profile = profile
        self._costs = costs
        self._chunks: list[tuple[Sequence, int]] = []

    def start(self, at: float) -> Stretch | None:
        """Put a step together that begins at ``at``; nothing where nobody is left."""
        self._chunks = []
        self.encoding.begin()
        budget = self._profile.max_num_batched_tokens
        for sequence in list(self.running):
            budget -= self._add_chunk(sequence, budget)
        while self.waiting and budget > 0 and len(self.running) < self._profile.max_num_seqs:
            sequence = self.waiting.popleft()
            self.running[sequence] = None
            num_new = self._add_chunk(sequence, budget)
            budget -= num_new
            if not num_new and sequence in self.running:
                break
        if not self._chunks:
            return None
        return Stretch(
            start_at=at,
            fixed_s=self._costs.encode_step_s(self.encoding.items),
            kv_s=0.0,
            num_decodes=0,
            num_context=0,
            num_steps=1,
        )

    def end(self, num_steps: int, *, is_first: bool) -> Ended:
        """The step has ended, where ``num_steps`` is 1."""
        assert num_steps <= 1, "each step is looked at"
        finished: list[Sequence] = []
        for sequence, num_new in self._chunks if num_steps else ():
            sequence.num_computed += num_new
            self.encoding.release_passed(sequence)
            if sequence.num_computed == sequence.num_tokens:
                finished.append(sequence)
        for sequence in finished:
            self.drop(sequence)
        return Ended([], finished)

    def drop(self, sequence: Sequence) -> None:
        """A sequence is over: give back all that it holds. Between steps only, if it runs."""
        if sequence in self.running:
            del self.running[sequence]
        else:
            self.waiting.remove(sequence)
        self.encoding.release_all(sequence)

    def num_used_blocks(self, first: int, num_steps: int) -> int:
        """None, ever."""
        return 0

    def pulled(self, sequence: Sequence) -> None:
        """Nobody pulls KV here."""
        raise AssertionError("a server that only encodes has no KV")

    def release_lease(self, request_id: str) -> bool:
        """There is no KV to keep."""
        return False

    def _add_chunk(self, sequence: Sequence, budget: int) -> int:
        """Tokens of the sequence that go into the step, 0 where an item has no room yet or it is lost."""
        num_new = self.encoding.reach(sequence, min(sequence.num_tokens - sequence.num_computed, budget))
        if num_new == LOST:
            self.drop(sequence)
            self.lost.append(sequence)
            return 0
        if num_new:
            self._chunks.append((sequence, num_new))
        return num_new
