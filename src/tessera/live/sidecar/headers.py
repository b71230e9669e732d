"""Which headers go on to the engine, to the other servers, and back to the client?"""

import uuid
from collections.abc import Mapping
from typing import Final

from multidict import CIMultiDict, CIMultiDictProxy

from tessera.core.headers import PLAN_HEADERS, STAGES

REQUEST_ID: Final = "x-request-id"
MAX_REQUEST_ID_CHARS: Final = 256

_HOP: Final = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection"),
        *("te", "trailer", "transfer-encoding", "upgrade"),
    }
)
"""Of one connection only. Source: RFC 9110, 7.6.1."""
_RANK: Final = "x-data-parallel-rank"
"""A rank of the engine that decodes, which is none of who prefills. Source: vLLM 0.32."""
_OURS: Final = frozenset({*PLAN_HEADERS, STAGES})
_TO_ENCODERS: Final = ("authorization", "traceparent", "tracestate", "baggage")


def onward(headers: CIMultiDictProxy[str], *, keeps_length: bool = False) -> CIMultiDict[str]:
    """A request's headers for the engine, with exactly one ``x-request-id``: the client's first, else a new one."""
    dropped = (
        _dropped(headers) | _OURS | {"host", "expect", REQUEST_ID} | (set() if keeps_length else {"content-length"})
    )
    kept = CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)
    kept[REQUEST_ID] = headers.get(REQUEST_ID, "")[:MAX_REQUEST_ID_CHARS] or str(uuid.uuid4())
    return kept


def to_encoder(headers: Mapping[str, str], item: int) -> dict[str, str]:
    """The headers of one encode job: who asks, and an id that says of which request and item."""
    kept = {name: headers[name] for name in _TO_ENCODERS if name in headers}
    return kept | {"content-type": "application/json", REQUEST_ID: f"{headers[REQUEST_ID]}-enc-{item}"}


def to_prefiller(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """The client's headers, but for how the answer may be packed, as we read it, and for a rank of another engine."""
    kept = CIMultiDict(headers)
    for name in ("accept-encoding", _RANK):
        kept.popall(name, None)
    return kept


def backward(headers: CIMultiDictProxy[str], *, keeps_length: bool) -> CIMultiDict[str]:
    """The engine's headers for the client."""
    dropped = _dropped(headers) | {STAGES} | (set() if keeps_length else {"content-length"})
    return CIMultiDict((name, value) for name, value in headers.items() if name.lower() not in dropped)


def _dropped(headers: CIMultiDictProxy[str]) -> frozenset[str]:
    """Hop by hop, and what ``Connection`` names besides."""
    named = headers.get("connection")
    return _HOP | {name.strip().lower() for name in named.split(",")} if named else _HOP
