"""Which media items must the encoder run in a step, and how far may a prompt go without them?"""

from typing import Final

from tessera.engine.encoder_cache import EncoderCache
from tessera.engine.requests import MediaSegment
from tessera.engine.sequences import Sequence

LOST: Final = -1
"""An item of the chunk can be had nowhere: it came without content and nobody has its embeddings."""


class Encoding:
    """The encoder's cache, and what is left of its budget in the step that is put together.

    An item whose embeddings come from elsewhere takes room in the cache and nothing of the
    budget. Source: vLLM 0.32, ``_try_schedule_encoder_inputs``.
    """

    __slots__ = ("_num_left", "cache", "items")

    def __init__(self, max_embeds: int) -> None:
        """An empty cache of ``max_embeds``, which is also the most that one step computes."""
        self.cache = EncoderCache(max_embeds)
        self.items: list[MediaSegment] = []
        """Those that the encoder runs in the step."""
        self._num_left = max_embeds

    def begin(self) -> None:
        """A new step."""
        self.items = []
        self._num_left = self.cache.max_embeds

    def reach(self, sequence: Sequence, num_new: int) -> int:
        """Have the items ready that a chunk touches; how much of the chunk can go ahead, or ``LOST``."""
        start = sequence.num_computed
        end = start + num_new
        for span in sequence.spans[sequence.next_span :]:
            if span.start >= end:
                break
            if span.end <= start:
                sequence.next_span += 1
            elif not self._have(sequence, span.item):
                return LOST if self._is_lost(sequence, span.item) else max(0, span.start - start)
        return num_new

    def release_passed(self, sequence: Sequence) -> None:
        """Let go of the items that lie wholly in what is computed."""
        for span in sequence.spans[sequence.next_span :]:
            if span.end > sequence.num_computed:
                break
            self.cache.release(span.item.identifier, sequence)
            sequence.held_items.pop(span.item.identifier, None)
            sequence.next_span += 1

    def release_all(self, sequence: Sequence) -> None:
        """Let go of all that a sequence holds."""
        for identifier in sequence.held_items:
            self.cache.release(identifier, sequence)
        sequence.held_items.clear()

    def _have(self, sequence: Sequence, item: MediaSegment) -> bool:
        if not self.cache.hold(item.identifier, sequence):
            handover = sequence.ticket.request.handover
            is_fetched = item.identifier in handover.fetched
            if not is_fetched and (item.identifier in handover.bare or item.num_embeds > self._num_left):
                return False
            if not self.cache.fits(item.num_embeds):
                return False
            self.cache.store(item.identifier, item.num_embeds, sequence)
            if not is_fetched:
                self._num_left -= item.num_embeds
                self.items.append(item)
        sequence.held_items[item.identifier] = None
        return True

    def _is_lost(self, sequence: Sequence, item: MediaSegment) -> bool:
        handover = sequence.ticket.request.handover
        return item.identifier in handover.bare and item.identifier not in handover.fetched
