"""Which tokens does the engine see of a prompt, and by what do its caches know them?

The ids are the served model's own where its files are there (``served_model``). Else
each stands for 4 bytes of text or for a marker of Qwen's chat template: 5 of a message
(``<|im_start|>``, the role, a newline; ``<|im_end|>``, a newline), 3 for the answer's
head, 2 around a picture. A stand-in is above every id that a model has.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from tessera.core.draft import DraftMedia, DraftPart, DraftText, DraftTokens
from tessera.core.media.digests import digest_128
from tessera.emulator.pictures import PromptItem
from tessera.engine.requests import MediaSegment, Segment, TextSegment

BYTES_PER_TOKEN: Final = 4
NUM_MESSAGE_TOKENS: Final = 5
NUM_ANSWER_HEAD_TOKENS: Final = 3
FIRST_STAND_IN: Final = 1 << 32
"""The least of the ids that stand for something; a model's own have 31 bits."""
FIRST_ANSWER_ID: Final = 7 << 32
"""Stand-ins of answers' tokens are from here on, and in no prompt."""

_LENGTH_BITS = 32
_MARKERS = 6 << _LENGTH_BITS
_MESSAGE_START, _MESSAGE_END, _NEWLINE, _ANSWERER, _MEDIA_START, _PLACEHOLDER, _MEDIA_END = range(
    _MARKERS, _MARKERS + 7
)
_ID_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePrompt:
    """A prompt as the engine sees it, media expanded."""

    token_ids: "array[int]"
    """8 bytes each."""
    items: tuple[PromptItem, ...] = ()
    """In the order of their places."""
    offsets: tuple[int, ...] = ()
    """Index of each item's first token."""
    cache_salt: str | None = None
    """Keeps the caches of those who send it apart from all others."""
    stand_in: str | None = None
    """Why the ids are not the model's, where they are not: ``no-renderer``, or what could not be rendered."""

    @property
    def num_tokens(self) -> int:
        """Text, pictures and their markers."""
        return len(self.token_ids)

    @property
    def digest(self) -> str:
        """Stands for all that is asked: equal prompts have it, whichever server and however their pictures came."""
        names = "\0".join(item.identifier for item in self.items)
        return digest_128(self.token_ids.tobytes() + f"\0{names}".encode("utf-8", "surrogatepass")).hex()

    @property
    def num_media_tokens(self) -> int:
        """Tokens of the pictures alone."""
        return sum(item.num_tokens for item in self.items)

    def segments(self, block_size: int) -> tuple[Segment, ...]:
        """What the engine compares: an item as a whole, and the text cut where KV blocks end.

        So two prompts share a block exactly where all their tokens up to its end are the same.
        """
        bounds = [0, *chain.from_iterable(zip(self.offsets, self._ends(), strict=True)), self.num_tokens]
        texts = [self._text(start, end, block_size) for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
        found: list[Segment] = [*texts[0]]
        for item, text in zip(self.items, texts[1:], strict=True):
            found += (_media(item), *text)
        return tuple(found)

    def _ends(self) -> Iterator[int]:
        return (offset + item.num_tokens for offset, item in zip(self.offsets, self.items, strict=True))

    def _text(self, start: int, end: int, block_size: int) -> Iterator[Segment]:
        while start < end:
            stop = min(end, start - start % block_size + block_size)
            content = self.token_ids[start:stop].tobytes()
            if start == 0 and self.cache_salt:
                content += self.cache_salt.encode("utf-8", "surrogatepass")
            yield TextSegment(int.from_bytes(digest_128(content)[:_ID_BYTES], "big"), stop - start)
            start = stop


def _media(item: PromptItem) -> MediaSegment:
    return MediaSegment(item.identifier, item.num_tokens, item.num_embeds, item.width, item.height)


def num_text_tokens(parts: Sequence[DraftPart]) -> int:
    """Stand-ins of the text alone, markers not counted."""
    texts = (part for part in parts if isinstance(part, DraftText))
    ids = sum(len(part.token_ids) for part in parts if isinstance(part, DraftTokens))
    return ids + sum(-(-len(_bytes_of(part.text)) // BYTES_PER_TOKEN) for part in texts)


def stand_ins(
    parts: Sequence[DraftPart], items: Sequence[PromptItem], num_messages: int
) -> tuple["array[int]", tuple[int, ...]]:
    """The prompt in stand-ins, and where its items lie.

    Args:
        parts: of one prompt.
        items: its media, same order.
        num_messages: of a chat; 0 where the prompt is no chat and has no template.
    """
    ids, offsets = array("q"), list[int]()
    waiting = iter(items)
    num_begun = 0
    for part in parts:
        if isinstance(part, DraftMedia):
            item = next(waiting)
            num_before = -(-item.num_wrapper_tokens // 2)
            ids.extend([_MEDIA_START] * num_before)
            offsets.append(len(ids))
            ids.extend([_PLACEHOLDER] * item.num_tokens)
            ids.extend([_MEDIA_END] * (item.num_wrapper_tokens - num_before))
        elif isinstance(part, DraftTokens):
            ids.extend(part.token_ids)
        else:
            if part.role and num_begun < num_messages:
                ids.extend((*([_MESSAGE_END, _NEWLINE] if num_begun else ()), *_head(part.role)))
                num_begun += 1
            ids.extend(_text_ids(_bytes_of(part.text)))
    if num_messages:
        ids.extend([_MESSAGE_END, _NEWLINE] if num_begun else ())
        # A message without a role says nothing of where it begins.
        ids.extend([*_head(""), _MESSAGE_END, _NEWLINE] * (num_messages - num_begun))
        ids.extend((_MESSAGE_START, _ANSWERER, _NEWLINE))
    return ids, tuple(offsets)


def _head(role: str) -> tuple[int, int, int]:
    name = role.encode("utf-8", "surrogatepass")[:BYTES_PER_TOKEN]
    return _MESSAGE_START, _id_of(name), _NEWLINE


def _bytes_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _text_ids(text: bytes) -> Iterator[int]:
    """One id for each 4 bytes; the last may stand for fewer."""
    whole = len(text) - len(text) % BYTES_PER_TOKEN
    full = _id_of(bytes(BYTES_PER_TOKEN))
    yield from (full | piece for piece in memoryview(text)[:whole].cast("I"))
    if rest := text[whole:]:
        yield _id_of(rest)


def _id_of(piece: bytes) -> int:
    """How many bytes, and which; there is one for the empty role too."""
    return (len(piece) + 1) << _LENGTH_BITS | int.from_bytes(piece, sys.byteorder)
