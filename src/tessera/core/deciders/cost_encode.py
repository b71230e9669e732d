"""Would encoding apart give the first token sooner, and of which items?"""

from typing import Annotated

from tessera.core.facts import EncoderMatch, FirstTokenCost, PrefixMatch
from tessera.core.matching.encode_shares import share_out
from tessera.core.matching.mm_embeddings_cache import uncovered_items
from tessera.core.media.size import Reason
from tessera.core.plugin import Decider, NamedFacts, Range, plugin
from tessera.core.roles import ENCODE_ROLES, ROLE_LABEL
from tessera.core.types import Candidate, PricedItem, PricedRequest, Stage

_NOT_SENT = (Reason.NO_CONTENT, Reason.UUID_ONLY)


@plugin("cost-encode-decider", reads=(FirstTokenCost, EncoderMatch, PrefixMatch))
class CostEncodeDecider(Decider):
    """Encode apart only what no cache of the endpoint that computes the prompt holds, and only where that is faster.

    With ``queued`` the seconds of work ahead there, ``local`` the encoder time of those items
    there and ``apart = fixedS + encoding at the encoders + transferBytesPerEmbed * embeddings /
    transferBytesPerS``, the stage runs where ``max(queued, apart) < queued + local``: what is
    ahead is worked off meanwhile. Encoding at the encoders counts what they have in flight,
    with the rates of ``ttft-cost-producer``, and nothing for items that they hold. Encoders
    are the endpoints whose ``llm-d.ai/role`` encodes, but for the one that computes the
    prompt; where there is none the stage runs, finds nobody, and says so.

    Only ``encode-spread-picker`` tells the endpoint which items stay; with another picker all
    of a request's items are encoded apart, or none.
    """

    fixed_s: Annotated[float, Range(ge=0, le=60)] = 0.025
    """What a further hop takes. Default: the idle TTFT that encoding apart adds, 25 to 45 ms in the model of the
    fleet, at its lower end."""
    transfer_bytes_per_embed: Annotated[int, Range(ge=0)] = 40_960
    """Bytes of an embedding. Default: Qwen3-VL-32B, 4 x 5,120 numbers of 2 bytes."""
    transfer_bytes_per_s: Annotated[float, Range(gt=0)] = 3e9
    """Bytes that an encoder sends in a second. Default: 25 Gbit/s of Ethernet."""
    spreads: bool = True
    """Whether encode-spread-picker spreads the items; else they all go to the encoder that is through first."""
    prefix_match_info_producer_name: str = PrefixMatch.producer
    """The producer whose prefix matches say what need not be encoded."""

    def reads_of(self) -> NamedFacts:
        """Costs, and what caches hold; prefix matches of the named producer."""
        return (
            (FirstTokenCost, FirstTokenCost.producer),
            (EncoderMatch, EncoderMatch.producer),
            (PrefixMatch, self.prefix_match_info_producer_name),
        )

    def wants(self, request: PricedRequest, computing: Stage) -> bool:
        """Whether the first token is expected sooner."""
        items = self.items(request, computing)
        if not items:
            return False
        row = computing.candidate_of(computing.winners[0])
        encoders = [
            each
            for each in computing.candidates
            if each is not row and each.endpoint.labels.get(ROLE_LABEL) in ENCODE_ROLES
        ]
        if not encoders:
            return True
        here = row[FirstTokenCost]
        local_s = sum(here.rates.encode_s(item) for item in items)
        return max(here.queued_s, self._apart_s(items, encoders)) < here.queued_s + local_s

    def items(self, request: PricedRequest, computing: Stage) -> tuple[PricedItem, ...]:
        """The distinct items that neither the KV cache nor the encoder cache there holds, and that are sent at all."""
        row = computing.candidate_of(computing.winners[0])
        needed = {each.identifier for each in uncovered_items(request, self._match(row))}
        needed -= row[EncoderMatch].identifiers
        sent = [each for each in request.distinct_items() if each.item.reason not in _NOT_SENT]
        return tuple([each for each in sent if each.identifier in needed])

    def _match(self, row: Candidate) -> PrefixMatch | None:
        return row.fact(PrefixMatch, self.prefix_match_info_producer_name)

    def _apart_s(self, items: tuple[PricedItem, ...], encoders: list[Candidate]) -> float:
        if self.spreads:
            encoded_s = share_out(items, encoders, [0.0] * len(encoders)).last_s
        else:
            encoded_s = min(share_out(items, [each], [0.0]).last_s for each in encoders)
        num_bytes = self.transfer_bytes_per_embed * sum(each.num_embeds for each in items)
        return self.fixed_s + encoded_s + num_bytes / self.transfer_bytes_per_s
