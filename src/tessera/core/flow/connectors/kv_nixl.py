"""How does an engine fetch KV blocks from the prefiller: vLLM's NixlConnector?

The prefiller computes one token, keeps the blocks for a while and answers with
``kv_transfer_params``, which go into the decode's body as they are.
Source: ``NixlConnector`` of vLLM 0.32; llm-d's ``nixlv2``.
"""

from collections.abc import Mapping
from typing import Final

from tessera.core.flow.connectors.protocols import KV_PARAMS, Unconfirmed, object_in
from tessera.core.flow.document import edited, fields_of

_KEEP: Final = (
    b'{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,'
    b'"remote_block_ids":null,"remote_host":null,"remote_port":null}'
)


_OF_TRANSFERS: Final = ("do_remote_", "remote_")
"""How the names begin by which an engine fetches and keeps blocks."""


class KVNixl:
    """``kv_transfer_params`` there and back; whatever the client put there goes."""

    def alone(self, given: bytes) -> Mapping[str, bytes | None]:
        """Without words of transfers: a client must not send an engine to a server of its choice, or have it keep KV.

        Others, such as ``lmcache.skip_save``, are the client's.
        """
        fields = fields_of(given)
        kept = {name: raw for name, raw in fields.items() if not name.startswith(_OF_TRANSFERS)}
        if len(kept) == len(fields):
            return {}
        return {KV_PARAMS: edited(kept, {}) if kept else None}

    def keeping(self) -> Mapping[str, bytes | None]:
        """Ask the prefiller to keep the blocks."""
        return {KV_PARAMS: _KEEP}

    def fetching(self, answer: bytes) -> Mapping[str, bytes | None]:
        """The prefiller's own words."""
        if not object_in(answer, KV_PARAMS):
            raise Unconfirmed
        return {KV_PARAMS: bytes(fields_of(answer)[KV_PARAMS])}
