"""Which endpoints carry the labels that the operator asks for?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Literal

from tessera.core.plugin import Filter, params, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@params
class MatchExpression:
    """One requirement on a label."""

    key: str
    """The label's name."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """``NotIn`` and ``DoesNotExist`` also accept endpoints without the label."""
    values: tuple[str, ...] = ()
    """For ``In`` and ``NotIn``."""

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether an endpoint with these labels meets the requirement."""
        match self.operator:
            case "In":
                return labels.get(self.key) in self.values
            case "NotIn":
                return labels.get(self.key) not in self.values
            case "Exists":
                return self.key in labels
            case "DoesNotExist":
                return self.key not in labels


@plugin("label-selector-filter", aliases=("by-label-selector",))
class LabelSelectorFilter(Filter):
    """Keep endpoints whose labels meet every requirement of a Kubernetes label selector; an empty one keeps all."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels and the values they must have."""
    match_expressions: tuple[MatchExpression, ...] = ()
    """Further requirements."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Whether each operator has the values it needs."""
        for index, each in enumerate(self.match_expressions):
            if (each.operator in {"In", "NotIn"}) != bool(each.values):
                need = "at least one value" if each.operator in {"In", "NotIn"} else "no values"
                yield f"matchExpressions[{index}].values", f"{each.operator} takes {need}, got {len(each.values)}"

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates that meet every requirement, in their order."""
        kept = list(candidates)
        for key, value in self.match_labels.items():
            kept = [c for c in kept if c.endpoint.labels.get(key) == value]
        for each in self.match_expressions:
            kept = [c for c in kept if each.accepts(c.endpoint.labels)]
        return kept
