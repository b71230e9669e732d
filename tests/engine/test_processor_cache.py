"""The processor cache: bounded in bytes, least recently used first."""

from tessera.engine.events import CacheCounters
from tessera.engine.processor_cache import ProcessorCache


def test_an_item_is_there_the_second_time() -> None:
    cache = ProcessorCache(10)
    assert [cache.touch("a", 10), cache.touch("a", 10)] == [False, True]
    assert cache.counters == CacheCounters(num_queried=2, num_hit=1)


def test_the_least_recently_used_goes() -> None:
    cache = ProcessorCache(10)
    cache.touch("a", 5)
    cache.touch("b", 5)
    cache.touch("a", 5)
    cache.touch("c", 1)
    assert cache.num_bytes == 6
    assert [cache.touch(name, 0) for name in "acb"] == [True, True, False]


def test_an_item_larger_than_the_cache_is_not_kept() -> None:
    cache = ProcessorCache(10)
    cache.touch("a", 5)
    assert [cache.touch("b", 11), cache.touch("b", 11), cache.touch("a", 5)] == [False, False, True]
    assert cache.num_bytes == 5


def test_a_cache_of_nothing() -> None:
    cache = ProcessorCache(0)
    assert [cache.touch("a", 1), cache.touch("a", 1)] == [False, False]
