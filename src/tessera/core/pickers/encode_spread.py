"""How are one request's media items spread over encoders?"""

from collections.abc import Mapping, Sequence

from tessera.core.facts import EncoderMatch, FirstTokenCost
from tessera.core.matching.encode_shares import share_out
from tessera.core.pickers.random import shuffled
from tessera.core.plugin import Picker, plugin
from tessera.core.rng import Rng
from tessera.core.types import Candidate, PricedRequest


@plugin("encode-spread-picker", reads=(FirstTokenCost, EncoderMatch))
class EncodeSpreadPicker(Picker):
    """Spread the request's distinct items over the encoders by size and affinity, so that the last is there soonest.

    The largest item is given away first, each to the encoder that would be through
    with it first: behind what that has in flight, and at once where it holds the
    item's embeddings. Equal encoders are told apart by their totals, then by lot. The
    endpoint that needs the embeddings is told who encodes what in
    ``x-tessera-encode-plan``, and the next best by total as spares; where that header would
    be longer than 7,000 characters it knows the encoders alone, and deals the items
    out in turn. In a profile that does not encode it takes the best total.
    """

    def share_out(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> Mapping[str, int]:
        """The encoder of each distinct item."""
        return share_out(request.distinct_items(), candidates, _ranks(totals, rng)).encoder_of

    def pick(
        self, request: PricedRequest, candidates: Sequence[Candidate], totals: Sequence[float], rng: Rng
    ) -> list[int]:
        """The best total; equal ones by lot."""
        ranks = _ranks(totals, rng)
        return [min(range(len(ranks)), key=ranks.__getitem__)]


def _ranks(totals: Sequence[float], rng: Rng) -> list[float]:
    """The place of each candidate when the best total comes first, equal ones by lot."""
    ranks = [0.0] * len(totals)
    for place, index in enumerate(sorted(shuffled(len(totals), rng), key=lambda at: -totals[at])):
        ranks[index] = place
    return ranks
