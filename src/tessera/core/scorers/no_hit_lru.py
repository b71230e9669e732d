"""Where should a prompt go that nobody has seen? To the endpoint whose last such prompt is the longest ago."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Annotated

from tessera.core.facts import FleetEvent, Left, PrefixMatch
from tessera.core.matching.divided import kv_stages
from tessera.core.plugin import NamedFacts, Range, Scorer, plugin
from tessera.core.types import Candidate, Decision, PricedRequest


@plugin("no-hit-lru-scorer", reads=(PrefixMatch,))
class NoHitLRUScorer(Scorer):
    """Spread prompts of which nobody holds a prefix, so that each endpoint's cache grows with its own.

    0.5 everywhere where somebody holds a part. Otherwise ``1 - rank / (n - 1)``:
    endpoints that never got such a prompt first (all with rank 0), then the others, the
    least recent first. Memory: ``lruSize`` endpoints.
    """

    lru_size: Annotated[int, Range(ge=1)] = 1024
    """Endpoints that are remembered."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose matches are read."""

    def __post_init__(self) -> None:
        self._order: OrderedDict[str, None] = OrderedDict()

    def reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        if not self._is_cold(candidates):
            return [0.5] * len(candidates)
        ids = {candidate.endpoint.id for candidate in candidates}
        used = [endpoint_id for endpoint_id in self._order if endpoint_id in ids]
        num_never = len(ids) - len(used)
        rank_of = {endpoint_id: num_never + place for place, endpoint_id in enumerate(used)}
        last = max(1, len(ids) - 1)
        return [1.0 - rank_of.get(candidate.endpoint.id, 0) / last for candidate in candidates]

    def record(self, decision: Decision) -> None:
        """The winner of the primary stage, and of prefill, of a cold prompt becomes the most recent."""
        stage = decision.primary_stage
        if not self._is_cold(stage.candidates[index] for index in stage.scored):
            return
        for each in kv_stages(decision):
            if each.winner is not None:
                self._order[each.winner.id] = None
                self._order.move_to_end(each.winner.id)
        while len(self._order) > self.lru_size:
            self._order.popitem(last=False)

    def observe(self, event: FleetEvent) -> None:
        """Forget endpoints that leave."""
        if isinstance(event, Left):
            self._order.pop(event.endpoint.id, None)

    def _is_cold(self, candidates: Iterable[Candidate]) -> bool:
        matches = (each.fact(PrefixMatch, self.prefix_match_info_producer_name) for each in candidates)
        return not any(match.num_matched_tokens for match in matches if match is not None)
