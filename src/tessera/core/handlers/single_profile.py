"""Which profiles run, where there is one?"""

from collections.abc import Mapping, Sequence

from tessera.core.plugin import Handler, plugin
from tessera.core.types import PricedRequest, Stage


@plugin("single-profile-handler")
class SingleProfileHandler(Handler):
    """Run the only profile, once."""

    def next_profile(self, request: PricedRequest, profiles: Sequence[str], done: Mapping[str, Stage]) -> str | None:
        """The profile, then nothing."""
        return None if done else profiles[0]

    def primary(self, request: PricedRequest, profiles: Sequence[str]) -> str:
        """The profile."""
        return profiles[0]
