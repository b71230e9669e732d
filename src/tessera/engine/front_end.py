"""When is a request through the API server's CPU? One after the other, in order of arrival."""

from collections import deque
from math import exp, inf

from tessera.engine.costs import Costs
from tessera.engine.processor_cache import ProcessorCache
from tessera.engine.profiles import EngineProfile
from tessera.engine.requests import MediaSegment
from tessera.engine.sequences import Ticket

MAX_STREAMING_FRACTION = 0.9
"""Of the CPU that streaming can take from requests: the rest is theirs however fast tokens come."""
_RATE_WINDOW_S = 1.0
"""Time constant of the streaming rate: several steps, prefill steps too."""


class StreamingRate:
    """Output tokens a second, averaged over the last steps.

    The rate of the step that runs would not do: steps that only decode stream several
    times what steps with a prefill do, and what they leave of the CPU is their mean.
    """

    __slots__ = ("_at", "_num_tokens", "_per_s")

    def __init__(self) -> None:
        """Nothing was streamed."""
        self._at = 0.0
        self._num_tokens = 0
        self._per_s = 0.0

    def read(self, at: float, num_tokens: int) -> float:
        """The rate at ``at``, where the engine has made so many tokens since its start.

        What came since the last reading counts ``1 - exp(-t / 1 s)`` for t seconds.
        """
        elapsed_s = at - self._at
        if elapsed_s > 0:
            kept = exp(-elapsed_s / _RATE_WINDOW_S)
            now_per_s = (num_tokens - self._num_tokens) / elapsed_s
            self._per_s = kept * self._per_s + (1 - kept) * now_per_s
            self._at, self._num_tokens = at, num_tokens
        return self._per_s


class FrontEnd:
    """Requests on their way to the scheduler."""

    __slots__ = ("_costs", "_job", "_profile", "_queue", "cache", "next_at")

    def __init__(self, profile: EngineProfile, costs: Costs) -> None:
        """Nothing arrives."""
        self.cache = ProcessorCache(profile.processor_cache_bytes)
        self._profile = profile.front_end
        self._costs = costs
        self._queue: deque[tuple[float, Ticket]] = deque()
        self._job: Ticket | None = None
        self.next_at = inf
        """When a job ends, or the next begins; infinite while nobody is here."""

    def push(self, ticket: Ticket, at: float) -> None:
        """A request's bytes have arrived."""
        self._queue.append((at + self._profile.latency_s, ticket))
        if self._job is None:
            self.next_at = self._queue[0][0]

    def turn(self, tokens_per_s: float) -> Ticket | None:
        """End the job that ends at ``next_at`` and begin the next if it is there; the request that is through.

        Args:
            tokens_per_s: output tokens that are being streamed, as ``StreamingRate`` reads them.
        """
        now = self.next_at
        done, self._job = self._job, None
        while self._job is None and self._queue and self._queue[0][0] <= now:
            ticket = self._queue.popleft()[1]
            self._job = None if ticket.is_aborted else ticket
        if self._job is not None:
            share = min(tokens_per_s * self._profile.token_s, MAX_STREAMING_FRACTION)
            self.next_at = now + self._work_s(self._job) / (1 - share)
        else:
            self.next_at = self._queue[0][0] if self._queue else inf
        return done

    def _work_s(self, ticket: Ticket) -> float:
        work_s = self._profile.request_s
        for segment in ticket.request.segments:
            if isinstance(segment, MediaSegment) and segment.identifier not in ticket.request.handover.bare:
                work_s += self._profile.item_s
                if not self.cache.touch(segment.identifier, self._costs.processed_bytes(segment)):
                    work_s += self._costs.processing_s(segment)
        return work_s
