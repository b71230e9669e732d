"""Did the router foresee what the engine made of a request?"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from .case import Case
from .engine import BLOCK_SIZE, Answer
from .prediction import Prediction

SHOWN = 12
"""Token ids around the place where two prompts part."""


@dataclass(frozen=True)
class Comparison:
    """One request: what was foreseen of it, and what came."""

    case: Case
    predicted: Prediction
    answer: Answer
    num_found: int
    """Predicted blocks that the engine has stored."""

    @property
    def is_declined(self) -> bool:
        """Whether the router said why it cannot know, where it may."""
        return self.case.may_decline and self.predicted.reason is not None

    def faults(self) -> list[str]:
        """Everything that was not as foreseen, in words."""
        if self.is_declined:
            return []
        if self.answer.status != 200:
            return [f"status {self.answer.status}: {str(self.answer.content)[:200]}"]
        if self.predicted.reason is not None:
            return [f"not tokenised: {self.predicted.reason}"]
        return [each for each in (self._tokens(), self._blocks(), self._held()) if each]

    def row(self) -> dict[str, Any]:
        """The request's line in the result."""
        return {
            "name": self.case.name,
            "engine_tokens": self.answer.num_prompt_tokens,
            "our_tokens": len(self.predicted.token_ids),
            "engine_cached_tokens": self.answer.num_cached_tokens,
            "our_cached_tokens": self.predicted.num_held,
            "blocks_predicted": len(self.predicted.keys),
            "blocks_found": self.num_found,
            **({"declined": self.predicted.reason} if self.is_declined else {}),
            **({"faults": faults} if (faults := self.faults()) else {}),
        }

    def _tokens(self) -> str:
        ours, engine = self.predicted.token_ids, self.answer.token_ids
        if self.answer.num_prompt_tokens == len(ours) and (not engine or tuple(engine[0]) == ours):
            return ""
        said = f"{len(ours)} tokens, the engine says {self.answer.num_prompt_tokens}"
        return f"{said}; {_parting(ours, engine[0])}" if engine else said

    def _blocks(self) -> str:
        num_full = (self.answer.num_prompt_tokens or 0) // BLOCK_SIZE
        num_predicted = len(self.predicted.keys)
        if num_full == num_predicted == self.num_found:
            return ""
        return f"{num_full} full blocks, {num_predicted} predicted, {self.num_found} of them stored"

    def _held(self) -> str:
        cached = self.answer.num_cached_tokens
        # Of several samples of one prompt the later ones find what the first has left.
        if self.case.fields.get("n", 1) > 1 or cached == self.predicted.num_held:
            return ""
        return f"{self.predicted.num_held} tokens believed to be cached, the engine says {cached}"


def _parting(ours: Sequence[int], theirs: Sequence[int]) -> str:
    """The first place where two prompts differ."""
    pairs = zip_longest(ours, theirs)
    place = next((index for index, (a, b) in enumerate(pairs) if a != b), None)
    if place is None:
        return "the same ids"
    start = max(0, place - SHOWN // 2)
    shown = slice(start, start + SHOWN)
    return f"they part at {place}: ours from {start} on {list(ours[shown])}, the engine's {list(theirs[shown])}"
