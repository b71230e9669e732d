"""The encoder cache: needed entries stay, the longest unneeded go first."""

from hypothesis import given
from hypothesis import strategies as st

from tessera.engine.encoder_cache import EncoderCache
from tessera.engine.events import CacheCounters


def test_holding_an_item() -> None:
    cache = EncoderCache(10)
    assert not cache.hold("a", 1)
    cache.store("a", 4, 1)
    assert cache.hold("a", 2)
    assert (cache.num_embeds, cache.num_held) == (4, 4)
    assert cache.fits(6)
    assert not cache.fits(7)
    cache.release("a", 1)
    assert not cache.fits(7)
    cache.release("a", 2)
    assert cache.fits(10)
    assert "a" in cache
    assert cache.counters == CacheCounters(num_queried=2, num_hit=1)


def test_a_second_chunk_of_the_same_holder_asks_nothing() -> None:
    cache = EncoderCache(10)
    cache.store("a", 4, 1)
    assert cache.hold("a", 1)
    assert cache.counters == CacheCounters(num_queried=1, num_hit=0)


def test_the_longest_unneeded_is_evicted_and_no_more_than_must() -> None:
    cache = EncoderCache(10)
    for name in "abc":
        cache.store(name, 3, 1)
    for name in "bca":
        cache.release(name, 1)
    cache.store("d", 4, 1)
    assert [name for name in "abcd" if name in cache] == ["a", "c", "d"]
    assert cache.num_embeds == 10


def test_one_that_is_needed_again_is_not_evicted() -> None:
    cache = EncoderCache(6)
    for name in "ab":
        cache.store(name, 3, 1)
        cache.release(name, 1)
    assert cache.hold("a", 2)
    cache.store("c", 3, 2)
    assert [name for name in "abc" if name in cache] == ["a", "c"]


def test_a_release_by_one_who_does_not_hold_it_is_ignored() -> None:
    cache = EncoderCache(6)
    cache.release("a", 1)
    cache.store("a", 3, 1)
    cache.release("a", 2)
    assert cache.num_held == 3


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 3), st.booleans())))
def test_never_above_its_size(steps: list[tuple[str, int, bool]]) -> None:
    cache = EncoderCache(12)
    held: set[tuple[str, int]] = set()
    for name, holder, wants in steps:
        size = ord(name) - ord("a") + 1
        if not wants:
            cache.release(name, holder)
            held.discard((name, holder))
        elif cache.hold(name, holder):
            held.add((name, holder))
        elif cache.fits(size):
            cache.store(name, size, holder)
            held.add((name, holder))
        assert all(name in cache for name, _ in held)
        assert cache.num_held == sum(ord(name) - ord("a") + 1 for name in {name for name, _ in held})
        assert cache.num_held <= cache.num_embeds <= 12
