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


def test_defaults_and_the_word_for_a_full_pool(build):
    assert kept(build, [99, 100], [0, 0]) == [0]
    assert kept(build, [0, 0], [999_999, 1_000_000], concurrency_mode="tokens") == [0]
    assert ConcurrencyDetector.rejection is DropReason.SATURATED
    assert ConcurrencyDetector(in_flight_load_producer_name="x").reads_of() == ((InFlightLoad, "x"),)
