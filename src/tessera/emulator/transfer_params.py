"""What does a request say of stages that other servers have done, or will do?

vLLM's ``kv_transfer_params`` (NIXL) and ``ec_transfer_params``. Fields of unexpected type
are passed over where vLLM does not need them.
"""

import re
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from tessera.emulator.refusals import Refusal

MAX_ENTRIES: Final = 1024
"""Items of one ``ec_transfer_params``."""
MAX_NAME_CHARS: Final = 1024
"""Of a request id, an identifier."""
_HOST: Final = re.compile(r"[A-Za-z0-9._:-]{1,253}")
"""A name or an address, and nothing that a URL would take for more."""


class Peer(NamedTuple):
    """Where another server's side channel is. The emulator's is its HTTP port."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteKV:
    """KV of the prompt that a peer keeps."""

    peer: Peer
    request_id: str
    """The peer's name of it."""
    num_cached_tokens: int | None
    """What the peer's own cache had of the prompt: reported as this request's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferParams:
    """Both kinds of one request."""

    remote_kv: RemoteKV | None = None
    keeps_kv: bool = False
    """Whether a peer will pull the prompt's KV (``do_remote_decode``)."""
    announced: dict[str, Peer | None] = field(default_factory=dict)
    """Items that were encoded elsewhere, by identifier, and whom to ask; nobody with a shared store."""


def read_transfer_params(kv: Any, ec: Any) -> TransferParams:
    """What both fields say.

    Raises:
        Refusal: a field is no object, or too large.
    """
    kv = _object("kv_transfer_params", kv)
    ec = _object("ec_transfer_params", ec)
    if len(ec) > MAX_ENTRIES:
        raise Refusal(f"ec_transfer_params has {len(ec)} entries, at most {MAX_ENTRIES}", param="ec_transfer_params")
    return TransferParams(
        remote_kv=_remote_kv(kv) if kv.get("do_remote_prefill") is True else None,
        keeps_kv=kv.get("do_remote_decode") is True,
        announced={name[:MAX_NAME_CHARS]: _peer(entry, "peer_host", "peer_port") for name, entry in ec.items()},
    )


def _object(name: str, value: Any) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Refusal(f"{name} is {type(value).__name__}, expected an object", param=name)
    return value


def _remote_kv(kv: dict[str, Any]) -> RemoteKV | None:
    peer = _peer(kv, "remote_host", "remote_port")
    request_id = kv.get("remote_request_id")
    if peer is None or not isinstance(request_id, str) or len(request_id) > MAX_NAME_CHARS:
        return None
    num_cached = kv.get("remote_prefill_cached_tokens")
    is_number = isinstance(num_cached, int) and not isinstance(num_cached, bool)
    return RemoteKV(peer=peer, request_id=request_id, num_cached_tokens=num_cached if is_number else None)


def _peer(entry: Any, host_key: str, port_key: str) -> Peer | None:
    host, port = (entry.get(host_key), entry.get(port_key)) if isinstance(entry, dict) else (None, None)
    if not isinstance(host, str) or not _HOST.fullmatch(host):
        return None
    if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65_536:
        return None
    return Peer(host, port)
