"""Does a header say which profile chooses the endpoint?"""

from collections.abc import Iterator, Mapping, Sequence

from tessera.core.errors import RequestError
from tessera.core.plugin import Handler, NamedHeaders, plugin
from tessera.core.types import PricedRequest, Stage

MAX_NAMED = 16
"""Profiles that an error lists."""


@plugin("header-profile-handler")
class HeaderProfileHandler(Handler):
    """Run the one profile that a header of the request names, for who asks for each stage by itself.

    Without the header ``defaultProfile`` runs; the only profile runs whatever the
    header says. A name that is no profile's is refused with 400 (llm-d says 429).
    """

    header_name: str = "EPP-Profile"
    """The header; its name in any case."""
    default_profile: str = "decode"
    """The profile of a request without the header."""

    def headers_read(self) -> NamedHeaders:
        """The header."""
        return (("headerName", self.header_name),)

    def next_profile(self, request: PricedRequest, profiles: Sequence[str], done: Mapping[str, Stage]) -> str | None:
        """The profile that is named, then nothing."""
        return None if done else self.primary(request, profiles)

    def primary(self, request: PricedRequest, profiles: Sequence[str]) -> str:
        """The profile that is named."""
        if len(profiles) == 1:
            return profiles[0]
        named = request.request.headers.get(self.header_name.lower(), "").strip() or self.default_profile
        if named not in profiles:
            known = ", ".join(sorted(profiles)[:MAX_NAMED])
            message = f"header {self.header_name} names the profile {named[:64]!r}, expected one of {known}"
            raise RequestError(message, status=400, code="unknown_profile")
        return named

    def check_profiles(self, profiles: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Whether the default is one of several."""
        if len(profiles) > 1 and self.default_profile not in profiles:
            known = ", ".join(profiles)
            yield "defaultProfile", f"got {self.default_profile!r}, which is no profile; expected one of {known}"
