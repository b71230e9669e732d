import pytest

from tessera.core.facts import Load
from tessera.engine.requests import EngineRequest, TextSegment
from tessera.sim.kernel import Kernel
from tessera.sim.servers import Server, endpoints, last_turn


def ask(name):
    return EngineRequest(name, (TextSegment(1, 10),), 2)


@pytest.fixture
def bench(round_engine):
    """A server scraped every 0.3 s from 0.15 s on, its kernel, and what it tells."""
    kernel, told = Kernel(), []
    server = Server(kernel, endpoints(1)[0], round_engine(), scrape_interval_s=0.3, phase=0.5)
    server.on_event = lambda event: told.append((kernel.now, type(event).__name__, event.request_id))
    return kernel, server, told


def test_events_are_told_at_their_instants(bench):
    kernel, server, told = bench
    kernel.at(1.0, lambda: server.submit(ask("a")))
    kernel.at(1.5, lambda: server.submit(ask("b")))
    kernel.run()
    assert told == [(2.0, "FirstToken", "a"), (2.5, "FirstToken", "b"), (3.0, "Finished", "a"), (3.5, "Finished", "b")]


def test_an_abort_takes_what_was_due(bench):
    kernel, server, told = bench
    kernel.at(1.0, lambda: server.submit(ask("a")))
    kernel.at(1.2, lambda: server.submit(ask("b")))
    kernel.at(1.5, lambda: server.abort("a"))
    kernel.run()
    assert told == [(2.2, "FirstToken", "b"), (3.2, "Finished", "b")]


def page_at(bench, when, *, with_counter=True):
    kernel, server, _ = bench
    pages = []
    kernel.at(when, lambda: pages.append(server.scraped(with_counter=with_counter)))
    return pages


def test_a_page_is_that_of_the_last_scrape_not_of_now(bench):
    kernel, server, _ = bench
    # Scrapes at 0.15, 0.45, 0.75, 1.05, 1.35, ...
    kernel.at(0.5, lambda: server.submit(ask("a")))
    before, after, first = page_at(bench, 0.7), page_at(bench, 0.8), page_at(bench, 1.7)
    kernel.run()
    assert before[0].at == pytest.approx(0.45)
    assert before[0].load.num_running == 0
    assert after[0].at == pytest.approx(0.75)
    assert after[0].load.num_running == 1
    # The first token came at 1.5, behind the scrape at 1.35 and before the one at 1.65.
    assert (first[0].at, first[0].num_first_tokens) == (pytest.approx(1.65), 1)


def test_the_state_at_a_scrape_is_kept_before_it_changes(bench):
    kernel, server, _ = bench
    kernel.at(0.2, lambda: server.submit(ask("a")))
    # Scraped at 1.05; the first token comes at 1.2, the page is asked for at 1.3.
    pages = page_at(bench, 1.3)
    kernel.run()
    assert (pages[0].at, pages[0].num_first_tokens) == (pytest.approx(1.05), 0)


def test_a_page_is_told_once(bench):
    kernel, *_ = bench
    first, again, later = page_at(bench, 0.5), page_at(bench, 0.7), page_at(bench, 0.8)
    kernel.run()
    assert [page[0] is None for page in (first, again, later)] == [False, True, False]


def test_scrapes_that_nobody_looked_at_are_counted(bench):
    kernel, server, _ = bench
    skipped = []
    # The last scrapes are those at 0.45, 0.75 and 1.95.
    for when in (0.5, 0.8, 2.0):
        kernel.at(when, lambda: skipped.append((server.scraped(with_counter=True), server.num_skipped)[1]))
    kernel.run()
    assert skipped == [0, 0, 3]


def test_before_the_first_scrape_there_is_no_page(bench):
    kernel, *_ = bench
    pages = page_at(bench, 0.1)
    kernel.run()
    assert pages == [None]


def test_the_whole_page(bench):
    kernel, *_ = bench
    pages = page_at(bench, 0.2, with_counter=False)
    kernel.run()
    assert pages[0].load == Load(
        num_waiting=0,
        num_running=0,
        kv_usage_fraction=0.25,
        block_size=16,
        num_blocks=100,
        num_cache_tokens=1600,
        at=pages[0].at,
    )
    assert pages[0].num_first_tokens is None
    assert pages[0].endpoint_id == "10.0.0.1:8000"


def test_without_scrapes_there_is_no_page(round_engine):
    kernel = Kernel()
    server = Server(kernel, endpoints(1)[0], round_engine(), scrape_interval_s=None, phase=0.5)
    kernel.at(5.0, lambda: server.submit(ask("a")))
    pages = []
    kernel.at(6.0, lambda: pages.append(server.scraped(with_counter=True)))
    kernel.run()
    assert pages == [None]


def test_facts_have_what_happens_at_this_very_instant_in_them(bench):
    kernel, server, told = bench
    kernel.at(2.0, lambda: told.append(server.facts().num_first_tokens))
    kernel.at(1.0, lambda: server.submit(ask("a")))
    kernel.run()
    assert told == [(2.0, "FirstToken", "a"), 1, (3.0, "Finished", "a")]


@pytest.mark.parametrize("now", [0.05 * n for n in range(1, 200)])
def test_the_last_turn_lies_before_now_and_less_than_an_interval(now):
    for phase in (0.0, 0.3, 0.999):
        turn = last_turn(now, 0.05, phase)
        assert turn < now
        assert now - turn <= 0.05 + 1e-9


def test_endpoints_have_names_of_their_own():
    many = endpoints(1000)
    assert len({each.id for each in many}) == 1000
