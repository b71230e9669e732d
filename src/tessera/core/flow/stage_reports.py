"""What does an answer say of how its stages ended?

``encode=ip:port,items,status,seconds;prefill=...;decode=...``: one part for each endpoint
that a stage was tried on. Written by ``tessera sidecar`` into ``x-tessera-stages``.
"""

import math
import re
from typing import Final

from tessera.core.work import StageEnded, Work

MAX_CHARS: Final = 8_192
MAX_REPORTS: Final = 64
"""Parts of one report."""
MAX_ITEMS: Final = 1_024
MAX_SECONDS: Final = 86_400.0

_ENDPOINT = re.compile(r"(\[[0-9a-fA-F:.]{2,45}\]|[0-9A-Za-z._-]{1,253}):[0-9]{1,5}")
"""Of the endpoints' own ids none is a name, but who decodes may call its engine ``localhost``."""
_NUMBER = re.compile(r"[0-9]{1,4}")
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,12})?")


def read_report(text: str, request_id: str, at: float) -> tuple[StageEnded, ...]:
    """Each part as an event, what failed before what was done; what is told after it is then what made up for it.

    Raises:
        ValueError: it is not such a report; nothing of it is believed.

    >>> [(each.stage.value, each.num_items) for each in read_report("encode=10.0.0.1:80,2,200,0.1", "r", 0.0)]
    [('encode', 2)]
    """
    parts = text.split(";")
    if len(text) > MAX_CHARS or len(parts) > MAX_REPORTS:
        raise ValueError(f"got {len(text)} characters in {len(parts)} parts, at most {MAX_CHARS} in {MAX_REPORTS}")
    events = [_event(part.strip(), request_id, at) for part in parts if part.strip()]
    return tuple(sorted(events, key=lambda event: event.is_done))


def _event(part: str, request_id: str, at: float) -> StageEnded:
    stage, _, rest = part.partition("=")
    fields = rest.split(",")
    if stage not in set(Work) or len(fields) != 4:
        raise ValueError(f"got {part[:64]!r}, expected encode, prefill or decode=ip:port,items,status,seconds")
    endpoint, items, status, seconds = (each.strip() for each in fields)
    fits = (_ENDPOINT.fullmatch(endpoint), _NUMBER.fullmatch(items), _NUMBER.fullmatch(status))
    if not all(fits) or not _SECONDS.fullmatch(seconds):
        raise ValueError(f"got {part[:64]!r}, expected ip:port and three numbers")
    num_items, code, duration_s = int(items), int(status), float(seconds)
    if num_items > MAX_ITEMS or code > 599 or not math.isfinite(duration_s) or duration_s > MAX_SECONDS:
        raise ValueError(f"got {part[:64]!r}, expected at most {MAX_ITEMS} items, a status below 600 and a day")
    return StageEnded(
        at=at,
        request_id=request_id,
        stage=Work(stage),
        endpoint_id=endpoint,
        status=code,
        seconds=duration_s,
        num_items=num_items,
    )
