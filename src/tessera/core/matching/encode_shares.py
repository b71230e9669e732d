"""Which encoder would encode which item, so that the last item is there soonest?"""

from collections.abc import Sequence
from dataclasses import dataclass

from tessera.core.facts import EncoderMatch, FirstTokenCost, ProcessorMatch
from tessera.core.types import Candidate, PricedItem


@dataclass(frozen=True, slots=True)
class Shares:
    """Who gets what."""

    encoder_of: dict[str, int]
    """Identifier of each item -> index of its encoder, in the items' order."""
    last_s: float
    """When the last of them is encoded, from now; 0 where there are none."""


def share_out(items: Sequence[PricedItem], encoders: Sequence[Candidate], ranks: Sequence[float]) -> Shares:
    """Give the largest item first, each to the encoder that would be through with it first.

    An encoder is through with what it has in flight after ``FirstTokenCost.queued_s``; an
    item takes it ``encode + processing`` seconds, nothing where it holds the embeddings. Of
    encoders that are through at once one that holds the item is taken, then the least of
    ``ranks``, one for each encoder. There is at least one encoder.

    Source: R. Graham, "Bounds on Multiprocessing Timing Anomalies", 1969 (longest processing
    time first: at most 4/3 of the best).
    """
    through = [_queued_s(each) for each in encoders]
    taken: dict[str, int] = {}
    last_s = 0.0
    largest = sorted(items, key=lambda item: -item.num_embeds)
    for item in largest:
        costs = [cost_s(item, each) for each in encoders]
        index = min(range(len(encoders)), key=lambda at: (through[at] + costs[at], costs[at], ranks[at]))
        taken[item.identifier] = index
        through[index] += costs[index]
        last_s = max(last_s, through[index])
    return Shares({item.identifier: taken[item.identifier] for item in items}, last_s)


def cost_s(item: PricedItem, encoder: Candidate, producer: str = FirstTokenCost.producer) -> float:
    """Seconds that an item keeps an encoder busy, by the rates of that producer's fact."""
    held = encoder.fact(EncoderMatch, EncoderMatch.producer)
    cost = encoder.fact(FirstTokenCost, producer)
    if cost is None or (held is not None and item.identifier in held.identifiers):
        return 0.0
    prepared = encoder.fact(ProcessorMatch, ProcessorMatch.producer)
    is_prepared = prepared is not None and item.identifier in prepared.identifiers
    return cost.rates.encode_s(item) + (0.0 if is_prepared else cost.rates.processing_s(item))


def _queued_s(encoder: Candidate) -> float:
    cost = encoder.fact(FirstTokenCost, FirstTokenCost.producer)
    return cost.queued_s if cost is not None else 0.0
