"""How many seconds of a decided request's work has each endpoint?"""

from collections.abc import Iterator
from dataclasses import dataclass

from tessera.core.facts import EncoderMatch, FirstTokenCost, PrefixMatch
from tessera.core.matching.divided import computing_stage, row_of, sent_away, working_stages
from tessera.core.matching.encode_shares import cost_s
from tessera.core.matching.mm_embeddings_cache import uncovered_items
from tessera.core.types import Candidate, Decision
from tessera.core.work import Work


@dataclass(frozen=True, slots=True)
class OwnWork:
    """One endpoint's part of a request."""

    endpoint_id: str
    seconds: float
    """Prefill, encoding and preparing; 0 where it only decodes."""
    num_engine_requests: int
    work: Work | None
    """The part: one that is over when that stage ends, or nothing where it is all that is left, decoding included."""

    @property
    def decodes(self) -> bool:
        """Whether the answer comes from there."""
        return self.work in (None, Work.DECODE)


def own_work(
    decision: Decision, producer: str = FirstTokenCost.producer, prefixes: str = PrefixMatch.producer
) -> Iterator[OwnWork]:
    """The part of each endpoint of which that producer knows the cost, encoders first.

    Args:
        decision: that sends the request somewhere.
        producer: name of the producer of costs.
        prefixes: name of the producer whose prefix matches that one takes off.
    """
    num, computing = decision.request.num_engine_requests, computing_stage(decision)
    for encoder, items in sent_away(decision).items():
        if (row := row_of(decision, encoder)) is not None:
            seconds = sum(cost_s(item, row, producer) for item in items)
            yield OwnWork(encoder, seconds, len(items), Work.ENCODE)
    for stage in working_stages(decision):
        if stage.winner is None or stage.work is Work.ENCODE:
            continue
        row = stage.candidate_of(stage.winner)
        if stage is not computing and stage.work is not None:
            yield OwnWork(stage.winner.id, 0.0, num, Work.DECODE)
        elif (cost := row.fact(FirstTokenCost, producer)) is not None:
            seconds = cost.own_s - _spared_s(decision, row, cost, prefixes)
            yield OwnWork(stage.winner.id, seconds, num, Work.PREFILL if stage.work is Work.PREFILL else None)


def _spared_s(decision: Decision, row: Candidate, cost: FirstTokenCost, prefixes: str) -> float:
    """Encoder time that is part of ``cost`` and is spent elsewhere."""
    away = [item for items in sent_away(decision).values() for item in items]
    if not away:
        return 0.0
    held = row.fact(EncoderMatch, EncoderMatch.producer)
    needed = {item.identifier for item in uncovered_items(decision.priced, row.fact(PrefixMatch, prefixes))}
    needed -= held.identifiers if held is not None else frozenset()
    return min(cost.encode_s, sum(cost.rates.encode_s(item) for item in away if item.identifier in needed))
