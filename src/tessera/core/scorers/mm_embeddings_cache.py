"""Which endpoint's cached embeddings would save the most encoder work?"""

from collections.abc import Sequence
from typing import Literal

from tessera.core.facts import EncoderMatch, facts_of
from tessera.core.plugin import NamedFacts, Scorer, plugin
from tessera.core.types import Candidate, PricedItem, PricedRequest


@plugin("mm-embeddings-cache-scorer", reads=(EncoderMatch,))
class MMEmbeddingsCacheScorer(Scorer):
    """Prefer the endpoint that already holds this request's media embeddings.

    ``score = matched / total`` over the distinct media items, in 0..1; 0 for a
    request without media.
    """

    weigh_by: Literal["embeds", "count"] = "embeds"
    """``embeds`` weighs an item by its encoder output; ``count`` is llm-d's rule."""
    producer_name: str = EncoderMatch.producer
    """The producer whose belief is read."""

    def reads_of(self) -> NamedFacts:
        """Encoder matches, of the named producer."""
        return ((EncoderMatch, self.producer_name),)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        sizes = {item.identifier: self._size(item) for item in request.distinct_items()}
        total = sum(sizes.values()) or 1
        held = [match.identifiers for match in facts_of(EncoderMatch, candidates, self.producer_name)]
        shares = {names: sum(map(sizes.__getitem__, names & sizes.keys())) / total for names in set(held)}
        return [shares[names] for names in held]

    def _size(self, item: PricedItem) -> int:
        return item.num_embeds if self.weigh_by == "embeds" else 1
