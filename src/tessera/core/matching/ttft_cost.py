"""How many seconds stand between each endpoint and this request's first token?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tessera.core.facts import (
    EncoderMatch,
    FirstToken,
    FirstTokenCost,
    FleetEvent,
    Load,
    PrefixMatch,
    ProcessorMatch,
    uncached_tokens,
)
from tessera.core.matching.mm_embeddings_cache import uncovered_items
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.pricing.robust import Ring
from tessera.core.types import Candidate, Decision, Endpoint, Finding, Outcome, PricedItem, PricedRequest

PIXELS_PER_EMBED = 1024
"""What an item of unknown size is taken to have. Source: Qwen3-VL merges 2 x 2 patches of 16 x 16 pixels."""

NUM_WORKS = 64
"""Requests whose median work stands for that of others' requests."""
FIRST_TYPICAL_S = 0.1
"""What stands for it before there is any: about 1,850 tokens at the default rate."""

Seconds = Annotated[float, Range(ge=0, le=60)]


@dataclass(slots=True)
class _Account:
    """Work of requests before their first token at one endpoint."""

    queued_s: float = 0.0
    num_charges: int = 0
    num_engine_requests: int = 0


@dataclass(frozen=True, slots=True)
class _Charge:
    """What one request holds of an account."""

    endpoint_id: str
    own_s: float
    num_engine_requests: int


@plugin("ttft-cost-producer", reads=(PrefixMatch, EncoderMatch, ProcessorMatch), optional_reads=(Load,))
class TTFTCostProducer(Producer):
    """Predict the seconds to a request's first token at each endpoint, text and media work apart.

    ``own = prefill + encode + processing``, where

    - ``prefill = uncached tokens / prefillTokensPerS``,
    - ``encode`` is ``encodeSPerItem + encodeSPerEmbed * n + encodeSPerEmbedSquared * n^2`` for
      each distinct item of ``n`` embeddings that neither the KV match nor the encoder cache covers,
    - ``processing = processingSPerMegapixel * pixels / 10^6``, of all frames, for each
      distinct item that the processor cache lacks, also where its KV is there.

    ``ttft = fixedS + queued + own``; ``queued`` sums ``own`` of what this router has sent to
    the endpoint and that has had no first token. Every stage's winner is charged in
    ``record`` and released at the first token, at the latest at the request's end. What
    waits there beyond that, by the endpoint's page, was sent by others: each counts as
    the median ``own`` of the last 64 requests. An endpoint that does not answer its scrape
    is taken to have as much ahead as the worst of those that do: it must not look idle.

    The defaults are those of Qwen3-VL-32B on two H200, fitted to llm-d's published table.
    A common error of all rates changes few decisions; the ratio of media to text does.
    Memory: one entry for each request in flight, one account for each endpoint with such
    a request, 64 numbers.
    """

    produces = FirstTokenCost

    prefill_tokens_per_s: Annotated[float, Range(gt=0)] = 18_500.0
    """Prompt tokens that an endpoint computes in a second: 0.95 of 1.22e15 FLOP/s / (2 x 31.2e9 weights)."""
    encode_s_per_item: Seconds = 0.003
    """Encoder time of each item, whatever its size."""
    encode_s_per_embed: Seconds = 10.1e-6
    """Of each embedding: the encoder's matrices."""
    encode_s_per_embed_squared: Seconds = 5.5e-9
    """Of each pair of embeddings of one item: the encoder's attention. 0.014 s for 1280x720, 0.46 s for 4K."""
    processing_s_per_megapixel: Seconds = 0.0293
    """CPU time of each million pixels: 27 ms for 1280x720."""
    fixed_s: Seconds = 0.06
    """What every request takes: network, tokenizer, and the step in which its first token comes."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches are taken off."""

    def __post_init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._charges: dict[str, list[_Charge]] = {}
        self._works = Ring(NUM_WORKS)
        self._typical_s = FIRST_TYPICAL_S

    def reads_of(self) -> NamedFacts:
        """What caches hold; prefix matches of the named producer."""
        name = self.prefix_match_info_producer_name
        return (
            (PrefixMatch, name),
            (EncoderMatch, EncoderMatch.producer),
            (ProcessorMatch, ProcessorMatch.producer),
        )

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[FirstTokenCost]:
        """The costs at endpoints of whose caches nothing is known."""
        return self.derive(request, [Candidate(endpoint, {}) for endpoint in endpoints])

    def derive(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[FirstTokenCost]:
        """The costs at each candidate, by what its caches are believed to hold."""
        media = _Media(self, request) if request.items else None
        tokens = uncached_tokens(request, candidates, self.prefix_match_info_producer_name)
        rows = zip(tokens, self._queued(candidates), candidates, strict=True)
        return [self._cost(num_tokens, queued_s, candidate, media) for num_tokens, queued_s, candidate in rows]

    def queued_s(self, endpoint_id: str) -> float:
        """Work of ours that an endpoint has ahead of a new request."""
        account = self._accounts.get(endpoint_id)
        return max(0.0, account.queued_s) if account else 0.0

    def record(self, decision: Decision) -> None:
        """Charge the winner of every stage with the request's own work there."""
        charges = self._charges.setdefault(decision.request.request_id, [])
        for stage in decision.stages:
            if stage.winner is None:
                continue
            cost = stage.candidate_of(stage.winner).fact(FirstTokenCost, self.name)
            if cost is not None:
                account = self._accounts.setdefault(stage.winner.id, _Account())
                account.queued_s += cost.own_s
                account.num_charges += 1
                account.num_engine_requests += decision.request.num_engine_requests
                charges.append(_Charge(stage.winner.id, cost.own_s, decision.request.num_engine_requests))
                self._works.add(cost.own_s)
        self._typical_s = self._works.median()

    def observe(self, event: FleetEvent) -> None:
        """Give back a request's work at its first token."""
        if isinstance(event, FirstToken) and (charges := self._charges.get(event.request_id)):
            self._release(charges)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Give back what is left."""
        self._release(self._charges.pop(outcome.request_id, []))
        return ()

    def encode_s(self, item: PricedItem) -> float:
        """Encoder time of an item."""
        num = item.num_embeds
        return self.encode_s_per_item + (self.encode_s_per_embed + self.encode_s_per_embed_squared * num) * num

    def processing_s(self, item: PricedItem) -> float:
        """CPU time of an item; where its size is unknown, by its embeddings."""
        width, height, frames = item.item.width, item.item.height, item.item.num_frames
        known = width * height * (frames or 1) if width and height else item.num_embeds * PIXELS_PER_EMBED
        return self.processing_s_per_megapixel * known / 1e6

    def _queued(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds of work ahead at each; whose page is not known has at least as much as the worst of the others."""
        queued = [self.queued_s(each.endpoint.id) + self._foreign_s(each) for each in candidates]
        known = [self._is_known(each) for each in candidates]
        if all(known):
            return queued
        worst = max((seconds for seconds, is_known in zip(queued, known, strict=True) if is_known), default=0.0)
        return [seconds if is_known else max(seconds, worst) for seconds, is_known in zip(queued, known, strict=True)]

    @staticmethod
    def _is_known(candidate: Candidate) -> bool:
        load = candidate.fact(Load, Load.producer)
        return load is not None and load.at is not None

    def _cost(self, num_tokens: int, queued: float, candidate: Candidate, media: "_Media | None") -> FirstTokenCost:
        prefill = num_tokens / self.prefill_tokens_per_s
        encode, processing = media.work_at(candidate) if media else (0.0, 0.0)
        return FirstTokenCost(
            queued_s=queued,
            prefill_s=prefill,
            encode_s=encode,
            processing_s=processing,
            ttft_s=self.fixed_s + queued + prefill + encode + processing,
        )

    def _foreign_s(self, candidate: Candidate) -> float:
        """Work that others have waiting there."""
        load = candidate.fact(Load, Load.producer)
        if load is None or not load.num_waiting:
            return 0.0
        account = self._accounts.get(candidate.endpoint.id)
        return self._typical_s * max(0, load.num_waiting - (account.num_engine_requests if account else 0))

    def _release(self, charges: list[_Charge]) -> None:
        for charge in charges:
            account = self._accounts[charge.endpoint_id]
            account.queued_s -= charge.own_s
            account.num_charges -= 1
            account.num_engine_requests -= charge.num_engine_requests
            if account.num_charges == 0:
                del self._accounts[charge.endpoint_id]
        charges.clear()


@dataclass(slots=True)
class _Media:
    """The media work of one request, item by item."""

    rates: TTFTCostProducer
    request: PricedRequest
    encode_s: dict[str, float] = field(init=False)
    """By identifier."""
    processing_s: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        distinct = self.request.distinct_items()
        self.encode_s = {item.identifier: self.rates.encode_s(item) for item in distinct}
        self.processing_s = {item.identifier: self.rates.processing_s(item) for item in distinct}

    def work_at(self, candidate: Candidate) -> tuple[float, float]:
        """Seconds of encoding and of preparing that the candidate's caches do not save."""
        match = candidate.fact(PrefixMatch, self.rates.prefix_match_info_producer_name)
        encoder = candidate.fact(EncoderMatch, EncoderMatch.producer)
        processor = candidate.fact(ProcessorMatch, ProcessorMatch.producer)
        needed = dict.fromkeys(item.identifier for item in uncovered_items(self.request, match))
        encoded = encoder.identifiers if encoder else ()
        prepared = processor.identifiers if processor else ()
        return (
            sum(self.encode_s[name] for name in needed if name not in encoded),
            sum(seconds for name, seconds in self.processing_s.items() if name not in prepared),
        )
