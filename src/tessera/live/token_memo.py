"""Which texts were tokenised before? Their token ids, by digest; bounded, for several threads."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final

MAX_TOKENS: Final = 16 << 20
"""Token ids that are kept, 4 bytes each: 64 MiB."""
MAX_TEXTS: Final = 262_144
"""Texts whose ids are kept, about 300 bytes each beside their ids."""


class TokenMemo:
    """The ids of texts that were asked for most recently; holds no text.

    Memory: ``max_tokens`` ids of 4 bytes and ``max_texts`` entries.
    """

    def __init__(self, max_tokens: int = MAX_TOKENS, max_texts: int = MAX_TEXTS) -> None:
        self._max_tokens = max_tokens
        self._max_texts = max_texts
        self._lock = Lock()
        self._ids: OrderedDict[bytes, array[int]] = OrderedDict()
        self.num_tokens = 0
        """Ids that are kept."""

    def __len__(self) -> int:
        """Texts whose ids are kept."""
        return len(self._ids)

    def get(self, digest: bytes) -> Sequence[int] | None:
        """The ids of a text, if they are remembered."""
        with self._lock:
            found = self._ids.get(digest)
            if found is not None:
                self._ids.move_to_end(digest)
            return found

    def put(self, digest: bytes, token_ids: Sequence[int]) -> None:
        """Remember the ids of a text; one that would take up everything is not."""
        if len(token_ids) > self._max_tokens:
            return
        ids = array("i", token_ids)
        with self._lock:
            before = self._ids.pop(digest, None)
            self.num_tokens += len(ids) - (len(before) if before is not None else 0)
            self._ids[digest] = ids
            while self.num_tokens > self._max_tokens or len(self._ids) > self._max_texts:
                _, oldest = self._ids.popitem(last=False)
                self.num_tokens -= len(oldest)
