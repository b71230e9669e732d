"""What does one HTTP request have in the engine, and how much of it was taken?"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from tessera.emulator.prompts import EnginePrompt
from tessera.engine.events import FailureReason
from tessera.engine.requests import EngineRequest


class NewToken(NamedTuple):
    """One token of one choice."""

    choice: int
    position: int
    """In the answer, from 0."""
    finish_reason: str | None
    """Why the choice ended, on its last token."""


class WorkFailed(Exception):
    """The engine gives a work up."""

    def __init__(self, reason: FailureReason) -> None:
        """``reason`` is the engine's."""
        super().__init__(reason)
        self.reason = reason


class Work:
    """One prompt in the engine, with all its choices."""

    __slots__ = (
        "arrived_at",
        "failure",
        "finish_reason",
        "last_token_at",
        "num_cached_tokens",
        "num_produced",
        "on_pulled",
        "prompt",
        "request",
    )

    def __init__(self, request: EngineRequest, prompt: EnginePrompt, finish_reason: str) -> None:
        """Nothing is answered yet.

        Args:
            request: the prompt as the engine is asked.
            prompt: the same with its token ids.
            finish_reason: why its answers will end.
        """
        self.request = request
        self.prompt = prompt
        self.finish_reason = finish_reason
        self.arrived_at = 0.0
        """Seconds on the loop's clock."""
        self.num_produced = [0] * request.num_choices
        """Answer tokens so far, of each choice."""
        self.last_token_at = [0.0] * request.num_choices
        """When those came last."""
        self.num_cached_tokens = 0
        """Prompt tokens that the engine found in its KV cache; known when it has finished."""
        self.failure: FailureReason | None = None
        """Why the engine would not have it."""
        self.on_pulled: Callable[[], None] = lambda: None
        """Called when the KV that a peer kept for it has come."""


class Ticket:
    """The works of one HTTP request, and how far their tokens have been taken."""

    def __init__(self, works: Sequence[Work]) -> None:
        self.works = tuple(works)
        self.changed = asyncio.Event()
        self._num_taken = [0] * sum(work.request.num_choices for work in works)

    @property
    def is_done(self) -> bool:
        """Whether every token of every choice has been taken."""
        choices = zip(self._num_taken, self._choices(), strict=True)
        return all(taken >= work.request.num_output_tokens for taken, (work, _) in choices)

    @property
    def num_cached_tokens(self) -> int:
        """Of all works; known when it is done."""
        return sum(work.num_cached_tokens for work in self.works)

    async def next_tokens(self, at_most: int | None = None) -> list[NewToken]:
        """Wait for tokens that were not taken yet; at least one, in the order of the choices.

        Raises:
            WorkFailed: the engine has given one of the works up.
        """
        while not (tokens := self._take(at_most)):
            for work in self.works:
                if work.failure:
                    raise WorkFailed(work.failure)
            self.changed.clear()
            await self.changed.wait()
        return tokens

    def _choices(self) -> Iterator[tuple[Work, int]]:
        """Each choice as its work and its place among the work's."""
        return ((work, choice) for work in self.works for choice in range(work.request.num_choices))

    def _take(self, at_most: int | None) -> list[NewToken]:
        tokens: list[NewToken] = []
        for index, (work, choice) in enumerate(self._choices()):
            first = self._num_taken[index]
            last = work.num_produced[choice]
            if at_most is not None:
                last = min(last, first + at_most - len(tokens))
            for position in range(first, last):
                reason = work.finish_reason if position + 1 == work.request.num_output_tokens else None
                tokens.append(NewToken(index, position, reason))
            self._num_taken[index] = max(first, last)
        return tokens
