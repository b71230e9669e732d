"""When is the next stage's turn, and what does it ask?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from tessera.engine.events import EngineFacts
from tessera.sim.client import Sent
from tessera.sim.content import Ask
from tessera.sim.kernel import Kernel
from tessera.sim.load_stages import LoadStage, Spacing, offsets
from tessera.sim.servers import Server
from tessera.sim.workload import Workload


class Sender(Protocol):
    """Who sends for the load generator."""

    on_end: Callable[[Sent], None]
    """Told of each request that is over."""

    def send(self, ask: Ask, stage: int) -> Sent:
        """Send a request now."""


@dataclass(slots=True)
class StageRecord:
    """What became of one stage."""

    stage: LoadStage
    sent: list[Sent] = field(default_factory=list)
    facts_before: tuple[EngineFacts, ...] = ()
    """Of each server, at the stage's start."""
    facts_after: tuple[EngineFacts, ...] = ()
    """Of each server, when the stage's last request was over."""
    num_over: int = 0
    is_sent: bool = False
    """Whether its last request was sent."""


class LoadGenerator:
    """Sends one stage after the other, open loop: whatever the servers do, the next request is sent in its time."""

    def __init__(
        self,
        kernel: Kernel,
        client: Sender,
        servers: Sequence[Server],
        workload: Workload,
        stages: Sequence[LoadStage],
        *,
        spacing: Spacing,
        recorded: Sequence[float] = (),
        seed: int,
    ) -> None:
        """Ask for the first stage at the kernel's present.

        Args:
            kernel: the clock.
            client: sends; its ``on_end`` is taken.
            servers: whose counters are read around each stage.
            workload: what is asked.
            stages: in order, at least one.
            spacing: how the requests of a stage are spread over it.
            recorded: the gaps of ``spacing`` ``recorded``.
            seed: of the gaps and of what is asked.
        """
        self.records = [StageRecord(stage) for stage in stages]
        self._kernel = kernel
        self._client = client
        self._servers = servers
        self._workload = workload
        self._spacing = spacing
        self._recorded = recorded
        self._seed = seed
        client.on_end = self._ended
        kernel.at(kernel.now, lambda: self._begin(0))

    def _begin(self, index: int) -> None:
        record = self.records[index]
        stage = record.stage
        record.facts_before = self._facts()
        gaps = offsets(stage, self._spacing, Random(f"{self._seed}/gaps/{index}"), self._recorded)
        asks = self._workload.asks(index)
        self._send_next(index, self._kernel.now, iter(gaps), asks)

    def _send_next(self, index: int, began_at: float, gaps: Iterator[float], asks: Iterator[Ask]) -> None:
        offset = next(gaps, None)
        if offset is None:
            self._sent_all(index, began_at)
            return

        def send() -> None:
            record = self.records[index]
            record.sent.append(self._client.send(next(asks), index))
            self._send_next(index, began_at, gaps, asks)

        self._kernel.at(began_at + offset, send)

    def _sent_all(self, index: int, began_at: float) -> None:
        record = self.records[index]
        record.is_sent = True
        if record.stage.pause_s is None:
            self._follow(index, max(self._kernel.now, began_at + record.stage.duration_s))
        self._close_if_over(index)

    def _ended(self, sent: Sent) -> None:
        self.records[sent.stage].num_over += 1
        self._close_if_over(sent.stage)

    def _close_if_over(self, index: int) -> None:
        """Once the stage's last request is over: read the counters, and let the next stage follow."""
        record = self.records[index]
        if not record.is_sent or record.num_over < len(record.sent):
            return
        record.facts_after = self._facts()
        if record.stage.pause_s is not None:
            self._follow(index, self._kernel.now + record.stage.pause_s)

    def _follow(self, index: int, at: float) -> None:
        if index + 1 < len(self.records):
            self._kernel.at(at, lambda: self._begin(index + 1))

    def _facts(self) -> tuple[EngineFacts, ...]:
        return tuple(server.facts() for server in self._servers)
