"""How does a plugin that keeps sessions together know them? The parameters and the memory of filter and scorer."""

import dataclasses
from collections.abc import Iterator, Mapping

from tessera.core.matching.sessions import EncodedEndpointHeader, SessionIds, Sessions, Strategy
from tessera.core.plugin import NamedHeaders, Plugin
from tessera.core.types import Decision, Endpoint


@dataclasses.dataclass(kw_only=True, eq=False)
class SessionPlugin(Plugin):
    """A plugin with ``_sessions``, made of its parameters and told of decisions."""

    strategy: Strategy = "encoded_endpoint_header"
    """How a session's endpoint is known."""
    encoded_endpoint_header_config: EncodedEndpointHeader = EncodedEndpointHeader()  # noqa: RUF009 - frozen
    """Of ``encoded_endpoint_header``."""
    session_id_config: SessionIds = SessionIds()  # noqa: RUF009 - frozen
    """Of ``session_id``."""
    profile_name: str = ""
    """The profile whose choice a session is bound to; empty: the one that faces the client."""

    def __post_init__(self) -> None:
        self._sessions = Sessions(
            self.strategy, self.encoded_endpoint_header_config, self.session_id_config, self.profile_name
        )

    def headers_read(self) -> NamedHeaders:
        """Where a request's session stands."""
        return self._sessions.headers_read()

    def headers_written(self) -> NamedHeaders:
        """Where an answer's token stands."""
        return self._sessions.headers_written()

    def cautions(self) -> Iterator[tuple[str, str]]:
        """What depends on the gateway."""
        return self._sessions.cautions()

    def answer_headers(self, decision: Decision, served: Endpoint) -> Mapping[str, str]:
        """The session's token, where sessions are known by tokens."""
        return self._sessions.answer_headers(decision, served)

    def record(self, decision: Decision) -> None:
        """Remember the session's endpoint."""
        self._sessions.record(decision)
