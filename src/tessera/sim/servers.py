"""What do the servers of the fleet do, and what did their metrics pages say last?"""

import math
from collections.abc import Callable, Sequence

from tessera.core.facts import Load, Scraped
from tessera.core.roles import ROLE_LABEL
from tessera.core.types import Endpoint
from tessera.engine.engine import Engine
from tessera.engine.events import EngineFacts, Failed, Finished, FirstToken, KVPulled, RequestEvent
from tessera.engine.requests import EngineRequest
from tessera.engine.roles import Role
from tessera.sim.kernel import Kernel


class Server:
    """One engine on the kernel's clock, and its metrics page as a scraper saw it last.

    A scrape is no action of its own: nothing happens at it. The page of the last scrape
    instant is kept just before the engine's state changes, and asked for at a decision.
    """

    def __init__(
        self,
        kernel: Kernel,
        endpoint: Endpoint,
        engine: Engine,
        *,
        scrape_interval_s: float | None,
        phase: float,
    ) -> None:
        """An idle server.

        Args:
            kernel: the clock.
            endpoint: what the router calls it.
            engine: nobody else drives it.
            scrape_interval_s: seconds between two scrapes; nothing: its page is never read.
            phase: when it is scraped, as a share of the interval, 0..1.
        """
        self.endpoint = endpoint
        self.engine = engine
        self.on_event: Callable[[RequestEvent], None] = lambda event: None
        """Told of each event, at its instant."""
        self.num_skipped = 0
        """Scrapes between the page that was told last and the one told before it."""
        self._kernel = kernel
        self._interval_s = scrape_interval_s
        self._phase = phase
        self._armed_at = math.inf
        self._page: tuple[float, EngineFacts] | None = None
        self._told_at = -math.inf

    def submit(self, request: EngineRequest) -> None:
        """A request arrives."""
        self._keep_page()
        self.engine.submit(request, self._kernel.now)
        self._arm()

    def abort(self, request_id: str) -> None:
        """The client of a request has gone."""
        self._keep_page()
        self.engine.abort(request_id, self._kernel.now)
        self._arm()

    def release_kv(self, request_id: str) -> None:
        """A peer has pulled the KV that is kept of a request."""
        self._keep_page()
        self.engine.release_kv(request_id, self._kernel.now)
        self._arm()

    def keeps_embeddings(self, identifier: str) -> bool:
        """Whether its host memory has an item's embeddings."""
        return self.engine.stored_embeddings_bytes(identifier, self._kernel.now) is not None

    def scraped(self, *, with_counter: bool) -> Scraped | None:
        """The page of the last scrape instant; nothing where that was told before.

        Args:
            with_counter: whether the engine's count of first tokens is told.
        """
        self._keep_page()
        if self._page is None or self._page[0] <= self._told_at:
            return None
        at, facts = self._page
        if self._interval_s is not None and self._told_at >= 0:
            self.num_skipped = round((at - self._told_at) / self._interval_s) - 1
        self._told_at = at
        return Scraped(
            at=at,
            endpoint_id=self.endpoint.id,
            load=Load(
                num_waiting=facts.num_waiting,
                num_running=facts.num_running,
                kv_usage_fraction=facts.kv_usage_fraction,
                block_size=facts.block_size,
                num_blocks=facts.num_blocks,
                num_cache_tokens=facts.num_blocks * facts.block_size,
                at=at,
            ),
            num_first_tokens=facts.num_first_tokens if with_counter else None,
            process_start_at=0.0,
        )

    def facts(self) -> EngineFacts:
        """The engine's state now, all that happens at this instant included."""
        self._advance()
        self._arm()
        return self.engine.facts(self._kernel.now)

    def _wake(self) -> None:
        if self._kernel.now != self._armed_at:
            return  # A sooner wake-up has taken this one's place.
        self._armed_at = math.inf
        self._advance()
        self._arm()

    def _advance(self) -> None:
        """Let happen what is due, and tell it."""
        now = self._kernel.now
        if self.engine.next_at == now:
            self._keep_page()
            for event in self.engine.advance(now):
                assert isinstance(event, FirstToken | Finished | Failed | KVPulled), "KV events are not asked for"
                self.on_event(event)

    def _arm(self) -> None:
        when = self.engine.next_at
        if when is not None and when < self._armed_at:
            self._armed_at = when
            self._kernel.at(when, self._wake)

    def _keep_page(self) -> None:
        """Take the page of the last scrape instant before now, unless it was taken."""
        if self._interval_s is None:
            return
        at = last_turn(self._kernel.now, self._interval_s, self._phase)
        if at >= 0 and (self._page is None or at > self._page[0]):
            self._page = at, self.engine.facts(at)


def last_turn(now: float, interval_s: float, phase: float) -> float:
    """The last instant before ``now`` of a grid that is ``phase`` intervals off zero.

    >>> [round(last_turn(now, 0.05, 0.2), 3) for now in (1.0, 1.012, 1.06, 1.07)]
    [0.96, 1.01, 1.01, 1.06]
    """
    turn = (math.ceil(now / interval_s - phase) - 1 + phase) * interval_s
    return turn if turn < now else turn - interval_s


def endpoints(number: int) -> Sequence[Endpoint]:
    """So many endpoints, of which none is reached.

    >>> endpoints(2)[1].id
    '10.0.0.2:8000'
    """
    return [_endpoint(n, Role.ALL) for n in range(number)]


def endpoints_of(roles: Sequence[Role]) -> Sequence[Endpoint]:
    """An endpoint for each role, which its label says; one that does everything has no label.

    >>> [each.labels for each in endpoints_of([Role.ENCODE, Role.ALL])]
    [{'llm-d.ai/role': 'encode'}, {}]
    """
    return [_endpoint(n, role) for n, role in enumerate(roles)]


def _endpoint(n: int, role: Role) -> Endpoint:
    labels = {} if role is Role.ALL else {ROLE_LABEL: role.value}
    return Endpoint(address=f"10.0.{n // 250}.{n % 250 + 1}", port=8000, name=f"server-{n + 1}", labels=labels)
