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
class _Account:
    """An endpoint's running sums."""

    num_requests: int = 0
    num_uncached_tokens: int = 0
    num_items: int = 0
    media_bytes: int = 0
    encode_embeds: int = 0

    def add(self, load: InFlightLoad, sign: int) -> None:
        self.num_requests += sign * load.num_requests
        self.num_uncached_tokens += sign * load.num_uncached_tokens
        self.num_items += sign * load.num_items
        self.media_bytes += sign * load.media_bytes
        self.encode_embeds += sign * load.encode_embeds

    def is_empty(self) -> bool:
        return not (self.num_requests or self.num_uncached_tokens or self.encode_embeds)


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
        self._accounts: dict[str, _Account] = {}
        self._entries: dict[str, _Entry] = {}

    def optional_reads_of(self) -> NamedFacts:
        """Prefix matches, of the named producer."""
        return ((PrefixMatch, self.prefix_match_info_producer_name),)

    def match(self, request: PricedRequest, endpoints: Sequence[Endpoint]) -> list[InFlightLoad]:
        """The ledgers of each endpoint, this request not included."""
        return [self.load_of(endpoint.id) for endpoint in endpoints]

    def load_of(self, endpoint_id: str) -> InFlightLoad:
        """The ledgers of one endpoint."""
        account = self._accounts.get(endpoint_id)
        if account is None:
            return _IDLE
        return InFlightLoad(
            num_requests=account.num_requests,
            num_uncached_tokens=account.num_uncached_tokens,
            num_items=account.num_items,
            media_bytes=account.media_bytes,
            encode_embeds=account.encode_embeds,
        )

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
            account = self._accounts.setdefault(stage.winner.id, _Account())
            account.add(until_end, 1)
            account.add(until_first, 1)

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
            account = self._accounts[endpoint_id]
            account.add(load, -1)
            if account.is_empty():
                del self._accounts[endpoint_id]
        charges.clear()


_IDLE = InFlightLoad()
