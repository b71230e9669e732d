"""Who tells the service the time? A timer on the event loop, set to the next token."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from tessera.emulator.metrics import Metrics
from tessera.emulator.service import Service, Work

GRANULARITY_S = 0.001
"""Tokens that come closer together are sent together; uvloop's timers know no finer step and would spin."""


class NewToken(NamedTuple):
    """One token of one choice."""

    choice: int
    position: int
    """In the answer, from 0."""
    finish_reason: str | None
    """Why the choice ended, on its last token."""


class Ticket:
    """The works of one HTTP request, and how far their tokens have been taken."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = tuple(works)
        self.changed = asyncio.Event()
        self._num_taken = [0] * len(works)

    @property
    def is_done(self) -> bool:
        """Whether every token of every work has been taken."""
        return all(taken >= work.num_output_tokens for taken, work in zip(self._num_taken, self.works, strict=True))

    async def next_tokens(self, at_most: int | None = None) -> list[NewToken]:
        """Wait for tokens that were not taken yet; at least one, in the order of the choices."""
        while not (tokens := self._take(at_most)):
            self.changed.clear()
            await self.changed.wait()
        return tokens

    def _take(self, at_most: int | None) -> list[NewToken]:
        tokens: list[NewToken] = []
        for choice, work in enumerate(self.works):
            first = self._num_taken[choice]
            last = work.num_produced
            if at_most is not None:
                last = min(last, first + at_most - len(tokens))
            for position in range(first, last):
                reason = work.finish_reason if position + 1 == work.num_output_tokens else None
                tokens.append(NewToken(choice, position, reason))
            self._num_taken[choice] = max(first, last)
        return tokens


class Driver:
    """Runs a Service on the event loop's clock and wakes whoever waits for its tokens."""

    def __init__(self, service: Service, metrics: Metrics) -> None:
        self._service = service
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._tickets: dict[Work, Ticket] = {}
        self._timer: asyncio.TimerHandle | None = None

    def submit(self, works: Sequence[Work]) -> Ticket:
        """Queue the works of one HTTP request."""
        self._tick()
        ticket = Ticket(works)
        for work in works:
            self._tickets[work] = ticket
            self._service.submit(work, self._loop.time())
        self._set_timer()
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Drop the works that are not finished and count them as aborted."""
        self._tick()
        for work in ticket.works:
            if self._tickets.pop(work, None) is not None:
                self._service.abort(work, self._loop.time())
                self._metrics.work_aborted()
        self._set_timer()

    def close(self) -> None:
        """Stop the timer."""
        if self._timer:
            self._timer.cancel()
            self._timer = None

    def _tick(self) -> None:
        """Bring the service up to now, or as far as one call goes; the timer does the rest."""
        tokens = self._service.advance(self._loop.time())
        self._metrics.tokens_came(tokens)
        for token in tokens:
            ticket = self._tickets[token.work]
            ticket.changed.set()
            if token.is_last:
                del self._tickets[token.work]
        self._set_timer()

    def _set_timer(self) -> None:
        next_at = self._service.next_at()
        self.close()
        if next_at is not None:
            self._timer = self._loop.call_at(max(next_at, self._loop.time() + GRANULARITY_S), self._tick)
