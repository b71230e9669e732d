"""What does a look at a picture's headers cost: of every format, and of pictures that were made to be slow?

    python bench/media.py [--write bench/results/media.json]

``header`` is the look alone (first bytes, parser), ``probe`` everything: identity too,
which decodes and hashes all content. Beside them Pillow, which only opens the same
bytes. Pictures are base64 in a data URI, as clients send them. Medians of the
thread's CPU time. Hostile pictures are those of tests/core/media; the target is 2 ms
for each header, and what Pillow reads for us is measured as it runs in a thread.
"""

import io
import json
import runpy
import statistics
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image

from report import arguments, as_text, headed, keep
from tessera.core.draft import DraftMedia
from tessera.core.media import pillow
from tessera.core.media.probe import FORMATS, SNIFF_BYTES, probe
from tessera.core.media.size import Unsized
from tessera.core.media.window import Window
from tessera.core.parts import Modality

TESTS = Path(__file__).parent.parent / "tests"
TARGET_MS = 2.0


def look(window: Window) -> str:
    """What a probe does after it has hashed the content."""
    first_bytes = window.read(0, SNIFF_BYTES)
    known = next((known for known in FORMATS if known.matches(first_bytes)), None)
    try:
        size = known.size(window) if known else pillow.look(window)[1]
    except Unsized as gave_up:
        return gave_up.reason.value
    return f"{size.width}x{size.height}"


def median_us(call: Callable[[Any], object], arguments: Callable[[], Any], num_rounds: int) -> float:
    """Median microseconds of the thread's CPU; what makes the arguments is not timed."""
    times_us = []
    for _ in range(num_rounds):
        argument = arguments()
        before = time.thread_time_ns()
        call(argument)
        times_us.append((time.thread_time_ns() - before) / 1000)
    return round(statistics.median(times_us), 1)


def verified(uri: str) -> Window:
    """A window on content that was hashed."""
    window = Window(uri)
    window.verify()
    return window


def opened(content: bytes) -> object:
    """What Pillow does; most errors say that it is no picture."""
    try:
        return Image.open(io.BytesIO(content)).size
    except Exception as error:
        return error


def figures(content: bytes, num_rounds: int) -> dict[str, Any]:
    """One picture's costs."""
    uri = f"data:image/x;base64,{b64encode(content).decode()}"
    media = DraftMedia(modality=Modality.IMAGE, url=uri)
    window = verified(uri)
    found = look(window)
    item = probe(media, uses_pillow=True)
    return {
        "format": item.format,
        "found": found,
        "num_bytes": len(content),
        "num_steps": window.num_steps,
        "bytes_looked_at": window.bytes_read,
        "header_us": median_us(look, lambda: verified(uri), num_rounds),
        "probe_us": median_us(lambda each: probe(each, uses_pillow=True), lambda: media, num_rounds),
    }


def sample_figures(num_rounds: int) -> dict[str, dict[str, Any]]:
    """The pictures of the manifest, by file name."""
    result = {}
    for sample in json.loads((TESTS / "images/manifest.json").read_text())["files"]:
        content = (TESTS / "images" / sample["file"]).read_bytes()
        pillow_us = median_us(opened, lambda content=content: content, num_rounds)
        result[sample["file"]] = {**figures(content, num_rounds), "pillow_open_us": pillow_us}
    return result


def hostile_figures(num_rounds: int) -> dict[str, dict[str, Any]]:
    """The pictures that were made to be slow, by name."""
    hostile = runpy.run_path(str(TESTS / "core/media/hostile_pictures.py"))["PICTURES"]
    return {name: figures(each.make(), num_rounds) for name, each in hostile.items()}


def by_format(samples: dict[str, dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Medians over the files of a format."""
    names = sorted({each["format"] for each in samples.values() if each["format"]})
    keys = ("header_us", "probe_us", "pillow_open_us")
    return {
        name: {
            key: round(statistics.median(each[key] for each in samples.values() if each["format"] == name), 1)
            for key in keys
        }
        for name in names
    }


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--num-rounds", type=int, default=200)
    parser.add_argument("--num-hostile-rounds", type=int, default=15)
    args = parser.parse_args()
    samples = sample_figures(args.num_rounds)
    hostile = hostile_figures(args.num_hostile_rounds)
    slowest = max(hostile, key=lambda name: hostile[name]["header_us"])
    result = {
        **headed(f"CPU of a look at a picture's headers; target: under {TARGET_MS} ms for any hostile picture"),
        "slowest_hostile": {"name": slowest, "header_ms": round(hostile[slowest]["header_us"] / 1000, 2)},
        "num_hostile_over_target": sum(each["header_us"] > TARGET_MS * 1000 for each in hostile.values()),
        "by_format": by_format(samples),
        "hostile": hostile,
        "samples": samples,
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
