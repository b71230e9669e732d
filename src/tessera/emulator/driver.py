"""Who tells the engine the time? A timer on the event loop, set to what happens next."""

import asyncio
from collections.abc import Sequence

from tessera.emulator.kv_feed import KVFeed
from tessera.emulator.metrics import Metrics
from tessera.emulator.tickets import Ticket, Work
from tessera.engine.engine import Engine
from tessera.engine.events import (
    BlocksRemoved,
    BlocksStored,
    CacheCleared,
    EngineEvent,
    EngineFacts,
    Failed,
    Finished,
    KVPulled,
)

GRANULARITY_S = 0.001
"""Tokens that come closer together are sent together; uvloop's timers know no finer step and would spin."""


class Driver:
    """Runs an engine on the event loop's clock, ``speed`` times as fast, and wakes whoever waits for its tokens.

    An instant of the engine is reckoned from the start, so that no delay of a timer adds to
    the next. Memory is that of the requests that are open; their number is the server's to limit.
    """

    def __init__(
        self,
        engine: Engine,
        metrics: Metrics,
        *,
        speed: float = 1.0,
        kv_feed: KVFeed | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        """The engine's time is 0 now; nobody else drives it, and it tells KV events where there is a feed."""
        self._engine = engine
        self._metrics = metrics
        self._speed = speed
        self._kv_feed = kv_feed
        self._loop = loop or asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._at = 0.0
        """The engine's time."""
        self._open: dict[str, tuple[Work, Ticket]] = {}
        """What the engine has, by its request id."""
        self._leaving: list[tuple[float, str]] = []
        """Aborted requests of which blocks are told until an instant of the engine."""
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, works: Sequence[Work]) -> Ticket:
        """Hand the works of one HTTP request to the engine."""
        at = self._tick()
        ticket = Ticket(works)
        for work in works:
            request = work.request
            work.arrived_at = self._loop.time()
            self._open[request.request_id] = work, ticket
            if self._kv_feed:
                self._kv_feed.expect(request, work.prompt)
            self._engine.submit(request, at)
        self._set_timer(at)
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Drop the works that are not finished and count their choices as aborted."""
        at = self._tick()
        for work in ticket.works:
            request_id = work.request.request_id
            if self._open.pop(request_id, None) is None:
                continue
            ends_at = self._engine.step_ends_at(at)
            self._engine.abort(request_id, at)
            self._leaving.append((at if ends_at is None else ends_at, request_id))
            self._metrics.work_aborted(work)
        self._set_timer(at)

    def facts(self) -> EngineFacts:
        """The engine's state now."""
        return self._engine.facts(self._tick())

    def reset_prefix_cache(self) -> bool:
        """Have the engine forget all KV content; false while a sequence runs."""
        at = self._tick()
        is_cleared = self._engine.reset_prefix_cache(at)
        self._set_timer(at)
        return is_cleared

    def reset_encoder_cache(self) -> None:
        """Have the engine forget the embeddings that no sequence needs."""
        self._engine.reset_encoder_cache(self._tick())

    def reset_processor_cache(self) -> None:
        """Have the engine forget all processed items."""
        self._engine.reset_processor_cache(self._tick())

    def stored_embeddings_bytes(self, identifier: str) -> int | None:
        """What an item's embeddings take in the engine's host memory; nothing where it has none."""
        return self._engine.stored_embeddings_bytes(identifier, self._tick())

    def renew_lease(self, request_id: str, lease_s: float) -> int:
        """Keep a finished request's KV for so long on the clock; its tokens, 0 where it is gone."""
        at = self._tick()
        num_tokens = self._engine.renew_lease(request_id, at + lease_s * self._speed, at)
        self._set_timer(at)
        return num_tokens

    def release_kv(self, request_id: str) -> bool:
        """A peer has pulled a finished request's KV; false where it is gone."""
        at = self._tick()
        is_released = self._engine.release_kv(request_id, at)
        self._set_timer(at)
        return is_released

    def close(self) -> None:
        """Stop the timer."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _tick(self, due_at: float = 0.0) -> float:
        """Bring the engine up to now and hand out what came; the instant of the engine that is now.

        ``due_at`` is at least reached: a timer that was set to it may come a trifle early.
        """
        now = self._loop.time()
        at = self._at = max(self._at, due_at, (now - self._started_at) * self._speed)
        events = self._engine.advance(at)
        if self._kv_feed:
            self._kv_feed.tell(
                [each for each in events if isinstance(each, BlocksStored | BlocksRemoved | CacheCleared)]
            )
            for request_id in [request_id for until, request_id in self._leaving if until <= at]:
                self._kv_feed.forget(request_id)
        self._leaving = [entry for entry in self._leaving if entry[0] > at]
        for event in events:
            self._end(event, now)
        for request_id, (work, ticket) in self._open.items():
            self._take(work, ticket, self._engine.num_generated(request_id, at), now)
        self._set_timer(at)
        return at

    def _end(self, event: EngineEvent, now: float) -> None:
        """Close the work that an event ends; others are told of by its tokens."""
        if isinstance(event, KVPulled) and event.request_id in self._open:
            self._open[event.request_id][0].on_pulled()
        if not isinstance(event, Finished | Failed):
            return
        work, ticket = self._open.pop(event.request_id)
        if isinstance(event, Finished):
            work.num_cached_tokens = event.num_cached_tokens + event.num_pulled_tokens
            self._take(work, ticket, [work.request.num_output_tokens] * work.request.num_choices, now)
        else:
            work.failure = event.reason
            ticket.changed.set()
        if self._kv_feed:
            self._kv_feed.forget(event.request_id)

    def _take(self, work: Work, ticket: Ticket, num_generated: Sequence[int], now: float) -> None:
        for choice, (before, after) in enumerate(zip(work.num_produced, num_generated, strict=False)):
            if after > before:
                self._metrics.tokens_came(work, choice, after - before, now)
                work.num_produced[choice] = after
                work.last_token_at[choice] = now
                ticket.changed.set()

    def _set_timer(self, at: float) -> None:
        self.close()
        due = [each for each in (self._engine.next_at, self._engine.step_ends_at(at)) if each is not None]
        if due:
            due_at = min(due)
            when = self._started_at + due_at / self._speed
            self._timer = self._loop.call_at(max(when, self._loop.time() + GRANULARITY_S), self._tick, due_at)
