"""Who holds more of this prompt's KV than the endpoint that would compute it?"""

from collections.abc import Mapping, Sequence
from typing import Annotated

from tessera.core.facts import CacheSource, PrefixMatch
from tessera.core.headers import KV_SOURCE
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.types import Candidate, Decision, Endpoint, PricedRequest
from tessera.core.work import Work


@plugin("p2p-source-producer", reads=(PrefixMatch,))
class P2PSourceProducer(Producer):
    """Name a peer whose KV cache holds more of the prompt than that of the endpoint that computes it.

    The endpoint that gets the request finds it in ``x-kv-cache-source-host-port`` and may
    fetch the blocks instead of computing them. Who computes is the winner of
    ``prefillProfileName`` where that stage chose somebody, else who gets the request. Of
    peers that hold the most, the first in the fleet's order is named.
    """

    produces = CacheSource

    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches are compared."""
    min_cached_token_delta: Annotated[int, Range(ge=1)] = 1
    """Tokens that the peer must hold beyond the endpoint's own."""
    prefill_profile_name: str = "prefill"
    """The profile whose winner computes the prompt, where it runs."""

    def reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[CacheSource]:
        """Nobody, where nothing is known of caches."""
        return [_NOBODY] * len(endpoints)

    def derive(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[CacheSource]:
        """The best peer of each candidate."""
        matches = [each.fact(PrefixMatch, self.prefix_match_info_producer_name) for each in candidates]
        held = [match.num_matched_tokens if match else 0 for match in matches]
        most = max(held, default=0)
        if most == 0:
            return [_NOBODY] * len(candidates)
        best = candidates[held.index(most)].endpoint.id
        least = self.min_cached_token_delta
        return [
            CacheSource(endpoint_id=best, num_more_tokens=most - own) if most - own >= least else _NOBODY
            for own in held
        ]

    def request_headers(self, decision: Decision) -> Mapping[str, str]:
        """The peer of the endpoint that computes the prompt."""
        apart = (each for each in decision.stages if each.profile == self.prefill_profile_name and each.winners)
        stage = next(apart, decision.stage_of(Work.PREFILL) or decision.primary_stage)
        if stage.winner is None:
            return {}
        source = stage.candidate_of(stage.winner).fact(CacheSource, self.name)
        return {KV_SOURCE: source.endpoint_id} if source is not None and source.endpoint_id is not None else {}


_NOBODY = CacheSource()
