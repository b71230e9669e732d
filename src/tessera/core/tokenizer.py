"""How many tokens does a model's own tokenizer make of a text?

Needs the library ``tokenizers``; this is the one file of ``core`` that imports it.
A counter is immutable and thread-safe: ``read`` asks it in the pool.
"""

from tokenizers import Tokenizer

MAX_COUNTED_CHARS = 4 << 20
"""Characters of one run that are tokenised; a longer run is counted by its bytes."""


class TextCounter:
    """Counts tokens of text, special tokens in the text included, none added."""

    def __init__(self, content: bytes) -> None:
        """Take the bytes of a tokenizer.json; raises ValueError where they are none."""
        try:
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as error:
            raise ValueError(f"no tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count(self, text: str) -> int | None:
        """Tokens of ``text``; nothing where it is too long, or holds what no tokenizer takes."""
        if len(text) > MAX_COUNTED_CHARS:
            return None
        try:
            return len(self._tokenizer.encode(text, add_special_tokens=False).ids)
        except (ValueError, TypeError, UnicodeEncodeError):
            return None
