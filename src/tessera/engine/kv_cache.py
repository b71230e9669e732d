"""Which blocks does the KV cache hold, for whom, and which go first?

Blocks are kept as runs, one for each segment of a prompt, in a tree: a run lies below the
run that comes before it, so that a path from the root is a prompt. A block belongs to the
segment in which its last token lies; a short segment may have none.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from tessera.engine.events import CacheCounters

Content = tuple[int | str, int]
"""What a segment is compared by: its name and its number of tokens."""


class Link(NamedTuple):
    """One segment of a prompt as the cache sees it."""

    content: Content
    first_block: int
    """Index of its first block in the prompt."""
    num_blocks: int
    """Full blocks that end in it, 0 or more."""


def chain_of(contents: Sequence[Content], block_size: int) -> list[Link]:
    """The links of a prompt.

    >>> chain_of([(7, 20), (8, 5), (9, 24)], 16)
    [Link(content=(7, 20), first_block=0, num_blocks=1), Link(content=(8, 5), first_block=1, num_blocks=0), \
Link(content=(9, 24), first_block=1, num_blocks=2)]
    """
    links: list[Link] = []
    num_tokens = first_block = 0
    for content in contents:
        num_tokens += content[1]
        end = num_tokens // block_size
        links.append(Link(content, first_block, end - first_block))
        first_block = end
    return links


class Run:
    """The blocks of one segment behind all that comes before it: resident from its first block on."""

    __slots__ = ("children", "first_key", "link", "num_holders", "num_resident", "parent")

    def __init__(self, parent: "Run | None", link: Link, first_key: int) -> None:
        """A run without a resident block."""
        self.parent = parent
        self.link = link
        self.first_key = first_key
        self.num_resident = 0
        self.num_holders = 0
        self.children: dict[Content, Run] = {}

    @property
    def end_block(self) -> int:
        """Index behind its last block in the prompt."""
        return self.link.first_block + self.link.num_blocks


class Match(NamedTuple):
    """What the cache has of a prompt."""

    runs: list[Run]
    """Of its first segments."""
    num_blocks: int
    """Blocks that need not be computed."""
    num_idle: int
    """Of those, blocks that nobody holds: holding them takes as much free room."""


class Holding:
    """What one sequence holds of the cache."""

    __slots__ = ("chain", "num_blocks", "num_full", "owner", "runs")

    def __init__(self, owner: tuple[str, int], chain: list[Link]) -> None:
        """Nothing yet.

        Args:
            owner: request id and choice, for the log.
            chain: the prompt's links and, as the last, the output's.
        """
        self.owner = owner
        self.chain = chain
        self.runs: list[Run] = []
        self.num_full = 0
        """Blocks that lie in runs."""
        self.num_blocks = 0
        """All: the rest are its own and have no name."""


class Stored(NamedTuple):
    """For the log: these blocks were computed."""

    owner: tuple[str, int]
    first_block: int
    keys: range


class Removed(NamedTuple):
    """For the log: these were evicted."""

    keys: range


_ROOT: Final = Link((0, 0), 0, 0)


class KVCache:
    """Blocks in runs, evicted least recently used first and a prompt's tail before its head.

    ``num_used + num_cached + num_empty == num_blocks`` at any time: held by sequences; in no
    use but still found by their content; with no content. Memory is bounded by the blocks:
    a run without a holder, a resident block or a run below it is dropped.

    Where two sequences compute the same blocks at once, the second finds those of the first
    (vLLM keeps both copies until one is evicted).
    Source: vLLM 0.32, ``vllm/v1/core/block_pool.py`` and ``kv_cache_manager.py``.
    """

    __slots__ = (
        "_cached",
        "_next_key",
        "_num_hit",
        "_num_queried",
        "_root",
        "block_size",
        "log",
        "num_blocks",
        "num_cached",
        "num_used",
    )

    def __init__(self, num_blocks: int, block_size: int, *, keeps_log: bool = False) -> None:
        """An empty cache of ``num_blocks`` blocks of ``block_size`` tokens."""
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.num_used = 0
        self.num_cached = 0
        self.log: list[Stored | Removed] | None = [] if keeps_log else None
        self._root = Run(None, _ROOT, 0)
        self._cached: OrderedDict[Run, None] = OrderedDict()
        self._next_key = 0
        self._num_queried = 0
        self._num_hit = 0

    @property
    def num_free(self) -> int:
        """Blocks that can be taken."""
        return self.num_blocks - self.num_used

    @property
    def num_empty(self) -> int:
        """Blocks without content."""
        return self.num_blocks - self.num_used - self.num_cached

    @property
    def counters(self) -> CacheCounters:
        """In tokens."""
        return CacheCounters(self._num_queried, self._num_hit)

    def count(self, num_queried: int, num_hit: int) -> None:
        """Enter a lookup that led to an admission, in tokens."""
        self._num_queried += num_queried
        self._num_hit += num_hit

    def blocks_for(self, num_tokens: int) -> int:
        """Blocks that so many tokens take."""
        return -(-num_tokens // self.block_size)

    def match(self, chain: Sequence[Link], num_tokens: int) -> Match:
        """What is resident of the first ``num_tokens`` tokens of a prompt, always one token less than all."""
        runs: list[Run] = []
        num_blocks = num_idle = 0
        run = self._root
        for link in chain:
            child = run.children.get(link.content)
            if child is None:
                break
            runs.append(child)
            num_blocks = link.first_block + child.num_resident
            if not child.num_holders:
                num_idle += child.num_resident
            if child.num_resident < link.num_blocks:
                break
            run = child
        excess = num_blocks - (num_tokens - 1) // self.block_size
        if excess > 0:
            num_blocks -= excess
            num_idle = max(0, num_idle - excess)
        return Match(runs, num_blocks, num_idle)

    def fits(self, num_tokens: int, match: Match, num_free: int) -> bool:
        """Whether so many free blocks suffice for all of a prompt."""
        return self.blocks_for(num_tokens) - match.num_blocks + match.num_idle <= num_free

    def hold(self, holding: Holding, match: Match) -> None:
        """Let a sequence that holds nothing hold what was matched."""
        for run in match.runs:
            self._hold(run)
        holding.runs = match.runs
        holding.num_full = holding.num_blocks = match.num_blocks

    def grow(self, holding: Holding, num_tokens: int) -> None:
        """Let a sequence hold the blocks of its first ``num_tokens`` tokens. There must be room."""
        self.num_used -= holding.num_blocks - holding.num_full
        num_full = num_tokens // self.block_size
        self._extend(holding, num_full)
        holding.num_full = num_full
        holding.num_blocks = self.blocks_for(num_tokens)
        self.take(holding.num_blocks - num_full)

    def reserve(self, holding: Holding, num_tokens: int) -> None:
        """Let a sequence hold blocks for its first ``num_tokens`` tokens, of which more will come than it has."""
        num_blocks = self.blocks_for(num_tokens)
        self.take(num_blocks - holding.num_blocks)
        holding.num_blocks = num_blocks

    def name(self, holding: Holding, num_tokens: int) -> None:
        """Let the full blocks of a sequence's first tokens be found by their content, and give back the rest.

        Blocks that ``take`` gave it since it last grew were only counted; here they are accounted for.
        """
        holding.num_blocks = self.blocks_for(num_tokens)
        self.grow(holding, num_tokens - num_tokens % self.block_size)

    def release_reserved(self, holding: Holding, num_tokens: int) -> None:
        """Let go of all that a sequence holds for which blocks are reserved beyond its ``num_tokens``."""
        num_reserved = holding.num_blocks - self.blocks_for(num_tokens)
        self.num_used -= num_reserved
        self.release(holding, num_tokens)

    def release(self, holding: Holding, num_tokens: int) -> None:
        """Let go of all that a sequence holds, which is ``num_tokens``; its full blocks stay until they are evicted."""
        self.name(holding, num_tokens)
        for run in reversed(holding.runs):
            run.num_holders -= 1
            if run.num_holders:
                continue
            if run.num_resident:
                self._cached[run] = None
                self.num_cached += run.num_resident
                self.num_used -= run.num_resident
            else:
                self._drop(run)
        holding.runs = []
        holding.num_full = holding.num_blocks = 0

    def take(self, num_blocks: int) -> None:
        """Use free blocks: empty ones first, then the longest unused. There must be as many."""
        excess = num_blocks - self.num_empty
        self.num_used += num_blocks
        while excess > 0:
            run = next(iter(self._cached))
            num_evicted = min(excess, run.num_resident)
            excess -= num_evicted
            run.num_resident -= num_evicted
            self.num_cached -= num_evicted
            if self.log is not None:
                first = run.first_key + run.num_resident
                self.log.append(Removed(range(first, first + num_evicted)))
            if not run.num_resident:
                del self._cached[run]
                self._drop(run)

    def clear(self) -> bool:
        """Forget all content; refused, with false, while a sequence holds any."""
        if self.num_used:
            return False
        self._root = Run(None, _ROOT, 0)
        self._cached.clear()
        self.num_cached = 0
        return True

    def _extend(self, holding: Holding, num_full: int) -> None:
        runs, chain = holding.runs, holding.chain
        position = max(0, len(runs) - 1)
        while position < len(chain) and (position < len(runs) or num_full > chain[position].first_block):
            if position == len(runs):
                runs.append(self._below(runs[-1] if runs else self._root, chain[position]))
            run = runs[position]
            num_resident = min(num_full - run.link.first_block, run.link.num_blocks)
            if num_resident > run.num_resident:
                self._store(holding, run, num_resident)
            position += 1

    def _store(self, holding: Holding, run: Run, num_resident: int) -> None:
        old, run.num_resident = run.num_resident, num_resident
        self.take(num_resident - old)
        if self.log is not None:
            keys = range(run.first_key + old, run.first_key + num_resident)
            self.log.append(Stored(holding.owner, run.link.first_block + old, keys))

    def _below(self, parent: Run, link: Link) -> Run:
        run = parent.children.get(link.content)
        if run is None:
            run = parent.children[link.content] = Run(parent, link, self._next_key)
            self._next_key += link.num_blocks
        self._hold(run)
        return run

    def _hold(self, run: Run) -> None:
        if not run.num_holders and run.num_resident:
            del self._cached[run]
            self.num_cached -= run.num_resident
            self.num_used += run.num_resident
        run.num_holders += 1

    def _drop(self, run: Run) -> None:
        """Forget a run that has nothing left, and those above it that only led to it."""
        while run.parent is not None and not (run.num_holders or run.num_resident or run.children):
            del run.parent.children[run.link.content]
            run = run.parent
