"""Where does a connection end that a proxy balances once, when it is opened?"""

from collections.abc import Sequence
from typing import Final

from tessera.core.media.digests import text_hash
from tessera.core.plugin import Picker, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest

CONNECTION_HEADER: Final = "x-connection-id"
"""Names the connection that a request came over; the simulator sets it, live traffic has none."""


@plugin("pinned-connection-picker")
class PinnedConnectionPicker(Picker):
    """Send every request of a connection to the endpoint that chance gave the connection: a Kubernetes Service.

    kube-proxy draws an endpoint when a connection is opened, and nothing moves it
    afterwards. The endpoint follows from a hash of the connection's name and the
    endpoint's id (the highest wins), so an endpoint that leaves moves only its own
    connections. A request without a name is drawn by lot.
    """

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """The index of the connection's endpoint."""
        connection = request.request.headers.get(CONNECTION_HEADER)
        if connection is None:
            return [rng.below(len(candidates))]
        ranks = [text_hash(f"{connection} {candidate.endpoint.id}") for candidate in candidates]
        return [ranks.index(max(ranks))]
