"""Which request headers may the router look at, and what may they claim?"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})
"""Of a body that is read without its request."""
KEPT_HEADERS = (
    "x-request-id",
    "x-session-id",
    "x-session-token",
    "x-llm-d-video-fps",
    "x-llm-d-video-duration-seconds",
    "x-llm-d-video-resolution",
    "prefer",
    "epp-profile",
    "test-epp-endpoint-selection",
)
"""The headers that the router may look at; nothing else of them is kept."""
MAX_HEADER_CHARS = 1024


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
