import pytest

from tessera.core.errors import DropReason
from tessera.core.facts import InFlightLoad
from tessera.core.filters.concurrency_detector import ConcurrencyDetector
from tessera.core.rng import SeededRng


def kept(build, requests, tokens, **parameters):
    candidates = build.in_flight(num_requests=requests, num_uncached_tokens=tokens)
    passed = ConcurrencyDetector(**parameters).keep(build.priced(), candidates, SeededRng(1, "r"))
    return [candidates.index(each) for each in passed]


@pytest.mark.parametrize(
    ("parameters", "indices"),
    [
        ({"max_concurrency": 10}, [0, 1]),
        ({"max_concurrency": 10, "headroom": 0.1}, [0, 1, 2]),
        ({"max_concurrency": 1}, []),
        ({"concurrency_mode": "tokens", "max_token_concurrency": 500}, [1, 2]),
        ({"concurrency_mode": "tokens", "max_token_concurrency": 501}, [0, 1, 2, 3]),
        ({"concurrency_mode": "hybrid", "max_concurrency": 10, "max_token_concurrency": 500}, [1]),
    ],
)
def test_at_the_limit_is_full(build, parameters, indices):
    assert kept(build, [1, 9, 10, 11], [500, 499, 0, 500], **parameters) == indices


@pytest.mark.parametrize(
    ("parameters", "indices"),
    [
        ({"max_concurrency": 8}, [0, 1, 2, 3]),
        ({"max_concurrency": 7, "headroom": 0.2}, [0, 1, 2, 3]),
        ({"max_concurrency": 7}, []),
        ({"concurrency_mode": "tokens", "max_token_concurrency": 375}, [0, 1, 2, 3]),
        ({"concurrency_mode": "tokens", "max_token_concurrency": 374}, []),
        ({"concurrency_mode": "hybrid", "max_concurrency": 28, "max_token_concurrency": 1500}, [0, 1, 2, 3]),
        ({"concurrency_mode": "hybrid", "max_concurrency": 7, "max_token_concurrency": 1500}, []),
    ],
)
def test_a_pool_is_full_when_its_mean_is(build, parameters, indices):
    # 31 requests and 1,499 tokens at four endpoints, the first of which has neither
    assert kept(build, [0, 9, 10, 12], [0, 499, 500, 500], scope="pool", **parameters) == indices


def test_an_empty_pool_keeps_nobody(build):
    assert kept(build, [], [], scope="pool") == []


def test_defaults_and_the_word_for_a_full_pool(build):
    assert kept(build, [99, 100], [0, 0]) == [0]
    assert kept(build, [0, 0], [999_999, 1_000_000], concurrency_mode="tokens") == [0]
    assert ConcurrencyDetector.rejection is DropReason.SATURATED
    assert ConcurrencyDetector(in_flight_load_producer_name="x").reads_of() == ((InFlightLoad, "x"),)
