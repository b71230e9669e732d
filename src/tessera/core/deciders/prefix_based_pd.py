"""Is so much of the prompt uncached that prefilling apart is worth it?"""

from typing import Annotated

from tessera.core.facts import PrefixMatch, num_uncached_tokens
from tessera.core.plugin import Decider, NamedFacts, Range, plugin
from tessera.core.types import PricedRequest, Stage


@plugin("prefix-based-pd-decider", reads=(PrefixMatch,))
class PrefixBasedPDDecider(Decider):
    """Run the stage where the winner of decode would have to compute many tokens itself.

    Yes where the prompt has at least ``promptTokens`` tokens, and at least
    ``nonCachedTokens`` of them are not in that endpoint's KV cache, as far as is known.
    """

    non_cached_tokens: Annotated[int, Range(ge=0)] = 0
    """Uncached tokens from which on the stage runs; 0: it never does."""
    prompt_tokens: Annotated[int, Range(ge=0)] = 0
    """Prompt tokens below which it does not run."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches count (ours; llm-d reads the default one)."""

    def reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def wants(self, request: PricedRequest, computing: Stage) -> bool:
        """Whether enough of a prompt that is long enough is not cached."""
        if self.non_cached_tokens == 0 or request.num_prompt_tokens < self.prompt_tokens:
            return False
        row = computing.candidate_of(computing.winners[0])
        return num_uncached_tokens(request, row, self.prefix_match_info_producer_name) >= self.non_cached_tokens
