"""Which request headers may the router look at, what may they claim, and which tell who does what?"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
"""Of a body that is read without its request."""
KEPT_HEADERS: Final = frozenset(
    {
        "x-request-id",
        "x-session-id",
        "x-session-token",
        "x-llm-d-video-fps",
        "x-llm-d-video-duration-seconds",
        "x-llm-d-video-resolution",
        "prefer",
        "epp-profile",
        "test-epp-endpoint-selection",
    }
)
"""The headers of a request that are always kept; beside them only those that a plugin names."""
MAX_NAMED_HEADERS: Final = 32
"""Further headers that all plugins together may name."""
MAX_HEADER_CHARS: Final = 1024
"""Characters of a header's value that are kept."""

ENCODE_PLAN: Final = "x-tessera-encode-plan"
"""Who encodes which item: ``0=ip:port,2=ip:port;alt=ip:port,ip:port``."""
ENCODERS: Final = "x-encoder-hosts-ports"
"""Who encodes, where no plan says which item; llm-d's."""
PREFILLER: Final = "x-prefiller-host-port"
"""Who computes the prompt; llm-d's."""
KV_SOURCE: Final = "x-kv-cache-source-host-port"
"""Who holds more of the prompt's KV; llm-d's."""
DATA_PARALLEL: Final = "x-data-parallel-host-port"
"""Which data-parallel rank gets the request, where all are reached through one port; llm-d's."""
PLAN_HEADERS: Final = (ENCODE_PLAN, ENCODERS, PREFILLER, KV_SOURCE, DATA_PARALLEL)
"""What a router says to the sidecar of the endpoint that decodes; no client may, and none of them goes further."""
STAGES: Final = "x-tessera-stages"
"""Of an answer: how each stage of the request ended, for the router alone."""

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_SECRET_WORDS: Final = ("authorization", "cookie", "api-key", "apikey", "password", "secret", "credential")
_SECRET_NAMES: Final = frozenset(
    {
        "x-access-token",
        "x-amz-security-token",
        "x-auth-token",
        "x-csrf-token",
        "x-forwarded-client-cert",
        "x-vault-token",
    }
)
_FRAMING_NAMES: Final = frozenset(
    {
        *("connection", "content-encoding", "content-length", "content-type", "date", "host", "keep-alive"),
        *("location", "retry-after", "server", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)


def why_not_kept(name: str) -> str | None:
    """Why a request's header of that name may not be kept; nothing where it may.

    Decisions with the headers that they read stay in memory for ``/debug``, so nothing
    that opens a door may be among them.

    >>> why_not_kept("x-tenant"), why_not_kept("X-Tenant ")
    (None, "got 'X-Tenant ', expected the name of a header")
    """
    lowered = name.lower()
    if not _NAME.fullmatch(name):
        return _no_name(name)
    if lowered in _SECRET_NAMES or any(word in lowered for word in _SECRET_WORDS):
        return f"{name} carries credentials, and Tessera keeps none; name a header that says no more than it must"
    return None


def why_not_written(name: str) -> str | None:
    """Why no plugin may write an answer's header of that name; nothing where one may.

    >>> why_not_written("x-session-token"), why_not_written("Content-Length")
    (None, 'Content-Length tells clients how to read the answer; name a header of its own')
    """
    lowered = name.lower()
    if not _NAME.fullmatch(name):
        return _no_name(name)
    if lowered in _FRAMING_NAMES or "cookie" in lowered:
        return f"{name} tells clients how to read the answer; name a header of its own"
    return None


def _no_name(name: str) -> str:
    return f"got {name[:64]!r}, expected the name of a header"


def positive_number(text: str | None, *, largest: float) -> float | None:
    """The number in a header where it is in 0 < x <= ``largest``; nothing for anything else.

    >>> [positive_number(text, largest=10.0) for text in ("2.5", "1e12", "nan")]
    [2.5, None, None]
    """
    if text is None or len(text) > 32:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 < value <= largest else None
