"""How many seconds stand between each endpoint and this request's first token?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from tessera.core.facts import (
    EncoderMatch,
    FirstToken,
    FirstTokenCost,
    FleetEvent,
    Load,
    MediaRates,
    PrefixMatch,
    ProcessorMatch,
    uncached_tokens,
)
from tessera.core.matching.alone import Alone, served_alone
from tessera.core.matching.mm_embeddings_cache import uncovered_items
from tessera.core.matching.own_work import OwnWork, own_work
from tessera.core.matching.speed import Sample, Speed, SpeedLearning
from tessera.core.plugin import NamedFacts, Producer, Range, params, plugin
from tessera.core.pricing.robust import Ring
from tessera.core.types import (
    Candidate,
    Decision,
    Endpoint,
    Finding,
    Outcome,
    PricedRequest,
    Usage,
)
from tessera.core.work import StageEnded, Work

NUM_WORKS = 64
"""Requests whose median work stands for that of others' requests."""
FIRST_TYPICAL_S = 0.1
"""What stands for it before there is any: about 1,850 tokens at the default rate."""

MAX_CACHED_ERROR_TOKENS = 64
"""A request with media teaches nothing where the engine's cached tokens are further than this from the belief."""

Seconds = Annotated[float, Range(ge=0, le=60)]
_RATES = MediaRates()


@dataclass(slots=True)
class _Account:
    """Work of requests before their first token at one endpoint."""

    queued_s: float = 0.0
    num_charges: int = 0
    num_engine_requests: int = 0


@params
class SpeedMode:
    """What is done with the first tokens that are seen."""

    mode: Literal["observe", "apply", "disabled"] = "observe"
    """``observe``: show what first tokens tell; ``apply``: correct the rates by it; ``disabled``: nothing."""
    group_label: str = ""
    """Endpoints with the same value of this label are taken to be equally fast; empty: all are."""


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
    the endpoint and that has had no first token. Every endpoint is charged in ``record``
    with the part of the work that it does, of media encoded apart each encoder with its
    items, and released when that is over or at the first token, at the latest at the
    request's end. What
    waits there beyond that, by the endpoint's page, was sent by others: each counts as
    the median ``own`` of the last 64 requests. An endpoint that does not answer its scrape
    is taken to have as much ahead as the worst of those that do: it must not look idle.

    The default rates are those of Qwen3-VL-32B on two H200, fitted to llm-d's published
    table. From requests that had their endpoint to themselves it is learned by which
    factors text, media and the fixed part differ from them: medians of first tokens that
    were seen in the answer or counted by the engine, from 32 requests of a kind on,
    within a factor of 16, apart for each value of ``groupLabel``. Prompts without media
    work must differ by 500 uncached tokens for their rate to be told from the fixed part;
    a fleet so busy that nobody is alone teaches nothing. What is learned is reckoned with
    under ``learning: {mode: apply}``, else only shown in the metrics.

    Memory: three entries for each request in flight, two for each endpoint with such a
    request; 64 groups of at most 256 samples of three numbers.
    """

    produces = FirstTokenCost

    prefill_tokens_per_s: Annotated[float, Range(gt=0)] = 18_500.0
    """Prompt tokens that an endpoint computes in a second: 0.95 of 1.22e15 FLOP/s / (2 x 31.2e9 weights)."""
    encode_s_per_item: Seconds = _RATES.encode_s_per_item
    """Encoder time of each item, whatever its size."""
    encode_s_per_embed: Seconds = _RATES.encode_s_per_embed
    """Of each embedding: the encoder's matrices."""
    encode_s_per_embed_squared: Seconds = _RATES.encode_s_per_embed_squared
    """Of each pair of embeddings of one item: the encoder's attention. 0.014 s for 1280x720, 0.46 s for 4K."""
    processing_s_per_megapixel: Seconds = _RATES.processing_s_per_megapixel
    """CPU time of each million pixels: 27 ms for 1280x720."""
    fixed_s: Seconds = 0.06
    """What every request takes: network, tokenizer, and the step in which its first token comes."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches are taken off."""
    learning: SpeedMode = SpeedMode()
    """Learning how fast the endpoints really are."""

    def __post_init__(self) -> None:
        self._alone = Alone()
        self._learned = SpeedLearning(1.0 / self.prefill_tokens_per_s, self.fixed_s)
        self._configured = Speed(fixed_s=self.fixed_s)
        self.rates = MediaRates(
            encode_s_per_item=self.encode_s_per_item,
            encode_s_per_embed=self.encode_s_per_embed,
            encode_s_per_embed_squared=self.encode_s_per_embed_squared,
            processing_s_per_megapixel=self.processing_s_per_megapixel,
        )
        """As configured; with what is learned they stand in the facts."""
        self._accounts: dict[str, _Account] = {}
        self._charges: dict[str, list[OwnWork]] = {}
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

    def num_waiting(self, candidate: Candidate) -> int:
        """Requests that an endpoint has ahead of a new one: ours, and what others have waiting there."""
        account = self._accounts.get(candidate.endpoint.id)
        return (account.num_charges if account else 0) + self._num_foreign(candidate)

    def queued_s(self, endpoint_id: str) -> float:
        """Work of ours that an endpoint has ahead of a new request."""
        account = self._accounts.get(endpoint_id)
        return max(0.0, account.queued_s) if account else 0.0

    def record(self, decision: Decision) -> None:
        """Charge each endpoint with the part of the request's work that it does."""
        charges = self._charges.setdefault(decision.request.request_id, [])
        for each in own_work(decision, self.name, self.prefix_match_info_producer_name):
            account = self._accounts.setdefault(each.endpoint_id, _Account())
            account.queued_s += each.seconds
            account.num_charges += 1
            account.num_engine_requests += each.num_engine_requests
            charges.append(each)
            if each.work in (None, Work.PREFILL):
                self._works.add(each.seconds)
        winner = decision.primary_stage.winner
        if winner is not None and self.learning.mode != "disabled":
            self._alone.sent(decision.request.request_id, winner.id)
        self._typical_s = self._works.median()

    def observe(self, event: FleetEvent) -> None:
        """Give back a request's work at its first token, and that of a stage at the stage's end."""
        if isinstance(event, FirstToken) and (charges := self._charges.get(event.request_id)):
            self._release(charges)
            self._alone.first_token(event.request_id)
        elif isinstance(event, StageEnded) and (charges := self._charges.get(event.request_id)):
            over = [each for each in charges if (each.work, each.endpoint_id) == (event.stage, event.endpoint_id)]
            charges[:] = [each for each in charges if each not in over]
            self._release(over)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Give back what is left, and learn how fast the endpoint was."""
        self._release(self._charges.pop(outcome.request_id, []))
        if self._alone.ended(outcome.request_id) and (sample := self._sample(outcome)):
            self._learned.add(sample)
        return ()

    def speeds(self) -> Iterator[tuple[str, Speed, int]]:
        """(group, what was learned of it, first tokens that it stands on) of each group."""
        return self._learned.groups()

    def _queued(self, candidates: Sequence[Candidate]) -> list[float]:
        """Seconds of work ahead at each; whose page is not known has at least as much as the worst of the others."""
        queued = [self.queued_s(each.endpoint.id) + self._typical_s * self._num_foreign(each) for each in candidates]
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
        speed = self._speed(candidate.endpoint)
        prefill = num_tokens / self.prefill_tokens_per_s * speed.prefill_factor
        work = media.work_at(candidate) if media else (0.0, 0.0, 0.0)
        encode, processing, held = [seconds * speed.media_factor for seconds in work]
        return FirstTokenCost(
            queued_s=queued,
            num_waiting=self.num_waiting(candidate),
            prefill_s=prefill,
            encode_s=encode,
            processing_s=processing,
            held_encode_s=held,
            ttft_s=speed.fixed_s + queued + prefill + encode + processing,
            rates=self.rates if speed.media_factor == 1.0 else replace(self.rates, factor=speed.media_factor),
        )

    def _group(self, endpoint: Endpoint) -> str:
        return endpoint.labels.get(self.learning.group_label, "") if self.learning.group_label else ""

    def _speed(self, endpoint: Endpoint) -> Speed:
        return self._learned.of(self._group(endpoint)) if self.learning.mode == "apply" else self._configured

    def _sample(self, outcome: Outcome) -> Sample | None:
        """What a request that had its endpoint to itself says of its speed, if anything."""
        decision, row = outcome.decision, served_alone(outcome)
        if decision is None or row is None:
            return None
        believed = row.fact(PrefixMatch, self.prefix_match_info_producer_name)
        priced, usage = decision.priced, outcome.usage
        num_tokens = uncached_tokens(priced, [row], self.prefix_match_info_producer_name)[0]
        if usage is not None and usage.prompt_tokens > 0:
            num_tokens = _computed_tokens(usage, num_tokens / max(1, priced.num_prompt_tokens))
        if priced.items and believed is not None and _is_denied(usage, believed, priced):
            return None
        media = _Media(self, priced).work_at(row) if priced.items else (0.0, 0.0, 0.0)
        assert outcome.first_token_at is not None
        return Sample(
            group=self._group(row.endpoint),
            num_tokens=num_tokens,
            media_s=media[0] + media[1],
            ttft_s=outcome.first_token_at - decision.at,
        )

    def _num_foreign(self, candidate: Candidate) -> int:
        """Requests that others have waiting there."""
        load = candidate.fact(Load, Load.producer)
        if load is None or not load.num_waiting:
            return 0
        account = self._accounts.get(candidate.endpoint.id)
        return max(0, load.num_waiting - (account.num_engine_requests if account else 0))

    def _release(self, charges: list[OwnWork]) -> None:
        for charge in charges:
            account = self._accounts[charge.endpoint_id]
            account.queued_s -= charge.seconds
            account.num_charges -= 1
            account.num_engine_requests -= charge.num_engine_requests
            if account.num_charges == 0:
                del self._accounts[charge.endpoint_id]
        charges.clear()


@dataclass(slots=True)
class _Media:
    """The media work of one request, item by item."""

    producer: TTFTCostProducer
    request: PricedRequest
    encode_s: dict[str, float] = field(init=False)
    """By identifier."""
    processing_s: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        distinct = self.request.distinct_items()
        self.encode_s = {item.identifier: self.producer.rates.encode_s(item) for item in distinct}
        self.processing_s = {item.identifier: self.producer.rates.processing_s(item) for item in distinct}

    def work_at(self, candidate: Candidate) -> tuple[float, float, float]:
        """Seconds of encoding and of preparing that the candidate's caches do not save; of encoding that one saves."""
        match = candidate.fact(PrefixMatch, self.producer.prefix_match_info_producer_name)
        encoder = candidate.fact(EncoderMatch, EncoderMatch.producer)
        processor = candidate.fact(ProcessorMatch, ProcessorMatch.producer)
        needed = dict.fromkeys(item.identifier for item in uncovered_items(self.request, match))
        encoded = encoder.identifiers if encoder else ()
        prepared = processor.identifiers if processor else ()
        return (
            sum(self.encode_s[name] for name in needed if name not in encoded),
            sum(seconds for name, seconds in self.processing_s.items() if name not in prepared),
            sum(self.encode_s[name] for name in needed if name in encoded),
        )


def _computed_tokens(usage: Usage, believed_fraction: float) -> int:
    """Prompt tokens that the engine computed: by its cached tokens, else by the share that was believed uncached."""
    if usage.cached_tokens is not None:
        return max(0, usage.prompt_tokens - usage.cached_tokens)
    return round(usage.prompt_tokens * min(1.0, believed_fraction))


def _is_denied(usage: Usage | None, believed: PrefixMatch, priced: PricedRequest) -> bool:
    """Whether the engine had other tokens cached than was believed, so that other items were encoded too."""
    if usage is None or usage.cached_tokens is None:
        return False
    scale = usage.prompt_tokens / max(1, priced.num_prompt_tokens)
    return abs(usage.cached_tokens - believed.num_matched_tokens * scale) > MAX_CACHED_ERROR_TOKENS
