import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from tessera.core.facts import Scraped
from tessera.core.types import Endpoint
from tessera.live.scrape import Scraper, backoff_s, next_turn

PAGE = b"vllm:num_requests_waiting 3\nvllm:num_requests_running 4\nvllm:time_to_first_token_seconds_count 9\n"
PATIENCE_S = 20.0
"""Far more than any step takes: what waits so long has failed."""


def reply(body=PAGE, status=b"200 OK", headers=b""):
    return b"HTTP/1.1 %s\r\n%scontent-length: %d\r\n\r\n%s" % (status, headers, len(body), body)


Answer = Callable[["Server", asyncio.StreamWriter], Awaitable[None]]


class Server:
    """An endpoint whose every answer is written by ``answer``."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.port = 0
        self.num_connections = 0
        self.num_requests = 0
        self.num_pending = 0
        self.max_pending = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                self.num_requests += 1
                self.num_pending += 1
                self.max_pending = max(self.max_pending, self.num_pending)
                await self.answer(self, writer)
                self.num_pending -= 1
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(answer: Answer) -> AsyncIterator[Server]:
    server = Server(answer)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


async def plain(server, writer):
    writer.write(reply())


async def hang(server, writer):
    await asyncio.get_running_loop().create_future()


class Heard:
    """What a scraper told, with a way to wait for it."""

    def __init__(self, **options) -> None:
        self.events: list[Scraped] = []
        self.problems: list[str] = []
        self._changed = asyncio.Event()
        loop = asyncio.get_running_loop()
        options = {"interval_s": 0.002, **options}
        self.scraper = Scraper(self._event, loop.time, on_problem=self._problem, **options)

    def _event(self, event):
        self.events.append(event)
        self._changed.set()

    def _problem(self, text):
        self.problems.append(text)
        self._changed.set()

    async def until(self, holds):
        async with asyncio.timeout(PATIENCE_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.scraper.close()


def endpoint_of(server, **more):
    return Endpoint(address="127.0.0.1", port=server.port, **more)


async def test_every_poll_tells_the_load_over_one_connection():
    async with serving(plain) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.events) == 5)
        event = heard.events[-1]
        assert event.endpoint_id == f"127.0.0.1:{server.port}"
        assert (event.load.num_waiting, event.load.num_running, event.num_first_tokens) == (3, 4, 9)
        assert event.load.at <= event.at
        assert heard.events[-2].at <= event.load.at
        assert (server.num_connections, heard.problems) == (1, [])
        assert heard.scraper.num_errors(event.endpoint_id) == 0
        expected = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode()
        assert server.heads[0].startswith(expected)
        assert b"\r\nAccept-Encoding: identity\r\n" in server.heads[0]


async def test_a_chunked_page_and_a_large_one_are_read():
    pages = [b"# " + b"x" * 300_000 + b"\n" + PAGE, PAGE]

    async def answer(server, writer):
        page = pages[server.num_requests % 2]
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        for start in range(0, len(page), 10_000):
            part = page[start : start + 10_000]
            writer.write(b"%x\r\n%s\r\n" % (len(part), part))
        writer.write(b"0\r\n\r\n")

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.events) == 4)
        assert {event.load.num_waiting for event in heard.events} == {3}
        assert (server.num_connections, heard.problems) == (1, [])


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n", b"HTTP/1.0 200 OK\r\n\r\n"])
async def test_a_server_that_closes_behind_each_answer_is_no_error(head):
    async def answer(server, writer):
        writer.write(head + PAGE)
        writer.close()

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.events) == 3)
        assert heard.problems == []
        assert server.num_connections >= 3


async def test_an_idle_connection_that_was_closed_is_opened_again_without_an_error():
    async def answer(server, writer):
        if server.num_requests == 2:
            writer.transport.abort()
        else:
            writer.write(reply())

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.events) == 3)
        assert (server.num_connections, heard.problems) == (2, [])
        assert heard.scraper.num_errors(endpoint_of(server).id) == 0


BROKEN = {
    "status 503": reply(status=b"503 Service Unavailable"),
    "status 307": reply(status=b"307 Temporary Redirect"),
    "no metrics page: b'ssh-2.0": b"SSH-2.0-x\r\n\r\n",
    "body of 4194305 bytes": b"HTTP/1.1 200 OK\r\ncontent-length: 4194305\r\n\r\n",
    "content-encoding": reply(headers=b"content-encoding: gzip\r\n"),
    "without any load metric of vllm": reply(b"up 1\n"),
    "behind the reply's end": reply() + b"HTTP/1.1 200 OK\r\n",
}


@pytest.mark.parametrize("why", BROKEN)
async def test_a_bad_answer_is_told_once_and_its_end_once(why):
    async def answer(server, writer):
        writer.write(BROKEN[why] if 2 <= server.num_requests <= 4 else reply())

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.problems) == 2)
        name = f"endpoint 127.0.0.1:{server.port}"
        assert heard.problems[0].startswith(name)
        assert why in heard.problems[0]
        assert heard.problems[0].endswith("its last metrics are kept")
        assert heard.problems[1] == f"{name}: its metrics can be read again"
        assert heard.scraper.num_errors(endpoint_of(server).id) == 3
        assert len(heard.events) == 2, "one before, one that ended it"


async def test_a_connection_cut_in_the_middle_of_an_answer_is_an_error():
    async def answer(server, writer):
        writer.write(reply()[:-9] if server.num_requests == 2 else reply())
        if server.num_requests == 2:
            writer.close()

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: len(heard.problems) == 2)
        assert "before its answer is complete" in heard.problems[0]


async def test_a_silent_endpoint_times_out_with_one_poll_in_flight():
    async with serving(hang) as server, Heard(timeout_s=0.05) as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: heard.problems)
        assert "gives no whole answer within 0.05 s" in heard.problems[0]
        assert server.num_requests == 1
        server.answer = plain
        await heard.until(lambda: heard.events)
        assert server.num_connections >= 2


async def test_a_server_that_hangs_up_at_once_is_an_error_before_the_time_is_out():
    listener = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with Heard(timeout_s=PATIENCE_S) as heard:
        heard.scraper.add(Endpoint(address="127.0.0.1", port=port))
        await heard.until(lambda: heard.problems)
        assert "closes the connection" in heard.problems[0]
    listener.close()


async def test_a_trickle_does_not_extend_the_time():
    async def answer(server, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(answer) as server, Heard(timeout_s=0.05) as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: heard.problems)
        assert "gives no whole answer" in heard.problems[0]


async def test_a_slow_answer_is_waited_for_and_nothing_is_asked_meanwhile():
    is_time = asyncio.Event()

    async def answer(server, writer):
        await is_time.wait()
        writer.write(reply())

    async with serving(answer) as slow, serving(plain) as other, Heard() as heard:
        heard.scraper.add(endpoint_of(slow))
        heard.scraper.add(endpoint_of(other))
        await heard.until(lambda: other.num_requests >= 10)
        assert (slow.num_requests, heard.problems) == (1, [])
        is_time.set()
        await heard.until(lambda: slow.num_requests == 3)
        assert (slow.max_pending, slow.num_connections, heard.problems) == (1, 1, [])


async def test_an_endpoint_that_refuses_is_tried_until_it_is_there():
    async with serving(plain) as server:
        pass
    async with Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: heard.problems)
        assert "cannot be reached" in heard.problems[0]
        listener = await asyncio.start_server(server.serve, "127.0.0.1", server.port)
        await heard.until(lambda: heard.events)
        assert len(heard.problems) == 2
        listener.close()


async def test_one_bad_endpoint_does_not_hold_up_the_others():
    async with serving(hang) as bad, serving(plain) as good, Heard(timeout_s=PATIENCE_S) as heard:
        heard.scraper.add(endpoint_of(bad))
        heard.scraper.add(endpoint_of(good))
        await heard.until(lambda: len(heard.events) == 5)
        assert {event.endpoint_id for event in heard.events} == {endpoint_of(good).id}


async def test_what_was_not_asked_for_closes_the_connection():
    is_idle = asyncio.Event()

    async def answer(server, writer):
        writer.write(reply())
        if server.num_requests == 1:
            await is_idle.wait()
            writer.write(reply(PAGE.replace(b"3", b"99")))

    async with serving(answer) as server, Heard(interval_s=0.2) as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: heard.events)
        is_idle.set()
        await heard.until(lambda: len(heard.events) == 2)
        assert [event.load.num_waiting for event in heard.events] == [3, 3]
        assert (server.num_connections, heard.problems) == (2, [])


@pytest.mark.parametrize("label", ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"])
async def test_the_label_names_the_engine(label):
    async def answer(server, writer):
        writer.write(reply(PAGE + b"sglang:num_queue_reqs 77\n"))

    async with serving(answer) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server, labels={label: "sglang"}))
        await heard.until(lambda: heard.events)
        assert heard.events[0].load.num_waiting == 77


async def test_an_engine_that_has_no_table_is_told_and_read_as_the_default():
    async with serving(plain) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server, labels={"llm-d.ai/engine-type": "new"}))
        await heard.until(lambda: heard.events)
        assert "is 'new', known are vllm, sglang" in heard.problems[0]
        assert heard.events[0].load.num_waiting == 3


async def test_the_metrics_port_is_its_own_where_it_is_given():
    async with serving(plain) as server, Heard() as heard:
        heard.scraper.add(Endpoint(address="127.0.0.1", port=1, metrics_port=server.port))
        await heard.until(lambda: heard.events)
        assert heard.events[0].endpoint_id == "127.0.0.1:1"


async def test_the_scrapers_port_and_path_override():
    async with serving(plain) as server, Heard(port=server.port, path="/other") as heard:
        heard.scraper.add(Endpoint(address="127.0.0.1", port=1, metrics_port=2))
        await heard.until(lambda: heard.events)
        assert server.heads[0].startswith(b"GET /other HTTP/1.1\r\n")


async def test_adding_again_goes_on_and_other_ports_start_anew():
    async with serving(plain) as first, serving(plain) as second, Heard() as heard:
        heard.scraper.add(Endpoint(address="127.0.0.1", port=1, metrics_port=first.port))
        await heard.until(lambda: len(heard.events) >= 2)
        heard.scraper.add(Endpoint(address="127.0.0.1", port=1, metrics_port=first.port, labels={"a": "b"}))
        await heard.until(lambda: len(heard.events) >= 4)
        assert first.num_connections == 1
        heard.scraper.add(Endpoint(address="127.0.0.1", port=1, metrics_port=second.port))
        num_first = first.num_requests
        await heard.until(lambda: second.num_requests >= 3)
        # One poll may have been on its way when the port changed.
        assert first.num_requests <= num_first + 1


async def test_nothing_is_told_of_an_endpoint_that_was_removed():
    async with serving(hang) as slow, serving(plain) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(slow))
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: slow.num_requests == 1 and heard.events)
        heard.scraper.remove(endpoint_of(slow))
        heard.scraper.remove(endpoint_of(slow))
        num_events = len(heard.events)
        await heard.until(lambda: len(heard.events) >= num_events + 5)
        assert {event.endpoint_id for event in heard.events} == {endpoint_of(server).id}
        assert heard.problems == []
        assert heard.scraper.num_errors(endpoint_of(slow).id) == 0


async def test_closing_ends_every_task_and_connection():
    async with serving(plain) as server, Heard() as heard:
        heard.scraper.add(endpoint_of(server))
        await heard.until(lambda: heard.events)
        heard.scraper.add(Endpoint(address="127.0.0.1", port=server.port, metrics_port=server.port))
        await heard.scraper.close()
        num_events = len(heard.events)
        assert not [task for task in asyncio.all_tasks() if "_open" in repr(task)]
        await heard.scraper.close()
        assert len(heard.events) == num_events


async def test_an_ipv6_address_stands_in_brackets():
    try:
        server = Server(plain)
        listener = await asyncio.start_server(server.serve, "::1", 0)
    except OSError:
        pytest.skip("no IPv6 loopback here")
    server.port = listener.sockets[0].getsockname()[1]
    async with Heard() as heard:
        heard.scraper.add(Endpoint(address="::1", port=server.port))
        await heard.until(lambda: heard.events)
        assert f"\r\nHost: [::1]:{server.port}\r\n".encode() in server.heads[0]
    listener.close()


@pytest.mark.parametrize(("num_failures", "seconds"), [(1, 0.1), (2, 0.2), (3, 0.4), (4, 0.8), (5, 1.0), (10**6, 1.0)])
def test_failures_in_a_row_are_spaced_out_up_to_a_second(num_failures, seconds):
    assert backoff_s(num_failures, 0.05, 0.0) == pytest.approx(seconds)
    assert backoff_s(num_failures, 0.05, 1.0) == pytest.approx(seconds / 2)
    assert backoff_s(num_failures, 2.0, 0.9) == 2.0


def test_turns_come_at_the_endpoints_own_phase_and_never_in_a_burst():
    at = 100.0
    for late in (0.0, 0.001, 0.02, 0.024, 0.026, 0.3):
        turn = next_turn(at + late, 0.05, 0.3)
        assert 0.025 <= turn - (at + late) <= 0.075
        assert (turn / 0.05 - 0.3) == pytest.approx(round(turn / 0.05 - 0.3))
        at = turn


@pytest.mark.parametrize(
    "scenario",
    [
        test_every_poll_tells_the_load_over_one_connection,
        test_a_chunked_page_and_a_large_one_are_read,
        test_an_idle_connection_that_was_closed_is_opened_again_without_an_error,
        test_a_connection_cut_in_the_middle_of_an_answer_is_an_error,
        test_a_silent_endpoint_times_out_with_one_poll_in_flight,
        test_an_endpoint_that_refuses_is_tried_until_it_is_there,
        test_what_was_not_asked_for_closes_the_connection,
        test_nothing_is_told_of_an_endpoint_that_was_removed,
    ],
)
def test_the_same_on_uvloop(scenario):
    uvloop.run(scenario())
