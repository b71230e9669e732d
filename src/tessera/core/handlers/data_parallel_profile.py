"""Which data-parallel rank of an engine gets the request, where all ranks are reached through one port?"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from tessera.core.handlers.single_profile import SingleProfileHandler
from tessera.core.headers import DATA_PARALLEL
from tessera.core.plugin import Range, plugin
from tessera.core.types import Decision, Endpoint


@plugin("data-parallel-profile-handler")
class DataParallelProfileHandler(SingleProfileHandler):
    """Run the only profile over endpoints that are ranks, and send the request to the port they share.

    Each rank is an endpoint with a port of its own. The request goes to the winner's
    address at ``primaryPort``, with ``ip:port`` of the rank in ``x-data-parallel-host-port``,
    which the sidecar there reads (``tessera sidecar --data-parallel-size``). No fallback is
    listed behind it: the header would name a rank that the other server does not have.
    The gateway must know each address at ``primaryPort``: list rank 0 with it.

    Deprecated in llm-d: a router that picks ranks by their own ports (``single-profile-handler``)
    keeps its fallbacks.
    """

    primary_port: Annotated[int, Range(ge=1, le=65535)] = 8000
    """The port at which every address takes requests for all of its ranks."""

    def check_profiles(self, profiles: Sequence[str]) -> Iterator[tuple[str, str]]:
        """One profile."""
        if len(profiles) > 1:
            yield "primaryPort", f"the handler runs one profile, and there are {', '.join(profiles)}; leave one"

    def entrance(self, winner: Endpoint) -> str:
        """The winner's address at the primary port."""
        host, _, _ = winner.id.rpartition(":")
        return f"{host}:{self.primary_port}"

    def request_headers(self, decision: Decision) -> Mapping[str, str]:
        """The rank."""
        winner = decision.primary_stage.winner
        return {} if winner is None else {DATA_PARALLEL: winner.id}
