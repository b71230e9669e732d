"""Which endpoints carry the label that a request's header names?"""

from collections.abc import Iterator, Sequence

from tessera.core.plugin import NamedHeaders, Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("header-label-affinity-scorer")
class HeaderLabelAffinityScorer(Scorer):
    """1 for endpoints whose label equals the value of a header of the request, else 0."""

    header_name: str = ""
    """The header; without it and the label everybody has 0."""
    label_key: str = ""
    """The label."""

    def check(self) -> Iterator[tuple[str, str]]:
        """Whether the one is there with the other."""
        for key, value, other in (
            ("headerName", self.header_name, self.label_key),
            ("labelKey", self.label_key, self.header_name),
        ):
            if other and not value:
                yield key, "got none, expected a name"

    def headers_read(self) -> NamedHeaders:
        """The header, where there is one."""
        return [("headerName", self.header_name)] if self.header_name else []

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 0 for a request without the header."""
        wanted = request.request.headers.get(self.header_name.lower())
        if not wanted:
            return [0.0] * len(candidates)
        return [float(candidate.endpoint.labels.get(self.label_key) == wanted) for candidate in candidates]
