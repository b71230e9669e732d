"""What has happened in an engine that its driver was not told yet, and how much has come out of it?"""

from collections import deque
from collections.abc import Sequence as Rows

from tessera.engine.events import (
    BlocksRemoved,
    BlocksStored,
    EngineEvent,
    Failed,
    FailureReason,
    Finished,
    FirstToken,
)
from tessera.engine.kv_cache import Removed, Stored
from tessera.engine.sequences import Sequence, Ticket


class Told:
    """Events in order, and the counters that go with them."""

    __slots__ = ("events", "num_cached_tokens", "num_first_tokens", "num_prompt_tokens", "num_pulled_tokens")

    def __init__(self) -> None:
        """Nothing has happened."""
        self.events: deque[EngineEvent] = deque()
        self.num_first_tokens = 0
        """Sequences that have had one, or were through the encoder where there is nothing else."""
        self.num_prompt_tokens = 0
        """Of their prompts."""
        self.num_cached_tokens = 0
        """Of these, found in the KV cache."""
        self.num_pulled_tokens = 0
        """Of these, sent by peers."""

    def take(self) -> list[EngineEvent]:
        """All of it; afterwards nothing is left."""
        events = list(self.events)
        self.events.clear()
        return events

    def blocks(self, log: list[Stored | Removed], at: float) -> None:
        """What the KV cache has stored and evicted; the log is empty afterwards."""
        for entry in log:
            if isinstance(entry, Stored):
                request_id, choice = entry.owner
                self.events.append(BlocksStored(request_id, at, entry.first_block, entry.keys, choice))
            else:
                self.events.append(BlocksRemoved(at, entry.keys))
        log.clear()

    def sampled(self, sequences: Rows[Sequence], at: float) -> None:
        """Sequences that have one token more; it may be the first."""
        for sequence in sequences:
            ticket = sequence.ticket
            if ticket.is_aborted or sequence.num_tokens != sequence.num_prompt_tokens + 1:
                continue
            self.count_prompt(sequence)
            if not ticket.has_first_token:
                ticket.has_first_token = True
                self.events.append(FirstToken(ticket.request.request_id, at))

    def count_prompt(self, sequence: Sequence) -> None:
        """A prompt is computed."""
        self.num_first_tokens += 1
        self.num_prompt_tokens += sequence.num_prompt_tokens
        self.num_cached_tokens += sequence.num_cached or 0
        self.num_pulled_tokens += sequence.num_pulled

    def finished(self, ticket: Ticket, at: float, *, num_completion_tokens: int) -> None:
        """All choices of a request have all their tokens."""
        request = ticket.request
        self.events.append(
            Finished(
                request.request_id,
                at,
                num_prompt_tokens=request.num_prompt_tokens,
                num_cached_tokens=ticket.sequences[0].num_cached or 0,
                num_completion_tokens=num_completion_tokens,
                num_pulled_tokens=ticket.sequences[0].num_pulled,
            )
        )

    def failed(self, ticket: Ticket, at: float, reason: FailureReason) -> None:
        """A request gets no answer."""
        self.events.append(Failed(ticket.request.request_id, at, reason))
