"""Does a request always prefill apart?"""

from tessera.core.plugin import Decider, plugin
from tessera.core.types import PricedRequest, Stage


@plugin("always-disagg-pd-decider")
class AlwaysDisaggPDDecider(Decider):
    """Run the stage for every request."""

    def wants(self, request: PricedRequest, computing: Stage) -> bool:
        """Yes."""
        return True
