"""Which stages of a request does a server do itself, and what does it get from others?"""

from enum import StrEnum


class Role(StrEnum):
    """A server's part in a fleet.

    Every role but ``encode`` is a whole engine: it serves a request that nobody has begun.
    """

    ALL = "all"
    """Everything, and nothing from elsewhere."""
    ENCODE = "encode"
    """The encoder alone: no KV cache, no answers (vLLM's ``ec_producer``)."""
    PREFILL = "prefill"
    """Takes embeddings, hands KV on."""
    DECODE = "decode"
    """Takes KV; it never touches embeddings."""
    PREFILL_DECODE = "prefill-decode"
    """Takes embeddings, and does the rest itself."""

    @property
    def takes_embeddings(self) -> bool:
        """Whether it fetches embeddings (vLLM's ``ec_consumer``)."""
        return self in (Role.PREFILL, Role.PREFILL_DECODE)

    @property
    def transfers_kv(self) -> bool:
        """Whether it hands KV on or takes it (vLLM's ``NixlConnector``)."""
        return self in (Role.PREFILL, Role.DECODE)
