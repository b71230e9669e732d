"""How loaded does each endpoint say it is?

Polls the metrics page of every endpoint over its own keep-alive connection. At 100
endpoints and 50 ms that is 2000 pages and 112 MB each second, so a poll costs a timer,
a send and a few receives: no task, no header table, no parse of the whole page.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import cast

from tessera.core.facts import FleetEvent, Scraped
from tessera.core.types import Endpoint
from tessera.live.http_reply import BadReply, HttpReply
from tessera.live.metrics_page import ENGINES, EngineSpec, read_page

ENGINE_LABELS = ("llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type")
"""Labels that name an endpoint's engine, the first that is there wins. Source: llm-d-router, August 2026."""
MAX_BACKOFF_S = 1.0
"""The longest wait behind a failed poll, unless the interval is longer."""

_GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly however many there are."""


class Scraper:
    """Tells ``Scraped`` events of every endpoint that was added.

    One poll at a time for each endpoint, at instants of its own (its phase), so that
    the fleet is not read in bursts. A poll that has no whole answer within
    ``timeout_s``, or whose answer breaks a limit, is an error: nothing is told, the
    old values grow stale (``Load.at``), the connection is closed and the next poll
    waits longer, up to 1 s. ``on_problem`` hears once that an endpoint fails and
    once that it is back.

    Memory: for each endpoint one buffer of 64 KiB, 4 MiB and 17 KiB at most.

    All methods belong to the event loop's thread.
    """

    def __init__(
        self,
        on_event: Callable[[FleetEvent], None],
        clock: Callable[[], float],
        interval_s: float = 0.05,
        timeout_s: float = 1.0,
        *,
        path: str = "/metrics",
        port: int | None = None,
        tls: ssl.SSLContext | None = None,
        engines: Mapping[str, EngineSpec] = ENGINES,
        default_engine: str = "vllm",
        engine_labels: tuple[str, ...] = ENGINE_LABELS,
        on_problem: Callable[[str], None] | None = None,
    ) -> None:
        """Start nothing yet.

        ``clock`` gives the driver's seconds, ``port`` overrides the endpoints' own,
        ``tls`` makes the polls https.
        """
        assert min(interval_s, timeout_s) > 0, f"interval {interval_s} s and timeout {timeout_s} s must be positive"
        self.on_event = on_event
        self.clock = clock
        self.interval_s = interval_s
        self.timeout_s = timeout_s
        self.tls = tls
        self.on_problem = on_problem or (lambda _: None)
        self._path = path
        self._port = port
        self._engines = engines
        self._default_engine = engines[default_engine]
        self._engine_labels = engine_labels
        self._num_added = 0
        self._pollers: dict[str, _Poller] = {}

    def add(self, endpoint: Endpoint) -> None:
        """Begin to poll the endpoint; one that is known goes on, by its new labels and ports."""
        poller = self._pollers.get(endpoint.id)
        engine = self._engine_of(endpoint)
        port = self._port or endpoint.metrics_port or endpoint.port
        if poller is not None:
            if (poller.engine, poller.port) == (engine, port):
                return
            poller.stop()
        self._num_added += 1
        phase = self._num_added * _GOLDEN % 1.0
        request = _request(endpoint.address, port, self._path)
        self._pollers[endpoint.id] = _Poller(self, endpoint, port=port, engine=engine, request=request, phase=phase)

    def remove(self, endpoint: Endpoint) -> None:
        """Stop to poll the endpoint; nothing more is told of it."""
        poller = self._pollers.pop(endpoint.id, None)
        if poller is not None:
            poller.stop()

    def num_errors(self, endpoint_id: str) -> int:
        """Polls of that endpoint that failed since it was added."""
        poller = self._pollers.get(endpoint_id)
        return poller.num_errors if poller else 0

    async def close(self) -> None:
        """Stop everything and wait until the connections are closed."""
        connecting = [poller.stop() for poller in self._pollers.values()]
        self._pollers.clear()
        await asyncio.gather(*(task for task in connecting if task), return_exceptions=True)
        await asyncio.sleep(0)

    def _engine_of(self, endpoint: Endpoint) -> EngineSpec:
        for label in self._engine_labels:
            name = endpoint.labels.get(label)
            if name is not None:
                if engine := self._engines.get(name):
                    return engine
                known = ", ".join(self._engines)
                self.on_problem(
                    f"endpoint {endpoint.id}: label {label} is {name!r}, known are {known}; "
                    f"its metrics are read as those of {self._default_engine.name}"
                )
                break
        return self._default_engine


class _Poller:
    """Polls one endpoint."""

    def __init__(
        self, scraper: Scraper, endpoint: Endpoint, *, port: int, engine: EngineSpec, request: bytes, phase: float
    ) -> None:
        self.port = port
        self.engine = engine
        self.num_errors = 0
        self._scraper = scraper
        self._endpoint = endpoint
        self._request = request
        self._phase = phase
        self._num_failures = 0
        """Failures in a row."""
        self._connection: _Connection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._deadline: float | None = None
        """When the poll in flight fails, on the loop's clock; ``None`` while there is none."""
        self._begun_at = 0.0
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._timer = self._loop.call_at(now + phase * min(scraper.interval_s, MAX_BACKOFF_S), self._tick)

    @property
    def is_waiting(self) -> bool:
        """Whether a poll is in flight."""
        return self._deadline is not None

    def stop(self) -> asyncio.Task[None] | None:
        """End all work; the task that may still have to notice it."""
        self._timer.cancel()
        self._deadline = None
        return self._hang_up()

    def answered(self, connection: "_Connection") -> None:
        """Take in the reply that is complete."""
        reply = connection.reply
        if reply.status != 200:
            self._fail(f"answers with status {reply.status}")
            return
        reading = read_page(reply.body(), self.engine, self._begun_at)
        if not reading.says_load:
            self._fail(f"has a page without any load metric of {self.engine.name}")
            return
        self._deadline = None
        if reply.keeps_alive:
            connection.is_used = True
            reply.reset()
        else:
            self._hang_up()
        num_failures, self._num_failures = self._num_failures, 0
        self._scraper.on_event(
            Scraped(
                at=self._scraper.clock(),
                endpoint_id=self._endpoint.id,
                load=reading.load,
                num_first_tokens=reading.num_first_tokens,
                process_start_at=reading.process_start_at,
            )
        )
        if num_failures:
            self._scraper.on_problem(f"endpoint {self._endpoint.id}: its metrics can be read again")

    def broke(self, connection: "_Connection", reason: str) -> None:
        """The connection is closed, or must be."""
        if connection is not self._connection:
            return
        self._hang_up()
        if self._deadline is None:
            return
        if connection.is_used and not connection.reply.has_begun:
            # The server closed an idle connection while the request was on its way.
            self._connect()
        else:
            self._fail(reason)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._deadline is None:
            self._deadline = now + self._scraper.timeout_s
            self._begun_at = self._scraper.clock()
            if self._connection is None:
                self._connect()
            else:
                self._connection.send(self._request)
        elif now >= self._deadline:
            self._fail(f"gives no whole answer within {self._scraper.timeout_s:g} s")
            return
        self._arm(min(next_turn(now, self._scraper.interval_s, self._phase), self._deadline))

    def _arm(self, when: float) -> None:
        self._timer.cancel()
        self._timer = self._loop.call_at(when, self._tick)

    def _fail(self, reason: str) -> None:
        self._deadline = None
        self._hang_up()
        self.num_errors += 1
        self._num_failures += 1
        self._arm(self._loop.time() + backoff_s(self._num_failures, self._scraper.interval_s, self._phase))
        if self._num_failures == 1:
            self._scraper.on_problem(f"endpoint {self._endpoint.id}: {reason}; its last metrics are kept")

    def _hang_up(self) -> asyncio.Task[None] | None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        task, self._connecting = self._connecting, None
        if task is not None:
            task.cancel()
        return task

    def _connect(self) -> None:
        self._connecting = self._loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            _, connection = await self._loop.create_connection(
                lambda: _Connection(self), self._endpoint.address, self.port, ssl=self._scraper.tls
            )
        except (OSError, ValueError, OverflowError) as error:
            self._connecting = None
            self._fail(f"cannot be reached: {error}")
            return
        self._connecting = None
        self._connection = connection
        if connection.is_open:
            connection.send(self._request)
        else:
            self._fail("closes the connection at once")


class _Connection(asyncio.BufferedProtocol):
    """One connection, which belongs to one poller."""

    def __init__(self, poller: _Poller) -> None:
        self.reply = HttpReply()
        self.is_used = False
        """Whether an answer has come over it already."""
        self._poller = poller
        self._transport: asyncio.Transport | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None

    def send(self, request: bytes) -> None:
        if self._transport is not None:
            self._transport.write(request)

    def abort(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an assertion: uvloop's transports are no subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.reply.space()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._poller.is_waiting:
            self._poller.broke(self, "sends what was not asked for")
            return
        try:
            is_complete = self.reply.received(nbytes)
        except BadReply as error:
            self._poller.broke(self, f"answers with what is no metrics page: {error}")
            return
        if is_complete:
            self._poller.answered(self)

    def eof_received(self) -> None:
        if self.reply.ended():
            self._poller.answered(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._poller.broke(self, f"closes the connection before its answer is complete ({exc or 'end of stream'})")


def next_turn(now: float, interval_s: float, phase: float) -> float:
    """The next instant of a grid that is ``phase`` intervals off zero, at least half an interval from ``now``.

    >>> [round(next_turn(now, 0.05, 0.2), 3) for now in (1.01, 1.034, 1.036)]
    [1.06, 1.06, 1.11]
    """
    return (round(now / interval_s - phase) + 1 + phase) * interval_s


def backoff_s(num_failures: int, interval_s: float, phase: float) -> float:
    """How long to wait behind that many failures in a row: doubled each time, up to 1 s, but never below the interval.

    The phase, 0..1, takes off up to a half, so that a fleet that failed as one does not come back as one.

    >>> [round(backoff_s(n, 0.05, 0.5), 3) for n in (1, 2, 3, 4, 5, 6, 1000)]
    [0.075, 0.15, 0.3, 0.6, 0.75, 0.75, 0.75]
    >>> backoff_s(3, 10.0, 0.5)
    10.0
    """
    doubled_s = interval_s * 2.0 ** min(num_failures, 16)
    return max(interval_s, min(MAX_BACKOFF_S, doubled_s) * (1.0 - phase / 2))


def _request(address: str, port: int, path: str) -> bytes:
    host = f"[{address}]" if ":" in address else address
    return (
        f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: tessera\r\n"
        f"Accept: text/plain\r\nAccept-Encoding: identity\r\n\r\n"
    ).encode("ascii", "replace")
