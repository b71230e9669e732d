"""What does a Decision look like as JSON?

The same record is the ``explain`` answer, the ``/debug`` page, the simulator's
record and the replay test's input. It is built only when somebody asks.
"""

import dataclasses
from collections import deque
from collections.abc import Iterator
from typing import Any

from tessera.core.facts import EncoderMatch
from tessera.core.parts import TextPart, TokenPart
from tessera.core.types import Candidate, Decision, PricedItem, PricedRequest, Stage

MAX_RECORDS = 1000
MAX_RECORD_BYTES = 64 << 20
_CANDIDATE_BYTES = 500
_DECISION_BYTES = 2_000
_PART_BYTES = 400
_IDENTIFIER_BYTES = 64
"""A slot of a set and its growth; the name itself is the item's."""


def decision_record(decision: Decision) -> dict[str, Any]:
    """The Decision with every value JSON-able: the log line, the answer of ``explain`` and of ``/debug``."""
    request = decision.request
    rejection = decision.rejection
    return {
        "request_id": request.request_id,
        "client_request_id": request.headers.get("x-request-id"),
        "at": decision.at,
        "wall_at": request.wall_at,
        "priced": priced_record(decision.priced),
        "stages": [_stage_record(stage) for stage in decision.stages],
        "plan": dict(decision.plan),
        "guesses": list(decision.guesses),
        "rejection": None
        if rejection is None
        else {"reason": str(rejection.reason), "filter": rejection.filter, "message": rejection.message},
    }


def priced_record(priced: PricedRequest) -> dict[str, Any]:
    """What the request weighs, with the price of each item."""
    request = priced.request
    return {
        "dialect": request.dialect,
        "model": request.model,
        "stream": request.stream,
        "body_bytes": request.body_bytes,
        "items": [item_record(item) for item in priced.items],
        "num_text_tokens": priced.num_text_tokens,
        "num_prompt_tokens": priced.num_prompt_tokens,
    }


def item_record(priced: PricedItem) -> dict[str, Any]:
    """One media item: what it is, what it costs, and how well that is known."""
    item = priced.item
    return {
        "index": priced.index,
        "modality": str(item.modality),
        "format": item.format,
        "width": item.width,
        "height": item.height,
        "num_frames": item.num_frames,
        "duration_s": item.duration_s,
        "num_tokens": priced.num_tokens,
        "num_embeds": priced.num_embeds,
        "num_wrapper_tokens": priced.num_wrapper_tokens,
        "basis": priced.basis.word,
        "rule_basis": priced.rule_basis.word,
        "size_basis": priced.size_basis.word,
        "reason": priced.reason,
        "identifier": item.identifier,
    }


def _stage_record(stage: Stage) -> dict[str, Any]:
    row_of = {index: row for row, index in enumerate(stage.scored)}
    return {
        "profile": stage.profile,
        "work": stage.work,
        "candidates": [
            {
                "endpoint": candidate.endpoint.id,
                "facts": _facts_record(candidate),
                "scores": {name: column[row_of[index]] for name, column in stage.columns.items()}
                if index in row_of
                else {},
                "total": stage.totals[row_of[index]] if index in row_of else None,
                "filtered_by": stage.filtered_by[index],
            }
            for index, candidate in enumerate(stage.candidates)
        ],
        "winner": stage.winner.id if stage.winner else None,
        "winners": [endpoint.id for endpoint in stage.winners],
        "runner_up": stage.runner_up.id if stage.runner_up else None,
        "fallbacks": [endpoint.id for endpoint in stage.fallbacks],
        "notes": {name: note.text for name, note in stage.notes.items()},
    }


def _facts_record(candidate: Candidate) -> dict[str, Any]:
    """Each fact under its type's name, under ``Type/producer`` where a producer of another name made it."""
    return {
        kind.__name__ if producer == getattr(kind, "producer", None) else f"{kind.__name__}/{producer}": {
            field.name: _plain(getattr(fact, field.name)) for field in dataclasses.fields(fact) if field.repr
        }
        for (kind, producer), fact in candidate.facts.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    return list(value) if isinstance(value, tuple) else value


def without_token_ids(decision: Decision) -> Decision:
    """The decision as it is kept: its prompt's token ids, 36 bytes each, are gone, and with them the items' places."""
    if decision.priced.token_ids is None:
        return decision
    return dataclasses.replace(decision, priced=dataclasses.replace(decision.priced, token_ids=None, spans=()))


class DecisionLog:
    """The last decisions, for ``/debug``.

    Memory: at most 1,000 decisions and about 64 MiB; a Decision is kept with digests and
    facts, without token ids and body.
    """

    def __init__(self, max_records: int = MAX_RECORDS, max_bytes: int = MAX_RECORD_BYTES) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._decisions: deque[tuple[Decision, int]] = deque()
        """Each with the bytes that it counts as."""
        self._num_bytes = 0

    def add(self, decision: Decision) -> None:
        """Remember a decision, and forget the oldest where there is no room."""
        size = _size_of(decision)
        self._decisions.append((without_token_ids(decision), size))
        self._num_bytes += size
        while len(self._decisions) > self._max_records or (
            self._num_bytes > self._max_bytes and len(self._decisions) > 1
        ):
            self._num_bytes -= self._decisions.popleft()[1]

    def find(self, request_id: str) -> Decision | None:
        """The newest decision with that id, ours or the client's ``x-request-id``."""
        for decision, _ in reversed(self._decisions):
            if request_id in (decision.request.request_id, decision.request.headers.get("x-request-id")):
                return decision
        return None

    def newest(self, limit: int = 100) -> Iterator[dict[str, Any]]:
        """One short row for each of the newest decisions, newest first."""
        for decision, _ in list(self._decisions)[: -limit - 1 : -1]:
            winner = decision.primary_stage.winner if decision.stages else None
            yield {
                "request_id": decision.request.request_id,
                "client_request_id": decision.request.headers.get("x-request-id"),
                "wall_at": decision.request.wall_at,
                "model": decision.request.model,
                "num_prompt_tokens": decision.priced.num_prompt_tokens,
                "num_items": len(decision.priced.items),
                "endpoint": winner.id if winner else None,
                "rejected": str(decision.rejection.reason) if decision.rejection else None,
                "guesses": list(decision.guesses),
            }


def _size_of(decision: Decision) -> int:
    """About how many bytes a decision holds, token ids aside."""
    parts = [part for prompt in decision.request.prompts for part in prompt]
    digests = sum(len(part.digests) for part in parts if isinstance(part, TextPart | TokenPart))
    rows = [candidate for stage in decision.stages for candidate in stage.candidates]
    # Each endpoint may hold each of a thousand items.
    keys = [key for key in rows[0].facts if key[0] is EncoderMatch] if rows and decision.priced.items else []
    names = sum(len(row.facts[key].identifiers) for key in keys for row in rows if key in row.facts)
    sized = _PART_BYTES * len(parts) + _CANDIDATE_BYTES * len(rows) + _IDENTIFIER_BYTES * names
    headers = sum(len(name) + len(text) for name, text in decision.request.headers.items())
    return _DECISION_BYTES + digests + headers + sized
