"""Is this session's endpoint among the candidates? Then nobody else is considered."""

from collections.abc import Iterator, Sequence

from tessera.core.matching.sessions import EncodedEndpointHeader, SessionIds, Sessions, Strategy
from tessera.core.plugin import Filter, plugin
from tessera.core.types import Candidate, Decision, PricedRequest, Rng


@plugin("session-affinity-filter")
class SessionAffinityFilter(Filter):
    """Keep a session on its endpoint while that is among the candidates; never leaves nobody.

    With ``session_id`` the id comes from a header or the body, and what was chosen for
    it is remembered here. With ``encoded_endpoint_header`` the request itself names its
    endpoint, by a token in a header. Memory: 65,536 sessions.
    """

    strategy: Strategy = "encoded_endpoint_header"
    """How a session's endpoint is known."""
    encoded_endpoint_header_config: EncodedEndpointHeader = EncodedEndpointHeader()
    """Of ``encoded_endpoint_header``."""
    session_id_config: SessionIds = SessionIds()
    """Of ``session_id``."""
    profile_name: str = ""
    """The profile whose choice a session is bound to; empty: the one that faces the client."""

    def __post_init__(self) -> None:
        self._sessions = Sessions(
            self.strategy, self.encoded_endpoint_header_config, self.session_id_config, self.profile_name
        )

    def cautions(self) -> Iterator[tuple[str, str]]:
        """What of the parameters has no effect."""
        return self._sessions.cautions()

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The session's endpoint alone, where it is among the candidates; else all of them."""
        home = self._sessions.home(request.request, candidates)
        return [home] if home is not None else list(candidates)

    def record(self, decision: Decision) -> None:
        """Remember the session's endpoint."""
        self._sessions.record(decision)
