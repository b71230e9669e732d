"""How long does an emulated server take, and who waits for whom?

One accelerator: prompts are computed one after the other (encoder and prefill
both), answers advance side by side and slow each other down. Everything here is
told the time and never asks for it.
"""

import heapq
import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTime:
    """A few constants instead of an engine: seconds for prompts, pictures and tokens.

    Source of the decode, encode and overhead figures: a fit to llm-d's published
    multimodal benchmark of Qwen3-VL-32B on two H200 (a 720p picture encodes in 13 ms,
    a 1080p picture in 44 ms).
    """

    prefill_tokens_per_s: float = 15_928.0
    """Prompt tokens computed in a second. Source: llm-d's default peak prefill throughput."""
    encode_s_per_embed: float = 20e-6
    """Encoder time for each embedding."""
    decode_step_s: float = 0.0174
    """Time between two tokens of a lone answer."""
    decode_step_s_per_running: float = 0.0005
    """What each further running request adds to that: reading its KV cache and sending its token."""
    overhead_s: float = 0.027
    """HTTP, tokenising and handing over; requests do not wait for each other here."""
    max_running: int = 256
    """Requests that run at once, the others wait in order of arrival. Source: vLLM's ``--max-num-seqs`` default."""
    speed: float = 1.0
    """Divides every time above: 10 is a server ten times as fast."""

    def prompt_s(self, num_tokens: int, num_embeds: int) -> float:
        """Seconds that the accelerator spends on a prompt.

        >>> ServiceTime(prefill_tokens_per_s=1000, encode_s_per_embed=0.001, speed=2).prompt_s(900, 100)
        0.5
        """
        return (num_tokens / self.prefill_tokens_per_s + num_embeds * self.encode_s_per_embed) / self.speed

    def step_s(self, num_running: int) -> float:
        """Seconds from one token to the next while ``num_running`` requests run."""
        return (self.decode_step_s + max(0, num_running - 1) * self.decode_step_s_per_running) / self.speed


@dataclass(slots=True, eq=False, kw_only=True)
class Work:
    """One engine request: one prompt and one choice of an answer."""

    num_prompt_tokens: int
    num_embeds: int
    """Encoder rows to compute; 0 for what an earlier choice of the same request has encoded."""
    num_output_tokens: int
    finish_reason: str = "length"
    arrived_at: float = 0.0
    started_at: float = 0.0
    last_token_at: float = 0.0
    num_produced: int = 0
    """Answer tokens so far."""

    @property
    def is_finished(self) -> bool:
        """Whether the last token is there."""
        return self.num_produced >= self.num_output_tokens


class Token(NamedTuple):
    """A work got its next token."""

    work: Work
    position: int
    """In the answer, from 0."""
    at: float
    gap_s: float
    """Since the token before, or since arrival for the first."""

    @property
    def is_last(self) -> bool:
        """Whether the answer ends with it."""
        return self.position + 1 == self.work.num_output_tokens


MAX_TOKENS_PER_ADVANCE = 4096
"""What one call of ``advance`` returns at most; call again for the rest."""


@dataclass(slots=True)
class Service:
    """The accelerator and its queue, in seconds on the caller's clock.

    Holds a work from ``submit`` until its last token or ``abort``. A prompt is admitted
    when its tokens fit in the KV cache, or when nothing else runs. Answers that outgrow
    the cache are not preempted; the usage then stays at 1.
    """

    time: ServiceTime
    num_blocks: int
    block_size: int
    waiting: deque[Work] = field(default_factory=deque)
    running: set[Work] = field(default_factory=set)
    _prefilling: Work | None = None
    _prefilled_at: float = 0.0
    _next_tokens: list[tuple[float, int, Work]] = field(default_factory=list)
    _num_scheduled: int = 0
    """Breaks ties in the heap by order of scheduling."""

    def submit(self, work: Work, at: float) -> None:
        """Queue a work that arrived at ``at``; times must not go backwards from call to call."""
        work.arrived_at = at
        self.waiting.append(work)
        self._admit(at)

    def abort(self, work: Work, at: float) -> None:
        """Drop a work wherever it is; one that has finished is ignored."""
        if work in self.running:
            self.running.remove(work)
            if work is self._prefilling:
                self._prefilling = None
            self._next_tokens = [entry for entry in self._next_tokens if entry[2] is not work]
            heapq.heapify(self._next_tokens)
        elif work in self.waiting:
            self.waiting.remove(work)
        self._admit(at)

    def next_at(self) -> float | None:
        """When the next token comes; nothing while there is no work."""
        prefilled_at = self._prefilled_at if self._prefilling else math.inf
        decoded_at = self._next_tokens[0][0] if self._next_tokens else math.inf
        soonest = min(prefilled_at, decoded_at)
        return soonest if soonest < math.inf else None

    def advance(self, at: float) -> list[Token]:
        """The tokens that came until ``at``, in the order of their times; at most 4,096 a call."""
        tokens: list[Token] = []
        while len(tokens) < MAX_TOKENS_PER_ADVANCE:
            due_at = self.next_at()
            if due_at is None or due_at > at:
                break
            tokens.append(self._produce(due_at))
        return tokens

    @property
    def kv_usage_fraction(self) -> float:
        """Share of the KV blocks that running works fill, 0..1."""
        return min(1.0, self._num_used_blocks() / self.num_blocks)

    def _produce(self, at: float) -> Token:
        if self._prefilling and self._prefilled_at == at:
            work, self._prefilling = self._prefilling, None
            gap_s = at - work.arrived_at
        else:
            work = heapq.heappop(self._next_tokens)[2]
            gap_s = at - work.last_token_at
        work.last_token_at = at
        work.num_produced += 1
        if work.is_finished:
            self.running.remove(work)
        self._admit(at)
        if not work.is_finished:
            self._num_scheduled += 1
            next_at = at + self.time.step_s(len(self.running))
            heapq.heappush(self._next_tokens, (next_at, self._num_scheduled, work))
        return Token(work, work.num_produced - 1, at, gap_s)

    def _admit(self, at: float) -> None:
        """Give the accelerator to the head of the queue, if both are free for each other."""
        if self._prefilling or not self.waiting or len(self.running) >= self.time.max_running:
            return
        head = self.waiting[0]
        if self.running and self._num_used_blocks() + self._num_blocks_of(head) > self.num_blocks:
            return
        self.waiting.popleft()
        self.running.add(head)
        head.started_at = max(at, head.arrived_at + self.time.overhead_s / self.time.speed)
        self._prefilling = head
        self._prefilled_at = head.started_at + self.time.prompt_s(head.num_prompt_tokens, head.num_embeds)

    def _num_used_blocks(self) -> int:
        return sum(self._num_blocks_of(work) for work in self.running)

    def _num_blocks_of(self, work: Work) -> int:
        return -(-(work.num_prompt_tokens + work.num_produced) // self.block_size)
