"""What does a price cost, by family? CPU microseconds of one picture, clip or sound.

    python bench/families.py [--write bench/results/families.json]

Each family with its published settings over seven sizes of picture, a clip of ten
seconds and a sound of ten seconds; the best of fifteen runs of a few hundred calls.
"""

import time
from collections.abc import Callable
from typing import Any

from report import arguments, as_text, headed, keep
from tessera.config.check import TYPICAL_SIZES
from tessera.config.discover import discover
from tessera.core.family import AudioInfo, Count, Family, VideoInfo
from tessera.core.plugin import registered

NUM_CALLS, NUM_RUNS = 40, 15
CLIP = VideoInfo(width=1280, height=720, num_frames=300, fps=30)
SOUND = AudioInfo(duration_s=10)


def best_us(calls: list[Callable[[], object]]) -> float:
    """Microseconds of one call."""
    best = float("inf")
    for _ in range(NUM_RUNS):
        begun = time.thread_time()
        for _ in range(NUM_CALLS):
            for call in calls:
                call()
        best = min(best, time.thread_time() - begun)
    return round(1e6 * best / NUM_CALLS / len(calls), 2)


def costs(family: Family) -> dict[str, float]:
    """The modalities that the family takes."""
    found = {}
    if isinstance(family.image(640, 480), Count):
        found["image_us"] = best_us([lambda w=w, h=h: family.image(w, h) for w, h in TYPICAL_SIZES])  # type: ignore[misc]
    if isinstance(family.video(CLIP), Count):
        found["video_us"] = best_us([lambda: family.video(CLIP)])
    if isinstance(family.audio(SOUND), Count):
        found["audio_us"] = best_us([lambda: family.audio(SOUND)])
    return found


def main() -> None:
    parser = arguments(__doc__)
    args = parser.parse_args()
    discover()
    families = {cls.type: cls for cls in registered(Family).values()}
    result: dict[str, Any] = {
        **headed("CPU of one rule"),
        "families": {name: costs(cls()) for name, cls in sorted(families.items())},
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
