"""Which endpoint's KV cache holds the most of this prompt?"""

from collections.abc import Sequence
from typing import Annotated

from tessera.core.facts import PrefixMatch, facts_of
from tessera.core.plugin import NamedFacts, Range, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("prefix-cache-scorer", reads=(PrefixMatch,))
class PrefixCacheScorer(Scorer):
    """Prefer the endpoint that is believed to hold the most of the prompt's prefix.

    ``score = w * L + (1 - w) * r`` with r = matched / total tokens,
    L = min(1, matched / ``matchLengthScaleTokens``)^2 and w = ``matchLengthWeight``.
    """

    match_length_weight: Annotated[float, Range(ge=0, le=1)] = 0.0
    """How much the match's length counts beside its share of the prompt."""
    match_length_scale_tokens: Annotated[int, Range(ge=1)] = 8192
    """Matched tokens from which on a longer match counts no more."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose matches are read."""

    def reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 0 for a prompt without tokens."""
        matches = facts_of(PrefixMatch, candidates, self.prefix_match_info_producer_name)
        shares = [
            match.num_matched_tokens / match.num_total_tokens if match.num_total_tokens > 0 else 0.0
            for match in matches
        ]
        if not (weight := self.match_length_weight):
            return shares
        scale = self.match_length_scale_tokens
        lengths = [min(1.0, match.num_matched_tokens / scale) ** 2 for match in matches]
        return [weight * length + (1.0 - weight) * share for length, share in zip(lengths, shares, strict=True)]
