"""Which endpoints play the role that this stage needs?

The role is the label ``llm-d.ai/role``.
"""

from collections.abc import Sequence
from typing import ClassVar

from tessera.core.plugin import Filter
from tessera.core.rng import Rng
from tessera.core.roles import ROLE_LABEL
from tessera.core.types import Candidate, PricedRequest


class RoleFilter(Filter):
    """Keeps the endpoints whose role label is one of ``roles``."""

    roles: ClassVar[frozenset[str]]
    accepts_unlabelled: ClassVar[bool] = False

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The candidates with a fitting role, in their order."""
        fitting = self._fitting()
        return [c for c in candidates if c.endpoint.labels.get(ROLE_LABEL) in fitting]

    def fits(self, role: str | None) -> bool:
        """Whether an endpoint with this role label is kept."""
        return role in self._fitting()

    def _fitting(self) -> frozenset[str | None]:
        return self.roles | {None} if self.accepts_unlabelled else self.roles
