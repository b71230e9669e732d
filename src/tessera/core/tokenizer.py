"""Which tokens does a model's own tokenizer make of a text?

Needs the library ``tokenizers``; this is the one file of ``core`` that imports it.
Immutable and thread-safe. Other threads run while a text is tokenised.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer

MAX_COUNTED_CHARS: Final = 4 << 20
"""Characters of one run that are tokenised; a longer run is counted by its bytes."""
WINDOW_CHARS: Final = 16_384
"""Characters that are searched for added tokens at once. No other thread runs meanwhile, 4 ms at worst."""
MAX_ADDED_TOKENS: Final = 65_536
"""Added tokens at which texts are cut; a tokenizer with more takes texts as a whole."""
_SAMPLES: Final = ("a", " a", "\n", "a ", "Ω 1", "  two\n\n")
"""Texts whose tokens must not depend on what stands before them."""


class TextTokenizer:
    """The tokens of texts, special tokens in the text included.

    Where it may, it says at which places a text falls into pieces that are tokenised
    each for itself: at added tokens such as ``<|im_end|>``.
    """

    def __init__(self, content: bytes) -> None:
        """Take the bytes of a tokenizer.json; raises ValueError where they are none."""
        try:
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:
            raise ValueError(f"no tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.adds_special_tokens = self.encode("a", add_special_tokens=True) != self.encode("a")
        """Whether it puts special tokens around a prompt, where it may."""
        added = self._tokenizer.get_added_tokens_decoder()
        cut_at = {token.content: token_id for token_id, token in added.items() if not token.normalized}
        can_cut = 0 < len(cut_at) <= MAX_ADDED_TOKENS and all(map(_is_plain, added.values()))
        self._ids = cut_at if can_cut and self._is_local(list(cut_at)[:4]) else {}
        self._longest = max(map(len, self._ids), default=0)
        self._cuts = re.compile(_any_of(sorted(self._ids))) if self._ids else None

    def count(self, text: str) -> int | None:
        """Tokens of ``text``; nothing where it is too long, or holds what no tokenizer takes."""
        ids = self.encode(text)
        return None if ids is None else len(ids)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> list[int] | None:
        """The ids of ``text``; nothing where it is too long, or holds what no tokenizer takes.

        ``add_special_tokens``: those that the tokenizer puts around a prompt.
        """
        if len(text) > MAX_COUNTED_CHARS:
            return None
        try:
            # Of a list, because the library lets other threads run then.
            (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        except (ValueError, TypeError, UnicodeEncodeError):
            return None
        except BaseException as fault:
            # The library's own faults are no Exception, and none of its types is there to be named.
            if type(fault).__name__ != "PanicException":
                raise
            return None
        return list(encoding.ids)

    def pieces(self, text: str) -> Iterator[str | int]:
        """``text`` in turn as texts that are tokenised each for itself, and as ids of added tokens between them.

        The whole of it where this tokenizer cannot be cut.
        """
        if self._cuts is None:
            yield text
            return
        done = 0
        for start, end in _found(self._cuts, self._longest, text):
            if done < start:
                yield text[done:start]
            yield self._ids[text[start:end]]
            done = end
        if done < len(text):
            yield text[done:]

    def id_of(self, token: str) -> int | None:
        """The id of a token; nothing where the vocabulary has it not."""
        return self._tokenizer.token_to_id(token)

    def other_added_token(self, declared: Mapping[str, Any], *, is_whole: bool) -> str | None:
        """The first added token that is not as it is declared elsewhere, if there is one.

        Args:
            declared: the fields of ``AddedToken`` by id, as in tokenizer_config.json.
            is_whole: whether a token that is not declared is none.
        """
        ours = self._tokenizer.get_added_tokens_decoder()
        for number, fields in declared.items():
            try:
                token, known = AddedToken(**fields), ours.pop(int(number), None)
            except (TypeError, ValueError):
                return number
            if known is None or _rules(known) != _rules(token):
                return token.content
        return next((token.content for token in ours.values()), None) if is_whole else None

    def _is_local(self, added: list[str]) -> bool:
        """Whether texts have the same tokens behind an added token as alone."""
        for sample in _SAMPLES:
            alone = self.encode(sample)
            for token in added:
                both = self.encode(f"{sample}{token}{sample}")
                if alone is None or both != [*alone, self._tokenizer.token_to_id(token), *alone]:
                    return False
        return True


def _rules(token: AddedToken) -> tuple[object, ...]:
    """By what an added token is found in a text."""
    return token.content, token.single_word, token.lstrip, token.rstrip, token.normalized


def _is_plain(token: AddedToken) -> bool:
    """Whether a token is found in a text whatever stands around it, and takes nothing of that with it."""
    return token.normalized or not (token.single_word or token.lstrip or token.rstrip)


def _found(words: re.Pattern[str], longest: int, text: str) -> Iterator[tuple[int, int]]:
    """Where the words stand in a text, none of them longer than ``longest``; in turn, the longest that fits."""
    at = 0
    while at < len(text):
        last = at + WINDOW_CHARS
        for match in words.finditer(text, at, last + longest):
            if match.start() >= last:
                break
            at = match.end()
            yield match.span()
        at = max(at, last)


def _any_of(words: Iterable[str]) -> str:
    """A pattern of the longest of these words, sorted, that stands at a place.

    What words begin with alike is tried once, so its time does not grow with their number.
    """
    rests = list(words)
    num_alike = next(
        (at for at, pair in enumerate(zip(rests[0], rests[-1], strict=False)) if len(set(pair)) > 1), len(rests[0])
    )
    head, rests = rests[0][:num_alike], [word[num_alike:] for word in rests]
    tails = [_any_of(group) for letter, group in groupby(rests, key=lambda rest: rest[:1]) if letter]
    pattern = re.escape(head) + ("(?:" + "|".join(tails) + ")" if tails else "")
    return pattern + "?" if tails and not rests[0] else pattern
