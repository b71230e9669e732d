"""What does it cost to read a body, and which part of it: JSON, pictures or text?

    python bench/read.py [--write bench/results/read.json]

``Router.read`` and its stages, each called on its own in every round: the dialect
(limits, UTF-8, JSON), the probe of each picture (identity: base64 and the engine's
blake3 of all of it; size and colours: from its headers), the digests of the text. Beside them msgspec alone, which
only decodes the JSON. Medians of the thread's CPU time; the allocator is set as
``tessera serve`` sets it.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from bodies import all_bodies
from report import arguments, as_text, headed, keep
from tessera.core.dialects.chat import ChatBody, ChatDialect
from tessera.core.draft import DraftMedia, DraftText
from tessera.core.media.colour import ColourMode
from tessera.core.media.digests import text_digests
from tessera.core.media.identity import Naming
from tessera.core.media.mm_hash import HashFactors, MediaHash
from tessera.core.media.probe import probe
from tessera.core.media.window import Window
from tessera.core.parts import MediaItem
from tessera.core.router import Router
from tessera.core.types import ModelProfile
from tessera.live.memory import keep_large_blocks

HEADERS = {":method": "POST", ":path": "/v1/chat/completions", "content-type": "application/json"}
FACTORS = HashFactors(engine_model="Qwen/Qwen3-VL-32B-Instruct")
NAMING = Naming(FACTORS)
PROFILE = ModelProfile(engine_model=FACTORS.engine_model)
ROUND_BYTES = 400_000_000
MIN_ROUNDS, MAX_ROUNDS = 50, 2000


def stages(body: bytes) -> Mapping[str, Callable[[], object]]:
    """What is timed, by name."""
    draft = ChatDialect().parse(body, PROFILE)
    media = [part for part in draft.prompts[0] if isinstance(part, DraftMedia)]
    texts = [str(part.text).encode() for part in draft.prompts[0] if isinstance(part, DraftText) and part.text]
    dialect = ChatDialect()
    return {
        "read": lambda: Router.read(body, HEADERS, PROFILE, request_id="r", at=0.0, wall_at=0.0),
        "dialect": lambda: dialect.parse(body, PROFILE),
        "probe": lambda: [probe(part, naming=NAMING) for part in media],
        "probe_identity": lambda: [media_hash(Window(part.url or "")) for part in media],
        "digests": lambda: [text_digests(text) for text in texts],
        "msgspec_alone": lambda: msgspec.json.decode(body, type=ChatBody),
    }


def media_hash(window: Window) -> str:
    """The engine's name of a picture whose colours are known."""

    def begin() -> MediaHash:
        hashed = FACTORS.image_hash(window.num_bytes, ColourMode.RGB)
        assert hashed is not None, "the model is known"
        return hashed

    poured = window.pour(begin)
    assert poured is not None, "the content can be decoded"
    return poured.hexdigest()


def measure(body: bytes) -> dict[str, Any]:
    """Median microseconds of each stage; all of them in turn in every round."""
    calls = stages(body)
    num_rounds = min(MAX_ROUNDS, max(MIN_ROUNDS, ROUND_BYTES // len(body)))
    times_us: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(num_rounds):
        for name, call in calls.items():
            before = time.thread_time_ns()
            call()
            times_us[name].append((time.thread_time_ns() - before) / 1000)
    medians = {f"{name}_us": round(statistics.median(values), 1) for name, values in times_us.items()}
    return {"body_bytes": len(body), "num_rounds": num_rounds, **medians}


def main() -> None:
    parser = arguments(__doc__)
    args = parser.parse_args()
    bodies = all_bodies()
    for name, body in bodies.items():
        request, _ = Router.read(body, HEADERS, PROFILE, request_id="r", at=0.0, wall_at=0.0)
        items = [part for part in request.prompts[0] if isinstance(part, MediaItem)]
        assert all(item.width and item.is_identity_exact for item in items), f"a picture of {name!r} was not understood"
    keep_large_blocks()
    result = {
        **headed("CPU to read a body"),
        "by_body": {name: measure(body) for name, body in bodies.items()},
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
