"""Of which pieces is a prompt made for the prefix index, and how many tokens does each stand for?

A run of text has one atom for each 64 bytes, a run of token ids one for each 16 ids, a
media item is one. An atom's key stands for the atom and for everything before it.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tessera.core.media.digests import CHUNK_BYTES, CHUNK_IDS, chain_keys, chain_seed
from tessera.core.media.identity import NOBODY
from tessera.core.parts import MediaItem, Prompt, TextPart, TokenPart
from tessera.core.pricing.text import BYTES_PER_TOKEN
from tessera.core.types import PricedItem, PricedRequest

MAX_ATOMS: Final = 65_536
"""Atoms of one request; what follows is never matched."""

_DIGEST_BYTES = 8

Atom = tuple[bytes | None, int, int]
"""What tells it from others, nothing where that is not known; its tokens; of them those of media."""


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
        made.append(_chain(seed, spread.atoms(prompt, max_tokens, num_left), max_tokens, num_left))
        num_left -= len(made[-1].keys)
    return tuple(made)


def _chain(seed: bytes, atoms: Sequence[Atom], max_tokens: int, max_atoms: int) -> Chain:
    pieces: list[bytes] = []
    ends: list[int] = []
    media_ends: list[int] = []
    tokens = media = 0
    is_known = True
    for piece, weight, of_media in atoms:
        if tokens + weight > max_tokens or len(pieces) == max_atoms:
            break
        tokens += weight
        media += of_media
        is_known = is_known and piece is not None
        if is_known and piece is not None:
            pieces.append(piece)
            ends.append(tokens)
            media_ends.append(media)
    return Chain(chain_keys(seed, pieces), ends, media_ends, tokens)


class _Spread:
    """Spreads the request's tokens over the atoms of its prompts, which are asked for in order."""

    def __init__(self, priced: PricedRequest) -> None:
        parts = [part for prompt in priced.request.prompts for part in prompt]
        self._total = sum(_mass(part) for part in parts if not isinstance(part, MediaItem))
        self._num_text_tokens = priced.num_text_tokens
        self._items: Iterator[PricedItem] = iter(priced.items)
        self._done = 0
        self._extra = priced.num_template_tokens + (0 if self._total else priced.num_text_tokens)

    def atoms(self, prompt: Prompt, max_tokens: int, max_atoms: int) -> list[Atom]:
        """The atoms of the next prompt, up to and with the first that is beyond a limit."""
        atoms: list[Atom] = []
        tokens = 0
        for part in prompt:
            # Each part is begun, limit or not: what is handed out to the next depends on it.
            for atom in (self._media(part),) if isinstance(part, MediaItem) else self._text(part):
                if tokens > max_tokens or len(atoms) > max_atoms:
                    break
                atoms.append(atom)
                tokens += atom[1]
        if atoms and self._extra:
            piece, weight, media = atoms[0]
            atoms[0] = (piece, weight + self._extra, media)
            self._extra = 0
        return atoms

    def _media(self, part: MediaItem) -> Atom:
        priced = next(self._items, None)
        weight = priced.num_tokens + priced.num_wrapper_tokens if priced else 0
        name = part.identifier.encode("utf-8", "surrogatepass")
        # Longer than a digest, so that no name can pass for one.
        return (b"media:" + name if part.identifier != NOBODY else None), weight, weight

    def _text(self, part: TextPart | TokenPart) -> Iterator[Atom]:
        chunk = CHUNK_BYTES if isinstance(part, TextPart) else CHUNK_IDS * BYTES_PER_TOKEN
        tokens, total, digests = self._num_text_tokens, self._total, part.digests
        start, end = self._done, self._done + _mass(part)
        self._done = end
        before = tokens * start // total if total else 0
        for at in range(0, len(digests), _DIGEST_BYTES):
            start = min(start + chunk, end)
            upto = tokens * start // total
            yield digests[at : at + _DIGEST_BYTES], upto - before, 0
            before = upto
        if start < end:
            yield None, tokens * end // total - before, 0


def _mass(part: TextPart | TokenPart) -> int:
    """Bytes that a run of text or ids counts as."""
    return part.num_bytes if isinstance(part, TextPart) else part.num_tokens * BYTES_PER_TOKEN
