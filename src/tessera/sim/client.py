"""Who sends the requests, how long does it wait, and what does it see of the answers?"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from tessera.core.types import Ending, Usage
from tessera.engine.events import Failed, Finished, FirstToken
from tessera.sim.connections import Connection, Connections
from tessera.sim.content import Ask
from tessera.sim.gateway import Gateway
from tessera.sim.kernel import Kernel
from tessera.sim.prompts import Prompts
from tessera.sim.servers import Server
from tessera.sim.sidecar import Lost, SidecarEvent, Sidecars


@dataclass(slots=True)
class Sent:
    """One request as its client sees it; times are seconds on the kernel's clock."""

    id: str
    stage: int
    sent_at: float
    num_output_tokens: int
    """Tokens that it asks for."""
    first_at: float | None = None
    ended_at: float | None = None
    ending: Ending | None = None
    """Nothing while it is in flight."""
    endpoint_id: str | None = None
    predicted_ttft_s: float | None = None
    """What the router foresaw of ``ttft_s``, the network's delays added; nothing where it foresees none."""

    @property
    def ttft_s(self) -> float | None:
        """Seconds to the first token."""
        return None if self.first_at is None else self.first_at - self.sent_at

    @property
    def tpot_s(self) -> float | None:
        """Mean seconds for each token after the first; nothing where there is none."""
        if self.ended_at is None or self.first_at is None or self.num_output_tokens < 2:
            return None
        return (self.ended_at - self.first_at) / (self.num_output_tokens - 1)


@dataclass(slots=True)
class _Open:
    sent: Sent
    connection: Connection
    server: Server | None = None
    first_seen_at: float | None = None
    """When the gateway saw the first chunk."""


class Client:
    """Sends, waits at most ``timeout_s`` for a whole answer, and notes what it saw.

    The gateway stands beside the servers: a request reaches it ``delay_s`` after it was
    sent, an answer's pieces reach the client ``delay_s`` after the engine gave them.
    """

    def __init__(
        self,
        kernel: Kernel,
        gateway: Gateway,
        sidecars: Sidecars,
        prompts: Prompts,
        connections: Connections,
        *,
        delay_s: float = 0.0,
        timeout_s: float | None = None,
    ) -> None:
        self.num_sent = 0
        self._kernel = kernel
        self._gateway = gateway
        self._sidecars = sidecars
        sidecars.on_event = self.hear
        sidecars.on_stages = gateway.stages_told
        self._prompts = prompts
        self._connections = connections
        self._delay_s = delay_s
        self._timeout_s = timeout_s
        self._open: dict[str, _Open] = {}
        self._ids = (f"r{number}" for number in count())
        self.on_end: Callable[[Sent], None] = lambda sent: None
        """Told of each request that is over."""

    @property
    def num_in_flight(self) -> int:
        """Requests that were sent and are not over."""
        return len(self._open)

    def send(self, ask: Ask, stage: int) -> Sent:
        """Send a request now."""
        now = self._kernel.now
        sent = Sent(next(self._ids), stage, now, ask.num_output_tokens)
        self.num_sent += 1
        self._open[sent.id] = opened = _Open(sent, self._connections.take(now))
        self._later(lambda: self._arrive(ask, opened))
        if self._timeout_s is not None:
            self._kernel.at(now + self._timeout_s, lambda: self._give_up(opened))
        return sent

    def hear(self, event: SidecarEvent) -> None:
        """The server that answers tells something, now."""
        opened = self._open.get(event.request_id)
        if opened is None:
            return
        match event:
            case FirstToken():
                opened.first_seen_at = event.at
                self._gateway.first_token(event.request_id, event.at)
                self._later(lambda: self._see_first(opened))
            case Finished():
                usage = Usage(
                    prompt_tokens=event.num_prompt_tokens,
                    completion_tokens=event.num_completion_tokens,
                    cached_tokens=event.num_cached_tokens,
                )
                self._release(opened, Ending.FINISHED, usage)
            case Failed() | Lost():
                self._release(opened, Ending.FAILED, None)

    def _arrive(self, ask: Ask, opened: _Open) -> None:
        """The request reaches the gateway, unless its client has gone before."""
        if opened.sent.ending is not None:
            return
        seen = self._prompts.see(ask)
        request_id = opened.sent.id
        server = self._gateway.decide(seen.routed(request_id, self._kernel.now, opened.connection.id))
        if server is None:
            self._later(lambda: self._end(opened, Ending.REJECTED))
            return
        opened.server = server
        opened.sent.endpoint_id = server.endpoint.id
        predicted_s = self._gateway.predicted_ttft_s(request_id)
        opened.sent.predicted_ttft_s = None if predicted_s is None else predicted_s + 2 * self._delay_s
        self._sidecars.submit(server, seen, request_id, lambda: self._gateway.headers_of(request_id))

    def _release(self, opened: _Open, ending: Ending, usage: Usage | None) -> None:
        """The server is done with the request; its client will know soon."""
        opened.server = None
        self._gateway.ended(opened.sent.id, ending, self._kernel.now, first_token_at=opened.first_seen_at, usage=usage)
        self._later(lambda: self._end(opened, ending))

    def _see_first(self, opened: _Open) -> None:
        if opened.sent.ending is None:
            opened.sent.first_at = self._kernel.now

    def _give_up(self, opened: _Open) -> None:
        if opened.sent.ending is not None:
            return
        server, opened.server = opened.server, None
        if server is not None:
            self._sidecars.abort(server, opened.sent.id)
            self._gateway.ended(opened.sent.id, Ending.ABORTED, self._kernel.now, first_token_at=opened.first_seen_at)
        self._end(opened, Ending.ABORTED)

    def _end(self, opened: _Open, ending: Ending) -> None:
        sent = opened.sent
        if sent.ending is not None:
            return
        sent.ending, sent.ended_at = ending, self._kernel.now
        del self._open[sent.id]
        if ending is not Ending.ABORTED:
            self._connections.give_back(opened.connection, self._kernel.now)
        self.on_end(sent)

    def _later(self, action: Callable[[], None]) -> None:
        """After the network's delay; at once where there is none."""
        if self._delay_s:
            self._kernel.at(self._kernel.now + self._delay_s, action)
        else:
            action()
