"""Runs of blocks against a cache that keeps every block by itself, as vLLM does."""

from collections import OrderedDict
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.engine.events import CacheCounters
from tessera.engine.kv_cache import Content, Holding, KVCache, Link, Removed, Run, Stored, chain_of

SIZE = 4


def holding(*contents: Content, output: tuple[int, int] = (0, 0)) -> Holding:
    """Of a prompt of these, whose output's link is named and has so many blocks."""
    chain = chain_of(contents, SIZE)
    first = sum(num_tokens for _, num_tokens in contents) // SIZE
    return Holding(("r", 0), [*chain, Link((-1 - output[0], 0), first, output[1])])


def admit(cache: KVCache, wanted: Holding, num_tokens: int) -> int:
    """Hold and compute a whole prompt; how many of its blocks were there."""
    match = cache.match(wanted.chain, num_tokens)
    cache.hold(wanted, match)
    cache.grow(wanted, num_tokens)
    return match.num_blocks


def serve(cache: KVCache, *contents: Content) -> int:
    """Admit a prompt and let it go; how many of its blocks were there."""
    wanted, num_tokens = holding(*contents), sum(num_tokens for _, num_tokens in contents)
    num_blocks = admit(cache, wanted, num_tokens)
    cache.release(wanted, num_tokens)
    return num_blocks


def test_only_full_blocks_are_found_and_never_the_whole_prompt() -> None:
    cache = KVCache(100, SIZE)
    assert serve(cache, (1, 10), (2, 6)) == 0
    # The block over the seam, tokens 8 to 11, belongs to the second segment.
    assert serve(cache, (1, 10), (3, 6)) == 2
    assert serve(cache, (1, 10), (2, 6)) == 3
    assert serve(cache, (1, 10), (2, 6), (4, 1)) == 4
    assert serve(cache, (5, 10), (2, 6)) == 0


def test_short_segments_without_a_block_of_their_own() -> None:
    cache = KVCache(100, SIZE)
    assert serve(cache, (1, 1), (2, 1), (3, 1), (4, 6)) == 0
    assert serve(cache, (1, 1), (2, 1), (3, 1), (4, 6)) == 2
    assert serve(cache, (1, 1), (2, 1), (5, 1), (4, 6)) == 0


def test_what_runs_takes() -> None:
    cache = KVCache(10, SIZE)
    first, second = holding((1, 8), (2, 6)), holding((1, 8), (3, 5))
    admit(cache, first, 14)
    assert (cache.num_used, cache.num_cached, cache.num_empty) == (4, 0, 6)
    admit(cache, second, 13)
    assert (cache.num_used, cache.num_cached, cache.num_empty) == (6, 0, 4)
    cache.release(first, 14)
    # Its third block keeps its content, the fourth was not full.
    assert (cache.num_used, cache.num_cached, cache.num_empty) == (4, 1, 5)
    cache.release(second, 13)
    assert (cache.num_used, cache.num_cached, cache.num_empty) == (0, 4, 6)


def test_the_tail_goes_before_the_head_and_the_longest_unused_first() -> None:
    cache = KVCache(6, SIZE)
    serve(cache, (1, 12))
    serve(cache, (2, 12))
    cache.take(2)
    assert cache.match(chain_of([(1, 12)], SIZE), 13).num_blocks == 1
    assert cache.match(chain_of([(2, 12)], SIZE), 13).num_blocks == 3
    cache.take(2)
    assert cache.match(chain_of([(1, 12)], SIZE), 13).num_blocks == 0
    assert cache.match(chain_of([(2, 12)], SIZE), 13).num_blocks == 2


def test_a_shared_head_outlives_the_tails_of_all_who_used_it() -> None:
    cache = KVCache(4, SIZE)
    serve(cache, (1, 8), (2, 4))
    serve(cache, (1, 8), (3, 4))
    cache.take(2)
    assert cache.match(chain_of([(1, 8)], SIZE), 9).num_blocks == 2
    assert cache.match(chain_of([(1, 8), (3, 4)], SIZE), 13).num_blocks == 2


def test_output_stays_like_a_prompts_tail() -> None:
    cache = KVCache(10, SIZE)
    first = holding((1, 6), output=(7, 3))
    admit(cache, first, 6)
    cache.take(3)
    cache.release(first, 17)
    # 17 tokens are 4 full blocks of 5; the prompt has one, the output three.
    assert (cache.num_used, cache.num_cached) == (0, 4)
    assert cache.match(first.chain, 18).num_blocks == 4
    assert cache.match(holding((1, 6), output=(8, 3)).chain, 18).num_blocks == 1


def test_room() -> None:
    cache = KVCache(5, SIZE)
    serve(cache, (1, 12))
    match = cache.match(chain_of([(1, 12), (2, 8)], SIZE), 20)
    assert (match.num_blocks, match.num_idle) == (3, 3)
    assert cache.fits(20, match, 5)
    assert not cache.fits(20, match, 4)
    # The whole cache, asked for again: the last block is computed where it lies.
    assert cache.fits(12, cache.match(chain_of([(1, 12)], SIZE), 12), 3)


def test_clearing() -> None:
    cache = KVCache(5, SIZE)
    wanted = holding((1, 8))
    admit(cache, wanted, 8)
    assert not cache.clear()
    cache.release(wanted, 8)
    assert cache.clear()
    assert cache.num_empty == 5
    assert serve(cache, (1, 8)) == 0


def test_counters() -> None:
    cache = KVCache(5, SIZE)
    cache.count(10, 8)
    cache.count(5, 0)
    assert cache.counters == CacheCounters(num_queried=15, num_hit=8)


def test_the_log_names_what_is_stored_and_removed() -> None:
    cache = KVCache(3, SIZE, keeps_log=True)
    serve(cache, (1, 8))
    serve(cache, (2, 8))
    assert cache.log == [
        Stored(("r", 0), 0, range(2)),
        Removed(range(1, 2)),
        Stored(("r", 0), 0, range(2, 4)),
    ]


def test_memory_does_not_grow_with_what_was_seen() -> None:
    cache = KVCache(8, SIZE)
    for key in range(1000):
        serve(cache, (key, 1), (key, 2), (key, 10))
    assert num_runs(cache._root) <= 3 * 8


def num_runs(run: Run) -> int:
    """Below and with this one."""
    return 1 + sum(map(num_runs, run.children.values()))


Name = tuple[Content, ...]


@dataclass
class Blocks:
    """Every block by itself: a queue of free ones, found by the contents up to their end."""

    num_blocks: int
    holders: dict[tuple[Name, int], int] = field(default_factory=dict)
    free: OrderedDict[tuple[Name, int], None] = field(default_factory=OrderedDict)
    num_unnamed: int = 0

    def names(self, contents: list[Content], num_tokens: int) -> list[tuple[Name, int]]:
        ends = [sum(size for _, size in contents[: end + 1]) for end in range(len(contents))]
        found = []
        for index in range(num_tokens // SIZE):
            upto = next(number for number, end in enumerate(ends) if end >= (index + 1) * SIZE)
            found.append((tuple(contents[: upto + 1]), index))
        return found

    def hit(self, contents: list[Content], num_tokens: int) -> int:
        number = 0
        for name in self.names(contents, num_tokens - 1):
            if name not in self.holders:
                break
            number += 1
        return number

    def _make_room(self) -> None:
        if len(self.holders) + self.num_unnamed == self.num_blocks:
            evicted, _ = self.free.popitem(last=False)
            del self.holders[evicted]

    def admit(self, contents: list[Content], num_tokens: int) -> None:
        names = self.names(contents, num_tokens)
        there = [name for name in names if name in self.holders]
        for name in there:
            self.free.pop(name, None)
            self.holders[name] += 1
        for name in names:
            if name not in there:
                self._make_room()
                self.holders[name] = 1
        for _ in range(bool(num_tokens % SIZE)):
            self._make_room()
            self.num_unnamed += 1

    def release(self, contents: list[Content], num_tokens: int) -> None:
        self.num_unnamed -= bool(num_tokens % SIZE)
        for name in reversed(self.names(contents, num_tokens)):
            self.holders[name] -= 1
            if not self.holders[name]:
                self.free[name] = None

    @property
    def num_used(self) -> int:
        return len(self.holders) - len(self.free) + self.num_unnamed


contents_of = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from([1, 3, 4, 7, 12])).map(
        lambda pair: (pair[0] * 100 + pair[1], pair[1])
    ),
    min_size=1,
    max_size=4,
)


@settings(max_examples=300)
@given(st.lists(st.tuples(contents_of, st.integers(0, 3)), max_size=40))
def test_as_if_every_block_were_kept_by_itself(asked: list[tuple[list[Content], int]]) -> None:
    cache, blocks = KVCache(16, SIZE), Blocks(16)
    running: list[tuple[list[Content], int, Holding]] = []
    for contents, num_left in asked:
        num_tokens = sum(size for _, size in contents)
        wanted = holding(*contents)
        while running and not cache.fits(num_tokens, cache.match(wanted.chain, num_tokens), cache.num_free):
            release(cache, blocks, *running.pop(0))
        assert cache.match(wanted.chain, num_tokens).num_blocks == blocks.hit(contents, num_tokens)
        if cache.fits(num_tokens, cache.match(wanted.chain, num_tokens), cache.num_free):
            admit(cache, wanted, num_tokens)
            blocks.admit(contents, num_tokens)
            running.append((contents, num_tokens, wanted))
        while len(running) > num_left:
            release(cache, blocks, *running.pop())
        assert cache.num_used == blocks.num_used
        assert cache.num_cached == len(blocks.free)
        assert cache.num_used + cache.num_cached + cache.num_empty == 16


def release(cache: KVCache, blocks: Blocks, contents: list[Content], num_tokens: int, held: Holding) -> None:
    cache.release(held, num_tokens)
    blocks.release(contents, num_tokens)
