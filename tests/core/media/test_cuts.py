"""Does a picture that was cut anywhere have the right size, or a reason?

No format makes a wrong size unavoidable: what may still be turned, or whose last
number may go on, has none.
"""

import random
from base64 import b64encode
from typing import Any

import pytest

from tessera.core.draft import DraftMedia
from tessera.core.media.probe import probe
from tessera.core.media.size import Reason
from tessera.core.parts import MediaItem, Modality

EVERY_BYTE_UP_TO = 2048
NUM_CUTS = 200
REASONS = {Reason.UNKNOWN_FORMAT, Reason.TRUNCATED_HEADER, Reason.BAD_HEADER, Reason.REFUSED_FORMAT}


def check(item: MediaItem, sample: dict[str, Any], cut: int) -> None:
    expect = sample["expect"]
    assert item.num_bytes == cut
    if item.width is None:
        assert item.height is None
        assert item.reason in REASONS
    else:
        assert expect["accept"]
        assert (item.width, item.height, item.reason) == (expect["w"], expect["h"], None)


def test_the_first_bytes_and_seeded_cuts(sample: dict[str, Any], sample_bytes: bytes) -> None:
    text = b64encode(sample_bytes).decode()
    cuts = set(range(min(len(sample_bytes), EVERY_BYTE_UP_TO)))
    cuts |= {random.Random(seed).randint(0, len(sample_bytes)) for seed in range(NUM_CUTS)}
    for cut in sorted(cuts):
        media = DraftMedia(modality=Modality.IMAGE, base64=text[: (cut * 4 + 2) // 3])
        check(probe(media, uses_pillow=True), sample, cut)


@pytest.mark.slow
def test_every_byte(sample: dict[str, Any], sample_bytes: bytes) -> None:
    view = memoryview(sample_bytes)
    for cut in range(len(sample_bytes) + 1):
        media = DraftMedia(modality=Modality.IMAGE, content=view[:cut], uuid="same for all")
        check(probe(media, uses_pillow=True), sample, cut)
