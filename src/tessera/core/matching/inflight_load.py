"""How much of what we sent is each endpoint still working on?

Two ledgers. Requests, media items and bytes count until a request's end;
uncached tokens and encode work until its first token. What is done on an endpoint
apart, encode or prefill, counts until that is over, at the latest until the first
token. All is charged in ``record``, at decision time, so that the next decision
already sees it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tessera.core.facts import FirstToken, FleetEvent, InFlightLoad, PrefixMatch, num_uncached_tokens
from tessera.core.matching.divided import computing_stage, kept_items, sent_away, working_stages
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.types import Decision, Endpoint, Finding, Outcome, PricedItem, PricedRequest, Stage
from tessera.core.work import StageEnded, Work

_Charges = list[tuple[str, InFlightLoad]]
"""Endpoint ids and what each is charged with."""


@dataclass(slots=True)
class _Entry:
    """What one request holds: what ends with it, with its first token, and with a stage at an endpoint."""

    until_end: _Charges = field(default_factory=list)
    until_first_token: _Charges = field(default_factory=list)
    until_stage: dict[tuple[Work, str], _Charges] = field(default_factory=dict)


@plugin("inflight-load-producer", optional_reads=(PrefixMatch,))
class InflightLoadProducer(Producer):
    """Count what this router has sent to each endpoint and not yet seen the end of.

    Uncached tokens are the prompt's tokens less what the endpoint's KV cache is
    believed to hold. Of stages on endpoints of their own, an encoder is charged with the
    items that it was given, who prefills with the uncached tokens and the other items,
    and who decodes with the request. Memory: one entry for each request in flight, one account for
    each endpoint with such a request.
    """

    produces = InFlightLoad

    add_estimated_output_tokens: bool = False
    """Also charge the tokens that the answer is expected to have, until the end."""
    output_ratio: Annotated[float, Range(ge=0)] = 1.5
    """Expected answer tokens for each prompt token, with ``addEstimatedOutputTokens``."""
    max_estimated_output_tokens: Annotated[int, Range(ge=0)] | None = None
    """Cap on the expected answer tokens."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches are taken off."""
    sync_cross_replica_state: bool = True
    """Accepted for compatibility; each replica counts what it sent itself."""

    def __post_init__(self) -> None:
        self._accounts: dict[str, InFlightLoad] = {}
        self._entries: dict[str, _Entry] = {}

    def optional_reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[InFlightLoad]:
        """The ledgers of each endpoint, this request not included."""
        accounts = self._accounts
        return [accounts.get(endpoint.id, _IDLE) for endpoint in endpoints]

    def load_of(self, endpoint_id: str) -> InFlightLoad:
        """The ledgers of one endpoint."""
        return self._accounts.get(endpoint_id, _IDLE)

    def record(self, decision: Decision) -> None:
        """Charge each endpoint with the part of the work that it does."""
        entry = self._entries.setdefault(decision.request.request_id, _Entry())
        for endpoint_id, items in sent_away(decision).items():
            load = _media(items, num_requests=1, encode_embeds=sum(item.num_embeds for item in items))
            self._charge(entry.until_stage.setdefault((Work.ENCODE, endpoint_id), []), endpoint_id, load)
        computing = computing_stage(decision)
        for stage in working_stages(decision):
            if stage.winner is not None and stage.work is not Work.ENCODE:
                computes = stage is computing or stage.work is None
                self._charge_prompt(entry, decision, stage, stage.winner.id, computes=computes)

    def observe(self, event: FleetEvent) -> None:
        """Give back what ends with a stage or with the first token; an endpoint that leaves keeps its entries' sums."""
        if isinstance(event, FirstToken) and (entry := self._entries.get(event.request_id)):
            self._release_before_first_token(entry)
        elif isinstance(event, StageEnded) and (entry := self._entries.get(event.request_id)):
            self._release(entry.until_stage.pop((event.stage, event.endpoint_id), []))

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Give back everything that is left."""
        if entry := self._entries.pop(outcome.request_id, None):
            self._release_before_first_token(entry)
            self._release(entry.until_end)
        return ()

    def _charge_prompt(
        self, entry: _Entry, decision: Decision, stage: Stage, endpoint_id: str, *, computes: bool
    ) -> None:
        """Charge who computes the prompt, who decodes it, or who does both."""
        priced = decision.priced
        if not computes:
            output = InFlightLoad(num_requests=1, num_uncached_tokens=self._output_tokens(priced))
            self._charge(entry.until_end, endpoint_id, output)
            return
        candidate = stage.candidate_of(stage.winners[0])
        work = InFlightLoad(
            num_uncached_tokens=num_uncached_tokens(priced, candidate, self.prefix_match_info_producer_name),
            encode_embeds=sum(item.num_embeds for item in kept_items(decision)),
        )
        items = priced.distinct_items()
        if stage.work is Work.PREFILL:
            load = _sum(_media(items, num_requests=1), work, 1)
            self._charge(entry.until_stage.setdefault((Work.PREFILL, endpoint_id), []), endpoint_id, load)
        else:
            load = _media(items, num_requests=1, num_uncached_tokens=self._output_tokens(priced))
            self._charge(entry.until_end, endpoint_id, load)
            self._charge(entry.until_first_token, endpoint_id, work)

    def _charge(self, charges: _Charges, endpoint_id: str, load: InFlightLoad) -> None:
        charges.append((endpoint_id, load))
        self._accounts[endpoint_id] = _sum(self.load_of(endpoint_id), load, 1)

    def _release_before_first_token(self, entry: _Entry) -> None:
        for charges in (*entry.until_stage.values(), entry.until_first_token):
            self._release(charges)
        entry.until_stage.clear()

    def _output_tokens(self, priced: PricedRequest) -> int:
        if not self.add_estimated_output_tokens:
            return 0
        caps = (priced.request.max_output_tokens, self.max_estimated_output_tokens)
        expected = round(priced.num_prompt_tokens * self.output_ratio)
        return min([expected, *(cap for cap in caps if cap is not None)])

    def _release(self, charges: _Charges) -> None:
        for endpoint_id, load in charges:
            left = _sum(self._accounts[endpoint_id], load, -1)
            if left.num_requests or left.num_uncached_tokens or left.encode_embeds:
                self._accounts[endpoint_id] = left
            else:
                del self._accounts[endpoint_id]
        charges.clear()


_IDLE = InFlightLoad()


def _media(items: Sequence[PricedItem], **more: int) -> InFlightLoad:
    """The load of these items' media, and what is given by name."""
    return InFlightLoad(num_items=len(items), media_bytes=sum([item.item.num_bytes for item in items]), **more)


def _sum(load: InFlightLoad, other: InFlightLoad, sign: int) -> InFlightLoad:
    """``load + sign * other``: made anew at each change, so that ``match`` hands out what is there."""
    return InFlightLoad(
        num_requests=load.num_requests + sign * other.num_requests,
        num_uncached_tokens=load.num_uncached_tokens + sign * other.num_uncached_tokens,
        num_items=load.num_items + sign * other.num_items,
        media_bytes=load.media_bytes + sign * other.media_bytes,
        encode_embeds=load.encode_embeds + sign * other.encode_embeds,
    )
