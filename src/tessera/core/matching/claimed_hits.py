"""Did the encoder cache hold what it was believed to hold? By first tokens that waited for nobody."""

from typing import Final

from tessera.core.facts import FirstTokenCost
from tessera.core.matching.alone import Alone, served_alone
from tessera.core.pricing.robust import Ring
from tessera.core.types import Candidate, Decision, Outcome

NUM_RATIOS: Final = 64
"""First tokens without a claimed hit that say how right the prediction is."""
MIN_RATIOS: Final = 16
"""Fewer of them say nothing."""
MIN_HELD_S: Final = 0.02
"""Encoding that a hit spares; less drowns in what else a first token waits for: a step takes 0.02 s."""


class ClaimedHits:
    """Compares first tokens behind claimed hits with the prediction, corrected by first tokens without such claims.

    ``typical`` is the median of measured over predicted seconds of the last 64 requests
    that had their endpoint to themselves and claimed nothing: endpoints that are slower
    than their rates are no proof of a miss. A claim of ``held`` seconds fails where
    ``measured > typical * (predicted + held / 2)``. Memory: as ``Alone``, and 64 numbers.
    """

    def __init__(self) -> None:
        """Know nothing yet."""
        self._alone = Alone()
        self._ratios = Ring(NUM_RATIOS)

    def sent(self, decision: Decision) -> None:
        """A request goes to its endpoint; it counts where its first token is predicted."""
        stage = decision.primary_stage
        if stage.winner is not None and _cost(stage.candidate_of(stage.winner)) is not None:
            self._alone.sent(decision.request.request_id, stage.winner.id)

    def first_token(self, request_id: str) -> None:
        """Its first token has come."""
        self._alone.first_token(request_id)

    def held(self, outcome: Outcome) -> bool | None:
        """Whether what the request's endpoint was believed to hold was there; nothing where that cannot be told."""
        was_alone = self._alone.ended(outcome.request_id)
        row = served_alone(outcome) if was_alone else None
        cost = _cost(row) if row is not None else None
        if cost is None or outcome.decision is None or outcome.first_token_at is None or cost.ttft_s <= 0:
            return None
        measured = outcome.first_token_at - outcome.decision.at
        if cost.held_encode_s == 0.0:
            self._ratios.add(measured / cost.ttft_s)
        if cost.held_encode_s < MIN_HELD_S or len(self._ratios) < MIN_RATIOS:
            return None
        return measured <= self._ratios.median() * (cost.ttft_s + cost.held_encode_s / 2)


def _cost(row: Candidate) -> FirstTokenCost | None:
    return row.fact(FirstTokenCost, FirstTokenCost.producer)
