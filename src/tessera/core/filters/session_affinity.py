"""Is this session's endpoint among the candidates? Then nobody else is considered."""

from collections.abc import Sequence

from tessera.core.matching.session_plugin import SessionPlugin
from tessera.core.plugin import Filter, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("session-affinity-filter")
class SessionAffinityFilter(SessionPlugin, Filter):
    """Keep a session on its endpoint while that is among the candidates; never leaves nobody.

    With ``session_id`` the id comes from a header or the body, and what was chosen for
    it is remembered here. With ``encoded_endpoint_header`` the request itself names its
    endpoint, by a token in a header that the answer before carried: the gateway must
    send us answers' headers for it (``response_header_mode: SEND``). The token names
    who served, as far as the gateway says it, else who was chosen; an answer of 500 or
    more carries none. Memory: 65,536 sessions.
    """

    def keep(self, request: PricedRequest, candidates: Sequence[Candidate], rng: Rng) -> list[Candidate]:
        """The session's endpoint alone, where it is among the candidates; else all of them."""
        home = self._sessions.home(request.request, candidates)
        return [home] if home is not None else list(candidates)
