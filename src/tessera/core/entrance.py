"""At which address is an endpoint reached, and which endpoint was reached at an address?"""

from tessera.core.types import Decision


def addresses_of(decision: Decision) -> tuple[str, ...]:
    """``ip:port`` that the proxy tries in order: one where the winner has an entrance that is not its own."""
    return (decision.entrance,) if decision.entrance else tuple([each.id for each in decision.destinations])


def reached_at(decision: Decision, address: str) -> str:
    """The id of the endpoint that the proxy reached at ``address``."""
    winner = decision.primary_stage.winner
    return winner.id if winner is not None and address == decision.entrance else address
