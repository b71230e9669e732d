"""How does an engine fetch embeddings from the encoder's memory: vLLM's ECCPUConnector with NIXL?

The encoder answers ``{"<name>": {"item_indices", "metadata", "peer_host", "peer_port",
"size_bytes", "shape"}}``; what all encoders answered is merged into the using
engine's body. An entry without an address was evicted before it was announced: the engine
would encode that item itself, so it is not passed on.
Source: ``ECCPUConnector`` of vLLM 0.32; ``pkg/sidecar`` of llm-d-router for the merge.
"""

from collections.abc import Mapping
from typing import Final

from tessera.core.flow.connectors.protocols import EC_PARAMS, Unconfirmed, joined_objects, object_in
from tessera.core.flow.document import fields_of, value_of

MAX_REFERENCES: Final = 64
"""Entries of one answer, which is about one item."""


class ECNixl:
    """Merged ``ec_transfer_params``; the media stay in the body, so that the engine can encode what it cannot fetch."""

    def references(self, answer: bytes) -> Mapping[str, bytes]:
        """The entries that have an address."""
        entries = object_in(answer, EC_PARAMS)
        if len(entries) > MAX_REFERENCES:
            raise Unconfirmed
        found = {}
        for name, raw in entries.items():
            entry = fields_of(raw)
            host = value_of(entry.get("peer_host", b""))
            port = value_of(entry.get("peer_port", b""))
            if isinstance(host, str) and host and type(port) is int and 0 < port <= 65535:
                found[name] = bytes(raw)
        if not found:
            raise Unconfirmed
        return found

    def referring(self, references: Mapping[str, bytes]) -> Mapping[str, bytes | None]:
        """All entries in one object."""
        return {EC_PARAMS: joined_objects(references) if references else None}
