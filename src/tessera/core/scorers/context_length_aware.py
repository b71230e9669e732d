"""Which endpoints are meant for prompts of this length?"""

import re
from collections.abc import Sequence

from tessera.core.plugin import Filter, Scorer, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest

_RANGE = re.compile(r"\s*(\d{1,15})\s*-\s*(\d{1,15})\s*")


@plugin("context-length-aware")
class ContextLengthAware(Scorer, Filter):
    """Prefer endpoints whose label says that they are meant for prompts of this many tokens.

    The label holds ``min-max``. Within it ``0.3 + 0.7 * (0.7 / (1 + width / 10000) +
    0.3 * (max - tokens) / width)``, the narrower the better, and 1 for a width of 0;
    outside ``0.3 / (1 + distance / 1000)``; 0.5 without the label; 0 where it is no range.
    """

    label: str = "llm-d.ai/context-length-range"
    """The label that holds the range."""
    enable_filtering: bool = False
    """Also drop endpoints whose range does not fit, unless nobody's does."""

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate."""
        return [_rating(each.endpoint.labels.get(self.label), request.num_prompt_tokens) for each in candidates]

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """With ``enableFiltering`` those that fit or have no label, all where there are none."""
        if not self.enable_filtering:
            return list(candidates)
        tokens = request.num_prompt_tokens
        return [each for each in candidates if _fits(each.endpoint.labels.get(self.label), tokens)] or list(candidates)


def _range(text: str) -> tuple[int, int] | None:
    """Both ends of ``min-max``; nothing for anything else."""
    found = _RANGE.fullmatch(text) if len(text) <= 64 else None
    ends = (int(found[1]), int(found[2])) if found else None
    return ends if ends and ends[0] <= ends[1] else None


def _fits(text: str | None, tokens: int) -> bool:
    ends = _range(text) if text is not None else (tokens, tokens)
    return ends is not None and ends[0] <= tokens <= ends[1]


def _rating(text: str | None, tokens: int) -> float:
    if text is None:
        return 0.5
    ends = _range(text)
    if ends is None:
        return 0.0
    least, most = ends
    if not least <= tokens <= most:
        distance = least - tokens if tokens < least else tokens - most
        return 0.3 / (1.0 + distance / 1000)
    width = most - least
    if not width:
        return 1.0
    return 0.3 + 0.7 * (0.7 / (1.0 + width / 10_000) + 0.3 * (most - tokens) / width)
