"""Of which pieces is a prompt made for the prefix index, and how many tokens does each stand for?

A run of text has one atom for each 64 bytes, a run of token ids one for each 16 ids, a
media item is one. An atom's key stands for the atom and for everything before it.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from tessera.core.media.digests import CHUNK_BYTES, CHUNK_IDS, chain_keys, chain_seed
from tessera.core.media.identity import NOBODY
from tessera.core.parts import MediaItem, Part, TextPart, TokenPart
from tessera.core.pricing.text import BYTES_PER_TOKEN
from tessera.core.types import PricedItem, PricedRequest

MAX_ATOMS: Final = 65_536
"""Atoms of one request; what follows is never matched."""

_DIGEST_BYTES = 8


@dataclass(frozen=True, slots=True)
class Chain:
    """The atoms of one prompt."""

    keys: Sequence[int]
    """64 bits each; they end where the next thing has no identity."""
    ends: Sequence[int]
    """Per key: the prompt's tokens up to and with that atom, never falling."""
    media_ends: Sequence[int]
    """Per key: of those, the tokens of media and their wrappers."""
    num_tokens: int
    """The prompt's tokens up to the limit, whether they have an identity or not."""

    def num_starting_before(self, num_tokens: int) -> int:
        """How many atoms begin within the first ``num_tokens`` tokens."""
        return min(len(self.keys), 1 + bisect_left(self.ends, num_tokens)) if num_tokens > 0 else 0

    def weights(self) -> list[int]:
        """Tokens of each atom."""
        return [end - start for start, end in pairwise((0, *self.ends))]


def chains(priced: PricedRequest, max_tokens: int) -> tuple[Chain, ...]:
    """One chain for each prompt, cut before the atom that would exceed ``max_tokens`` tokens of its prompt.

    The text's tokens are spread over its bytes (an id counts as 4), a media atom has its
    own and its wrapper's, the request's first atom also the template's: without a cut
    the weights sum to ``num_prompt_tokens``.
    """
    request = priced.request
    seed = chain_seed(request.model, request.lora or "", request.cache_salt or "")
    spread = _Spread(priced)
    made: list[Chain] = []
    num_left = MAX_ATOMS
    for prompt in request.prompts:
        strand = _Strand(spread, max_tokens, num_left)
        for part in prompt:
            strand.add(part)
        made.append(Chain(chain_keys(seed, strand.pieces), strand.ends, strand.media_ends, strand.num_tokens))
        num_left -= len(strand.pieces)
    return tuple(made)


class _Spread:
    """Spreads the request's tokens over its parts, which are asked for in prompt order."""

    __slots__ = ("_extra", "_items", "done", "num_text_tokens", "total")

    def __init__(self, priced: PricedRequest) -> None:
        parts = [part for prompt in priced.request.prompts for part in prompt]
        self.num_text_tokens = priced.num_text_tokens
        self.total = sum([_mass(part) for part in parts if not isinstance(part, MediaItem)])
        """Bytes over which they are spread."""
        self._items: Iterator[PricedItem] = iter(priced.items)
        self.done = 0
        """Bytes of the runs so far."""
        self._extra = priced.num_template_tokens + (0 if self.total else priced.num_text_tokens)

    def next_item(self) -> int:
        """Tokens of the next media item and its wrapper."""
        priced = next(self._items, None)
        return priced.num_tokens + priced.num_wrapper_tokens if priced else 0

    def take_extra(self) -> int:
        """Tokens that the request's first atom has beside its own: whoever asks first gets them."""
        extra, self._extra = self._extra, 0
        return extra


@dataclass(slots=True)
class _Strand:
    """The atoms of one prompt, up to the first that is beyond a limit."""

    spread: _Spread
    max_tokens: int
    max_atoms: int
    pieces: list[bytes] = field(default_factory=list)
    """What tells each atom from others, up to the first that has no identity."""
    ends: list[int] = field(default_factory=list)
    media_ends: list[int] = field(default_factory=list)
    num_tokens: int = 0
    num_media_tokens: int = 0
    is_known: bool = True
    """Whether everything so far has an identity."""
    is_cut: bool = False
    """Whether a limit was met."""

    def add(self, part: Part) -> None:
        """Add what fits of the next part."""
        # Each part takes its share, limit or not: what is handed out to the next depends on it.
        spread = self.spread
        if isinstance(part, MediaItem):
            self._add_item(part.identifier, spread.next_item(), spread.take_extra())
        elif mass := _mass(part):
            start = spread.done
            spread.done += mass
            self._add_run(part, start, spread.done, spread.take_extra())

    def _add_item(self, identifier: str, num_tokens: int, extra: int) -> None:
        if self._takes(num_tokens + extra):
            self.num_media_tokens += num_tokens
            self.is_known = self.is_known and identifier != NOBODY
            if self.is_known:
                # Longer than a digest, so that no name can pass for one.
                self.pieces.append(b"media:" + identifier.encode("utf-8", "surrogatepass"))
                self.ends.append(self.num_tokens)
                self.media_ends.append(self.num_media_tokens)

    def _add_run(self, part: TextPart | TokenPart, start: int, end: int, extra: int) -> None:
        """One atom for each digest of a run, and one without identity for what has none."""
        if self.is_cut:
            return
        tokens, total, digests = self.spread.num_text_tokens, self.spread.total, part.digests
        chunk = CHUNK_BYTES if isinstance(part, TextPart) else CHUNK_IDS * BYTES_PER_TOKEN
        before = self.num_tokens + extra - tokens * start // total
        whole = before + tokens * end // total

        def upto(num_atoms: int) -> int:
            return before + tokens * min(start + num_atoms * chunk, end) // total

        num = fitting = len(digests) // _DIGEST_BYTES
        if whole > self.max_tokens:
            fitting = bisect_right(range(1, num + 1), self.max_tokens, key=upto)
        room = self.max_atoms - len(self.pieces)
        if self.is_known or not room:
            fitting = min(fitting, room)
        if self.is_known:
            self.pieces += [digests[at : at + _DIGEST_BYTES] for at in range(0, _DIGEST_BYTES * fitting, _DIGEST_BYTES)]
            ends = [before + tokens * at // total for at in range(start + chunk, end, chunk)[:fitting]]
            self.ends += ends + [whole] * (fitting - len(ends))
            self.media_ends += [self.num_media_tokens] * fitting
        if fitting:
            self.num_tokens = upto(fitting)
        if fitting < num:
            self.is_cut = True
        elif start + num * chunk < end and self._takes(whole - self.num_tokens):
            self.is_known = False

    def _takes(self, num_tokens: int) -> bool:
        """Count one more atom's tokens, if the limits allow."""
        if len(self.pieces) == self.max_atoms or self.num_tokens + num_tokens > self.max_tokens:
            self.is_cut = True
        if self.is_cut:
            return False
        self.num_tokens += num_tokens
        return True


def _mass(part: TextPart | TokenPart) -> int:
    """Bytes that a run of text or ids counts as."""
    return part.num_bytes if isinstance(part, TextPart) else part.num_tokens * BYTES_PER_TOKEN
