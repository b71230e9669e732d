"""Should this request stay with the endpoints that hold most of its prompt already?"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from tessera.core.facts import InFlightLoad, PrefixMatch
from tessera.core.plugin import Filter, NamedFacts, Range, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, Decision, Finding, Note, Outcome, PricedRequest

NUM_WATCHED: Final = 1000
"""Requests with a match after which a threshold that none of them met is reported."""


@dataclass(frozen=True, slots=True)
class _Gate:
    """What the rule says of one request, chance left out."""

    sticky: list[Candidate]
    """Those that hold enough."""
    best: float
    """The largest share that one of all holds."""
    behind_s: float
    """How much longer the least busy sticky one needs than the least busy of the others; 0 where there are none."""


@plugin("prefix-cache-affinity-filter", reads=(PrefixMatch, InFlightLoad))
class PrefixCacheAffinityFilter(Filter):
    """Keep the endpoints that hold most of the prompt, unless they are too far behind the others.

    An endpoint is sticky where ``matched / total >= affinityThreshold``. The sticky
    ones are kept, and all are where none is sticky, or where the least busy sticky one
    needs over ``maxTTFTPenaltyMs`` longer than the least busy other one for what it
    has in flight, at ``peakPrefillThroughput``.

    For media llm-d sets ``affinityThreshold: 0.6``, ``maxTTFTPenaltyMs: 36000`` and
    ``peakPrefillThroughput: 15751``: a question at the prompt's end is never cached,
    and a picture costs its encoder beside its tokens. In simulations 2000 ms did
    better than either: with a wider gate one popular prefix overloads one endpoint.
    Where 1,000 prompts of which something was cached never met the threshold, the log
    says so, once.
    """

    affinity_threshold: Annotated[float, Range(le=1)] = 0.8
    """Share of the prompt that a sticky endpoint holds; 0 or less: everybody is kept."""
    exploration_probability: Annotated[float, Range(ge=0, le=1)] = 0.0
    """Share of the requests for which everybody is kept, so that prefixes spread."""
    max_ttft_penalty_ms: Annotated[float, Range(ge=0)] = 18_000
    """Milliseconds that a sticky endpoint may be behind; 0: any number of them."""
    ttft_source: Literal["prefillThroughput", "latencyPredictor"] = "prefillThroughput"
    """Where times come from. There is no latency predictor yet: the throughput stands in for it."""
    peak_prefill_throughput: Annotated[float, Range(gt=0)] = 15_928
    """Prompt tokens that an endpoint computes in a second."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches are read."""
    in_flight_load_producer_name: str = InFlightLoad.producer
    """The producer whose counts are read."""
    latency_prediction_info_producer_name: str = "predicted-latency-producer"
    """The predictor that ``latencyPredictor`` would ask."""

    def __post_init__(self) -> None:
        self._num_watched = 0
        self._best_seen = 0.0
        self._is_watching = self.affinity_threshold > 0

    def reads_of(self) -> NamedFacts:
        """Prefix matches and in-flight load, of the named producers."""
        matches = (PrefixMatch, self.prefix_match_info_producer_name)
        return (matches, (InFlightLoad, self.in_flight_load_producer_name))

    def cautions(self) -> Sequence[tuple[str, str]]:
        """Whether a predictor is asked for that is not there."""
        if self.ttft_source == "prefillThroughput":
            return ()
        instead = f"times are tokens in flight over peakPrefillThroughput, {self.peak_prefill_throughput:g} a second"
        return (("ttftSource", f"there is no latency predictor yet; {instead}"),)

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The sticky candidates, or all of them, in their order."""
        if len(candidates) <= 1 or self.affinity_threshold <= 0:
            return list(candidates)
        if self.exploration_probability > 0 and rng.random() < self.exploration_probability:
            return list(candidates)
        gate = self._gate(candidates)
        return gate.sticky if gate.sticky and not self._opens(gate) else list(candidates)

    def explain(
        self, request: PricedRequest, candidates: Sequence[Candidate], kept: Sequence[Candidate]
    ) -> Note | None:
        """What the gate did and why; nothing where it is disabled, or nobody holds anything."""
        if len(candidates) <= 1 or self.affinity_threshold <= 0:
            return None
        gate = self._gate(candidates)
        num, enough = len(gate.sticky), f"{self.affinity_threshold:.1%} of the prompt"
        if not gate.sticky:
            return Note(f"kept all: none holds {enough}, the best {gate.best:.1%}") if gate.best > 0 else None
        holders = f"{num} of {len(candidates)} hold {enough} or more, the best {gate.best:.1%}"
        behind = f"{max(0.0, gate.behind_s):.2f} s behind the others"
        if self._opens(gate):
            return Note(f"kept all: {holders}, but {behind}, over {self.max_ttft_penalty_ms / 1000:g} s")
        if len(kept) != num:
            return Note(f"kept all to explore, though {holders}")
        return Note(f"kept {num}: {holders}; {behind}")

    def record(self, decision: Decision) -> None:
        """Watch whether the threshold is ever met."""
        if not self._is_watching:
            return
        best = max(map(self._share, decision.primary_stage.candidates), default=0.0)
        self._num_watched += best > 0
        self._best_seen = max(self._best_seen, best)
        self._is_watching = best < self.affinity_threshold

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Report once that the threshold was never met."""
        if not self._is_watching or self._num_watched < NUM_WATCHED:
            return ()
        self._is_watching = False
        seen = (
            f"of {self._num_watched} prompts of which an endpoint held something, it held {self._best_seen:.1%} at most"
        )
        what = f"affinityThreshold {self.affinity_threshold:g} was never met, so the filter keeps everybody"
        return (Finding(message=f"{self.name}: {seen}; {what}; set it below that"),)

    def _gate(self, candidates: Sequence[Candidate]) -> _Gate:
        sticky: list[Candidate] = []
        others: list[Candidate] = []
        best = 0.0
        for candidate in candidates:
            share = self._share(candidate)
            best = max(best, share)
            (sticky if share >= self.affinity_threshold else others).append(candidate)
        behind = self._least_queued(sticky) - self._least_queued(others) if sticky and others else 0
        return _Gate(sticky, best, behind / self.peak_prefill_throughput)

    def _opens(self, gate: _Gate) -> bool:
        """Whether the sticky ones are too far behind."""
        return 0 < self.max_ttft_penalty_ms < gate.behind_s * 1000

    def _share(self, candidate: Candidate) -> float:
        """Share of the prompt that the endpoint holds; 0 where nobody knows."""
        match = candidate.facts.get((PrefixMatch, self.prefix_match_info_producer_name))
        return match.num_matched_tokens / match.num_total_tokens if match and match.num_total_tokens > 0 else 0.0

    def _least_queued(self, candidates: Sequence[Candidate]) -> int:
        """Prompt tokens that the least busy of them has in flight; 0 where nobody knows."""
        loads = [each.fact(InFlightLoad, self.in_flight_load_producer_name) for each in candidates]
        return min([load.num_uncached_tokens if load else 0 for load in loads])
