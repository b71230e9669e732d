"""Which endpoints play the role that this stage needs?

The role is the label ``llm-d.ai/role``. Source: llm-d's disaggregation docs.
"""

from collections.abc import Sequence
from typing import ClassVar

from tessera.core.plugin import Filter
from tessera.core.types import Candidate, PricedRequest, Rng

ROLE_LABEL = "llm-d.ai/role"


class RoleFilter(Filter):
    """Keeps the endpoints whose role label is one of ``roles``."""

    roles: ClassVar[frozenset[str]]
    accepts_unlabelled: ClassVar[bool] = False

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates with a fitting role, in their order."""
        return [c for c in candidates if self.fits(c.endpoint.labels.get(ROLE_LABEL))]

    def fits(self, role: str | None) -> bool:
        """Whether an endpoint with this role label is kept."""
        return self.accepts_unlabelled if role is None else role in self.roles
