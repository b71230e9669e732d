"""Had this request its endpoint to itself until its first token?

Only then does its time to first token speak of its own work: nobody was ahead of it and
nobody came beside it.
"""

from dataclasses import dataclass

from tessera.core.facts import FirstTokenCost
from tessera.core.types import Candidate, Ending, FirstTokenSource, Outcome


@dataclass(slots=True)
class _Waiting:
    """Requests of one endpoint before their first token."""

    num: int = 0
    only: str | None = None
    """The one that still has the endpoint to itself."""


class Alone:
    """Follows requests from ``sent`` to ``ended``, which come once for each.

    Memory: one entry for each request in between, one for each endpoint with such a request
    before its first token.
    """

    def __init__(self) -> None:
        self._endpoint_of: dict[str, str | None] = {}
        """By request; nothing after its first token."""
        self._waiting: dict[str, _Waiting] = {}
        self._alone: set[str] = set()

    def __len__(self) -> int:
        """Requests and endpoints that are held."""
        return len(self._endpoint_of) + len(self._waiting)

    def sent(self, request_id: str, endpoint_id: str) -> None:
        """A request goes to an endpoint."""
        if request_id in self._endpoint_of:
            return
        waiting = self._waiting.setdefault(endpoint_id, _Waiting())
        if waiting.num == 0:
            waiting.only = request_id
            self._alone.add(request_id)
        elif waiting.only is not None:
            self._alone.discard(waiting.only)
            waiting.only = None
        waiting.num += 1
        self._endpoint_of[request_id] = endpoint_id

    def first_token(self, request_id: str) -> None:
        """Its first token has come: who is sent from now on does not disturb it."""
        endpoint_id = self._endpoint_of.get(request_id)
        if endpoint_id is None:
            return
        self._endpoint_of[request_id] = None
        waiting = self._waiting[endpoint_id]
        waiting.num -= 1
        if waiting.only == request_id:
            waiting.only = None
        if waiting.num == 0:
            del self._waiting[endpoint_id]

    def ended(self, request_id: str) -> bool:
        """The request is over; whether it had its endpoint to itself. Everything held for it is dropped."""
        self.first_token(request_id)
        self._endpoint_of.pop(request_id, None)
        was_alone = request_id in self._alone
        self._alone.discard(request_id)
        return was_alone


def served_alone(outcome: Outcome) -> Candidate | None:
    """The endpoint of a request whose time to first token may speak of its work alone, as the decision saw it.

    It won, served, finished and had nothing ahead; the first token was seen in the
    answer or counted by the engine; the engine made one request of it.
    """
    decision = outcome.decision
    if decision is None or outcome.ending is not Ending.FINISHED or (outcome.status or 200) >= 400:
        return None
    if outcome.first_token_at is None or outcome.first_token_source in (None, FirstTokenSource.PREDICTED):
        return None
    stages = [stage for stage in decision.stages if stage.winner is not None]
    winner = decision.primary_stage.winner
    if winner is None or len(stages) != 1 or decision.request.num_engine_requests != 1:
        return None
    row = decision.primary_stage.candidate_of(winner)
    cost = row.fact(FirstTokenCost, FirstTokenCost.producer)
    is_clean = cost is not None and cost.queued_s == 0.0 and outcome.endpoint in (None, winner.id)
    return row if is_clean else None
