"""What does one vLLM-like server do with its requests, and when?"""

from math import inf

from tessera.engine.costs import Costs
from tessera.engine.encode_scheduler import EncodeScheduler
from tessera.engine.events import (
    CacheCleared,
    EngineEvent,
    EngineFacts,
    FailureReason,
    KVPulled,
)
from tessera.engine.fetches import Fetches
from tessera.engine.front_end import FrontEnd, StreamingRate
from tessera.engine.leases import Leases
from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import EngineRequest
from tessera.engine.roles import Role
from tessera.engine.scheduler import Scheduler
from tessera.engine.sequences import Sequence, Ticket
from tessera.engine.stretch import Stretch
from tessera.engine.told import Told
from tessera.engine.transfers import Transfers


class Engine:
    """One server, told the time.

    Instants are float seconds on the driver's clock and never go back: each call's
    ``at`` is at least that of the call before. Nothing happens between calls:

    >>> from tessera.engine.profiles import PROFILES
    >>> from tessera.engine.requests import TextSegment
    >>> engine = Engine(PROFILES["h200-tp2-qwen3-vl-32b"])
    >>> engine.submit(EngineRequest("r", (TextSegment(key=1, num_tokens=100),), num_output_tokens=3), at=10.0)
    >>> while (at := engine.next_at) is not None:
    ...     for event in engine.advance(at):
    ...         print(type(event).__name__, round(event.at, 3))
    FirstToken 10.049
    Finished 10.084

    How finely a driver advances changes nothing: the same submissions and aborts give
    the same events at the same instants. Memory is that of the caches and of the requests
    that the driver has submitted and that have not ended; their number is the driver's to limit.
    """

    def __init__(self, profile: EngineProfile, *, tells_kv_events: bool = False) -> None:
        """An empty server.

        Args:
            profile: hardware, model, settings and role.
            tells_kv_events: whether ``advance`` also returns each ``KVEvent``.
        """
        costs = Costs(profile)
        self.profile = profile
        self._front_end = FrontEnd(profile, costs)
        self._streaming = StreamingRate()
        self._costs = costs
        self._is_encode_only = profile.role is Role.ENCODE
        self._scheduler: Scheduler | EncodeScheduler = (
            EncodeScheduler(profile, costs)
            if self._is_encode_only
            else Scheduler(profile, costs, keeps_kv_log=tells_kv_events)
        )
        self._transfers = Transfers(profile.network)
        self._fetches = Fetches(costs, profile.embedding_store_bytes)
        self._leases = Leases()
        self._tickets: dict[str, Ticket] = {}
        self._aborted: list[Sequence] = []
        """In the step that runs; they go when it ends."""
        self._stretch: Stretch | None = None
        """The steps that run."""
        self._num_ended = 0
        """Steps of it that are accounted for."""
        self._told = Told()
        self._step_at = inf
        """When the steps that run are looked at next."""
        self._num_sequences = 0
        self._num_generation_tokens = 0

    def submit(self, request: EngineRequest, at: float) -> None:
        """The request's bytes have arrived at the API server.

        Raises:
            ValueError: the engine still has a request of this id.
        """
        if request.request_id in self._tickets or self._leases.end_of(request.request_id) is not None:
            raise ValueError(f"request {request.request_id} is still here; give each request an id of its own")
        ticket = self._tickets[request.request_id] = Ticket(request)
        self._front_end.push(ticket, at)

    def abort(self, request_id: str, at: float) -> None:
        """The client has gone: no event after ``at`` names the request. One that is unknown or over is ignored."""
        self._run(at)
        ticket = self._tickets.pop(request_id, None)
        if ticket is None:
            return
        ticket.is_aborted = True
        self._leave(ticket, at)

    @property
    def next_at(self) -> float | None:
        """When something happens next, if nothing is submitted or aborted; nothing where the engine is idle.

        It need not be an event that a driver sees.
        """
        if self._told.events:
            return self._told.events[0].at
        at = min(self._front_end.next_at, self._transfers.next_at, self._leases.next_at, self._step_at)
        return None if at == inf else at

    def advance(self, at: float) -> list[EngineEvent]:
        """All that happens up to and including ``at`` and was not told yet, in order."""
        self._run(at)
        return self._told.take()

    def facts(self, at: float) -> EngineFacts:
        """The state at ``at``. What happened until then is told by the next ``advance``."""
        self._run(at)
        scheduler = self._scheduler
        num_steps = self._num_steps_unaccounted(at)
        num_decoded = num_steps * scheduler.decodes.num_sequences
        return EngineFacts(
            num_waiting=len(scheduler.waiting) + len(scheduler.arrived) + self._num_deferred,
            num_running=len(scheduler.running),
            kv_usage_fraction=self._num_used_blocks(num_steps) / self.profile.num_blocks,
            num_blocks=self.profile.num_blocks,
            block_size=self.profile.block_size,
            num_first_tokens=self._told.num_first_tokens,
            prefix_cache=scheduler.kv.counters,
            processor_cache=self._front_end.cache.counters,
            encoder_cache=scheduler.encoding.cache.counters,
            num_preemptions=scheduler.num_preemptions,
            num_prompt_tokens=self._told.num_prompt_tokens,
            num_generation_tokens=self._num_generation_tokens + num_decoded,
            num_deferred=self._num_deferred,
            external_prefix_cache=scheduler.external_counters,
            num_cached_prompt_tokens=self._told.num_cached_tokens,
            num_pulled_prompt_tokens=self._told.num_pulled_tokens,
            num_transferred_bytes=self._transfers.num_bytes,
        )

    def stored_embeddings_bytes(self, identifier: str, at: float) -> int | None:
        """What an item's embeddings take in host memory, for peers or from them; nothing where it has none."""
        self._run(at)
        return self._fetches.store.bytes_of(identifier)

    def renew_lease(self, request_id: str, ends_at: float, at: float) -> int:
        """Keep a finished request's KV until then, since a peer is about to pull it; its tokens, 0 where it is gone."""
        self._run(at)
        if self._leases.end_of(request_id) is None:
            return 0
        self._leases.add(request_id, ends_at)
        return self._scheduler.leased[request_id].num_computed

    def release_kv(self, request_id: str, at: float) -> bool:
        """The peer has pulled a finished request's KV; false where it is not kept any more."""
        self._run(at)
        self._leases.remove(request_id)
        is_released = self._scheduler.release_lease(request_id)
        if is_released:
            self._look_again(at)
        return is_released

    def num_generated(self, request_id: str, at: float) -> list[int]:
        """Output tokens of each of a request's choices until ``at``.

        Empty where the request is unknown, not yet through the front end, or over.
        """
        self._run(at)
        ticket = self._tickets.get(request_id)
        if ticket is None:
            return []
        num_ended = self._num_steps_unaccounted(at)
        decodes = self._scheduler.decodes
        return [
            (decodes.num_tokens(each) + num_ended if each.is_decoding else each.num_tokens) - each.num_prompt_tokens
            for each in ticket.sequences
        ]

    def step_ends_at(self, at: float) -> float | None:
        """When the step that runs at ``at`` ends, one that ends at ``at`` being over; nothing where none runs.

        Further tokens come then: whoever streams them looks again.
        """
        self._run(at)
        stretch = self._stretch
        return None if stretch is None else stretch.end_at(min(stretch.num_ended(at) + 1, stretch.num_steps))

    def reset_prefix_cache(self, at: float) -> bool:
        """Forget all KV content; refused, with false, while a sequence runs (``POST /reset_prefix_cache``)."""
        self._run(at)
        is_cleared = self._scheduler.kv.clear()
        if is_cleared and self._scheduler.kv.log is not None:
            self._told.events.append(CacheCleared(at))
        return is_cleared

    def reset_encoder_cache(self, at: float) -> None:
        """Forget the embeddings that no sequence needs (``POST /reset_encoder_cache``)."""
        self._run(at)
        self._scheduler.encoding.cache.clear()

    def reset_processor_cache(self, at: float) -> None:
        """Forget all processed items (``POST /reset_mm_cache``)."""
        self._run(at)
        self._front_end.cache.clear()

    def _run(self, at: float) -> None:
        while True:
            job_at, step_at = self._front_end.next_at, self._step_at
            read_at, lease_at = self._transfers.next_at, self._leases.next_at
            due_at = min(job_at, step_at, read_at, lease_at)
            if due_at > at or due_at == inf:
                return
            # What comes at the very end of a step is in time for the next one.
            if read_at == due_at:
                self._end_read(read_at)
            elif lease_at == due_at:
                self._scheduler.release_lease(self._leases.pop())
                self._look_again(lease_at)
            elif job_at == due_at:
                self._end_job(job_at)
            else:
                self._end_steps(step_at)

    @property
    def _num_deferred(self) -> int:
        return self._fetches.num_sequences + len(self._scheduler.pulling)

    def _leave(self, ticket: Ticket, at: float) -> None:
        """Drop all that the scheduler has of a request; what runs in a step goes when it ends."""
        ticket.is_aborted = True
        if self._fetches.leave(ticket):
            return
        scheduler = self._scheduler
        for sequence in ticket.sequences:
            if sequence in scheduler.running:
                self._aborted.append(sequence)
            elif sequence in scheduler.pulling or sequence in scheduler.arrived or sequence in scheduler.waiting:
                scheduler.drop(sequence)
        if ticket.sequences:
            self._cut(at)

    def _end_read(self, at: float) -> None:
        """Embeddings or KV have come from elsewhere."""
        arrived = self._transfers.pop()
        if isinstance(arrived, Ticket):
            if self._fetches.end(arrived):
                self._enter(arrived, at)
        elif arrived in self._scheduler.pulling:
            self._scheduler.pulled(arrived)
            self._told.events.append(KVPulled(arrived.ticket.request.request_id, at))
            self._look_again(at)

    def _end_job(self, at: float) -> None:
        ticket = self._front_end.turn(self._tokens_per_s(at))
        if ticket is None or ticket.is_aborted:
            return
        reason = self._refusal(ticket)
        if reason:
            del self._tickets[ticket.request.request_id]
            self._told.failed(ticket, at, reason)
            return
        ticket.start(self._num_sequences, self.profile.block_size)
        self._num_sequences += ticket.request.num_choices
        num_bytes = self._begin_fetch(ticket)
        if num_bytes:
            self._transfers.push(ticket, num_bytes, at)
        else:
            self._enter(ticket, at)

    def _begin_fetch(self, ticket: Ticket) -> int:
        if not ticket.request.handover.fetched:
            return 0
        first, scheduler = ticket.sequences[0], self._scheduler
        num_cached = scheduler.kv.match(first.holding.chain, first.num_tokens).num_blocks * self.profile.block_size
        return self._fetches.begin(ticket, num_cached, scheduler.encoding.cache)

    def _enter(self, ticket: Ticket, at: float) -> None:
        """A request that has all it needs joins the queue."""
        waiting = self._scheduler.waiting
        is_head = not waiting
        waiting.extend(ticket.sequences)
        if is_head or self._stretch is None:
            # Behind others who could not be admitted it changes nothing.
            self._look_again(at)

    def _look_again(self, at: float) -> None:
        """Whoever waits may be admitted now."""
        if self._stretch is None:
            self._start(at)
        else:
            self._cut(at)

    def _tokens_per_s(self, at: float) -> float:
        num_decoded = self._num_steps_unaccounted(at) * self._scheduler.decodes.num_sequences
        return self._streaming.read(at, self._num_generation_tokens + num_decoded)

    def _refusal(self, ticket: Ticket) -> FailureReason | None:
        profile = self.profile
        num_tokens = ticket.request.num_prompt_tokens + ticket.request.num_output_tokens
        num_cache_tokens = inf if self._is_encode_only else profile.num_blocks * profile.block_size
        if num_tokens > profile.model.max_model_len or num_tokens - 1 > num_cache_tokens:
            return FailureReason.PROMPT_TOO_LONG
        if any(span.item.num_embeds > profile.encoder_cache_embeds for span in ticket.spans):
            return FailureReason.ITEM_TOO_LARGE
        return None

    def _start(self, at: float) -> None:
        scheduler = self._scheduler
        self._stretch = scheduler.start(at)
        self._num_ended = 0
        self._set_step_at()
        for sequence, num_tokens in scheduler.pulls:
            self._transfers.push(sequence, self._costs.kv_bytes(num_tokens), at)
        scheduler.pulls.clear()
        lost, scheduler.lost = scheduler.lost, []
        for sequence in lost:
            ticket = sequence.ticket
            if not ticket.is_aborted:
                del self._tickets[ticket.request.request_id]
                self._told.failed(ticket, at, FailureReason.ITEM_LOST)
                self._leave(ticket, at)
        if lost and self._stretch is None:
            # What was made ready for the lost ones has kept others out.
            self._start(at)

    def _cut(self, at: float) -> None:
        if self._stretch:
            self._stretch.cut(at)
            self._set_step_at()

    def _set_step_at(self) -> None:
        if self._stretch is None:
            self._step_at = inf
        else:
            self._step_at = self._stretch.end_at(self._num_steps_at_once(self._stretch))

    def _num_steps_at_once(self, stretch: Stretch) -> int:
        """How many steps have ended when we look next: a log of blocks wants each to be looked at."""
        return stretch.num_steps if self._scheduler.kv.log is None else min(self._num_ended + 1, stretch.num_steps)

    def _end_steps(self, at: float) -> None:
        stretch = self._stretch
        assert stretch is not None
        num_ended = self._num_steps_at_once(stretch)
        num_steps = num_ended - self._num_ended
        ended = self._scheduler.end(num_steps, is_first=self._num_ended == 0)
        if self._is_encode_only:
            for item in self._scheduler.encoding.items:
                self._fetches.store.put(item.identifier, self._costs.embed_bytes(item))
        self._num_ended = num_ended
        self._num_generation_tokens += num_steps * stretch.num_decodes + len(ended.sampled)
        self._tell_blocks(at)
        self._told.sampled(ended.sampled, at)
        self._tell_finished(ended.finished, at)
        if num_ended < stretch.num_steps:
            self._set_step_at()
            return
        for sequence in self._aborted:
            if sequence in self._scheduler.running:
                self._scheduler.drop(sequence)
        self._aborted.clear()
        # Nothing of a request is told behind the step in which it was aborted.
        self._tell_blocks(at)
        self._start(at)

    def _tell_blocks(self, at: float) -> None:
        if self._scheduler.kv.log:
            self._told.blocks(self._scheduler.kv.log, at)

    def _tell_finished(self, finished: list[Sequence], at: float) -> None:
        for sequence in finished:
            ticket, request = sequence.ticket, sequence.ticket.request
            ticket.num_left -= 1
            if self._is_encode_only:
                self._told.count_prompt(sequence)
            lease_s = request.handover.kv_lease_s
            if lease_s is not None and sequence is ticket.sequences[0] and not ticket.is_aborted:
                self._leases.add(request.request_id, at + lease_s)
            if ticket.num_left or ticket.is_aborted:
                continue
            del self._tickets[request.request_id]
            num_tokens = 0 if self._is_encode_only else request.num_choices * request.num_output_tokens
            self._told.finished(ticket, at, num_completion_tokens=num_tokens)

    def _num_steps_unaccounted(self, at: float) -> int:
        return self._stretch.num_ended(at) - self._num_ended if self._stretch else 0

    def _num_used_blocks(self, num_more_steps: int) -> int:
        """KV blocks held when so many steps have ended beyond those accounted for, and the next has begun."""
        if self._stretch is None:
            return self._scheduler.kv.num_used
        num_begun = min(self._num_ended + num_more_steps + 1, self._stretch.num_steps)
        # The blocks of a stretch's first step are taken when it begins, those of others when they end.
        num_taken = max(1, self._num_ended)
        return self._scheduler.num_used_blocks(num_taken - self._num_ended, num_begun - num_taken)
