"""Does a request with media always encode apart?"""

from tessera.core.plugin import Decider, plugin
from tessera.core.types import PricedRequest, Stage


@plugin("always-disagg-multimodal-decider")
class AlwaysDisaggMultimodalDecider(Decider):
    """Run the stage for every request with media, whatever caches hold; never for text alone."""

    def wants(self, request: PricedRequest, computing: Stage) -> bool:
        """Whether there is an item."""
        return bool(request.items)
