"""Which embeddings does a request still wait for, and which has this server in host memory?"""

from tessera.engine.costs import Costs
from tessera.engine.embedding_store import EmbeddingStore
from tessera.engine.encoder_cache import EncoderCache
from tessera.engine.sequences import Ticket


class Fetches:
    """Requests whose embeddings are on their way, and the host memory into which they come.

    Two requests that want one item at once read it twice.
    """

    __slots__ = ("_costs", "_under_way", "store")

    def __init__(self, costs: Costs, max_bytes: int) -> None:
        """Nobody waits, and host memory of ``max_bytes`` is empty."""
        self.store = EmbeddingStore(max_bytes)
        self._costs = costs
        self._under_way: dict[Ticket, dict[str, int]] = {}

    @property
    def num_sequences(self) -> int:
        """Sequences of the requests that wait."""
        return sum(len(ticket.sequences) for ticket in self._under_way)

    def begin(self, ticket: Ticket, num_cached_tokens: int, cache: EncoderCache) -> int:
        """Bytes to be read from elsewhere before the request can go on; 0 where it need not wait.

        They are those of its items that lie elsewhere, are on neither side of this server's
        memory and are not covered by the first ``num_cached_tokens`` of the prompt.
        """
        fetched = ticket.request.handover.fetched
        missing: dict[str, int] = {}
        for span in ticket.spans:
            identifier = span.item.identifier
            is_here = identifier in cache or identifier in self.store
            if identifier in fetched and span.end > num_cached_tokens and not is_here:
                missing[identifier] = self._costs.embed_bytes(span.item)
        if missing:
            self._under_way[ticket] = missing
        return sum(missing.values())

    def end(self, ticket: Ticket) -> bool:
        """A request's embeddings have come; false where it does not wait any more."""
        missing = self._under_way.pop(ticket, None)
        if missing is None:
            return False
        for identifier, num_bytes in missing.items():
            self.store.put(identifier, num_bytes)
        return True

    def leave(self, ticket: Ticket) -> bool:
        """The request is given up; false where it did not wait."""
        return self._under_way.pop(ticket, None) is not None
