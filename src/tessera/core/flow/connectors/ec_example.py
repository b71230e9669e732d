"""How does an engine fetch embeddings from a shared folder: vLLM's ECExampleConnector?

The encoder writes each item's embeddings under its name; the using engine looks for
the names of the media in its own body. So an answer of success is the confirmation,
and nothing is passed on. Source: vLLM 0.32, seen; llm-d's ``ec-example``.
"""

from collections.abc import Mapping

from tessera.core.flow.connectors.protocols import EC_PARAMS


class ECExample:
    """Shared storage."""

    def references(self, answer: bytes) -> Mapping[str, bytes]:
        """None is needed."""
        return {}

    def referring(self, references: Mapping[str, bytes]) -> Mapping[str, bytes | None]:
        """Nothing but the removal of what the client put there."""
        return {EC_PARAMS: None}
