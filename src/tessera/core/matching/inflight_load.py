"""How much of what we sent is each endpoint still working on?

Two ledgers. Requests, media items and bytes count until a request's end;
uncached tokens and encode work until its first token. Both are charged in
``record``, at decision time, so that the next decision already sees them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

from tessera.core.facts import FirstToken, FleetEvent, InFlightLoad, PrefixMatch, num_uncached_tokens
from tessera.core.plugin import NamedFacts, Producer, Range, plugin
from tessera.core.types import Decision, Endpoint, Finding, Outcome, PricedRequest


@dataclass(slots=True)
class _Entry:
    """What one request holds: per endpoint id, what ends with it and what ends with its first token."""

    until_end: list[tuple[str, InFlightLoad]] = field(default_factory=list)
    until_first_token: list[tuple[str, InFlightLoad]] = field(default_factory=list)


@plugin("inflight-load-producer", optional_reads=(PrefixMatch,))
class InflightLoadProducer(Producer):
    """Count what this router has sent to each endpoint and not yet seen the end of.

    Uncached tokens are the prompt's tokens less what the endpoint's KV cache is
    believed to hold. Memory: one entry for each request in flight, one account for
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
        """Charge the winner of every stage."""
        entry = self._entries.setdefault(decision.request.request_id, _Entry())
        priced = decision.priced
        items = priced.distinct_items()
        for stage in decision.stages:
            if stage.winner is None:
                continue
            candidate = stage.candidate_of(stage.winner)
            uncached = num_uncached_tokens(priced, candidate, self.prefix_match_info_producer_name)
            until_end = InFlightLoad(
                num_requests=1,
                num_uncached_tokens=self._output_tokens(priced),
                num_items=len(items),
                media_bytes=sum(item.item.num_bytes for item in items),
            )
            until_first = InFlightLoad(num_uncached_tokens=uncached, encode_embeds=priced.num_embeds)
            entry.until_end.append((stage.winner.id, until_end))
            entry.until_first_token.append((stage.winner.id, until_first))
            for load in (until_end, until_first):
                self._accounts[stage.winner.id] = _sum(self.load_of(stage.winner.id), load, 1)

    def observe(self, event: FleetEvent) -> None:
        """Give back tokens and encode work at the first token; an endpoint that leaves keeps its entries' sums."""
        if isinstance(event, FirstToken) and (entry := self._entries.get(event.request_id)):
            self._release(entry.until_first_token)

    def settle(self, outcome: Outcome) -> Sequence[Finding]:
        """Give back everything that is left."""
        if entry := self._entries.pop(outcome.request_id, None):
            self._release(entry.until_first_token)
            self._release(entry.until_end)
        return ()

    def _output_tokens(self, priced: PricedRequest) -> int:
        if not self.add_estimated_output_tokens:
            return 0
        caps = (priced.request.max_output_tokens, self.max_estimated_output_tokens)
        expected = round(priced.num_prompt_tokens * self.output_ratio)
        return min([expected, *(cap for cap in caps if cap is not None)])

    def _release(self, charges: list[tuple[str, InFlightLoad]]) -> None:
        for endpoint_id, load in charges:
            left = _sum(self._accounts[endpoint_id], load, -1)
            if left.num_requests or left.num_uncached_tokens or left.encode_embeds:
                self._accounts[endpoint_id] = left
            else:
                del self._accounts[endpoint_id]
        charges.clear()


_IDLE = InFlightLoad()


def _sum(load: InFlightLoad, other: InFlightLoad, sign: int) -> InFlightLoad:
    """``load + sign * other``: made anew at each change, so that ``match`` hands out what is there."""
    return InFlightLoad(
        num_requests=load.num_requests + sign * other.num_requests,
        num_uncached_tokens=load.num_uncached_tokens + sign * other.num_uncached_tokens,
        num_items=load.num_items + sign * other.num_items,
        media_bytes=load.media_bytes + sign * other.media_bytes,
        encode_embeds=load.encode_embeds + sign * other.encode_embeds,
    )
