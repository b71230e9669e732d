"""Which endpoint does this session belong to?"""

from collections.abc import Sequence

from tessera.core.matching.session_plugin import SessionPlugin
from tessera.core.plugin import Scorer, plugin
from tessera.core.types import Candidate, PricedRequest


@plugin("session-affinity-scorer")
class SessionAffinityScorer(SessionPlugin, Scorer):
    """1 for the endpoint that a session is bound to, else 0.

    With ``session_id`` the id comes from a header or the body, and what was chosen for
    it is remembered here. With ``encoded_endpoint_header`` the request itself names its
    endpoint, by a token in a header that the answer before carried: the gateway must
    send us answers' headers for it (``response_header_mode: SEND``). The token names
    who served, as far as the gateway says it, else who was chosen; an answer of 500 or
    more carries none. Memory: 65,536 sessions.
    """

    def score(self, request: PricedRequest, candidates: Sequence[Candidate]) -> list[float]:
        """One score for each candidate; 0 everywhere for a request without session."""
        home = self._sessions.home(request.request, candidates)
        return [float(each is home) for each in candidates]
