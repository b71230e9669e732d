"""Does every family count what the real processors count, on every case of every golden series?

The vectors lie beside this file, or in ``TESSERA_GOLDEN_DIR``: any of the same files,
with other cases, may be put there.
"""

import json
import os
from functools import cache
from pathlib import Path

import pytest

from tessera.config.discover import discover
from tessera.core.family import AudioInfo, Count, Family, Refused, VideoInfo
from tessera.core.plugin import registered

from . import series_grid, series_tiles

discover()

HERE = Path(__file__).parent
GOLDEN_DIR = Path(os.environ.get("TESSERA_GOLDEN_DIR", HERE))
ROWS = [*series_grid.SERIES, *series_tiles.SERIES]


@cache
def series_of(file):
    """Each list of cases of a golden file, by its key; nothing where there is no such file."""
    path = GOLDEN_DIR / f"{file}.json"
    content = json.loads(path.read_text()) if path.exists() else {}
    return {key: value for key, value in content.items() if isinstance(value, list) and value and _has_cases(value)}


def _has_cases(value):
    return all(isinstance(each, dict) for each in value)


def cases():
    return [
        pytest.param(row, case, id=f"{row.name}-{number}")
        for row in ROWS
        for number, case in enumerate(series_of(row.file).get(row.key, ()))
    ]


def count(row, case):
    """What our rule says of a case."""
    family = registered(Family)[row.family_type](**row.overrides)
    if row.kind == "audio":
        samples = case.get("samples_16k", round(case["seconds"] * 16_000))
        return family.audio(AudioInfo(duration_s=samples / 16_000))
    if row.kind == "video":
        total = case.get("total_frames", case.get("frames"))
        size = {"width": case.get("w", 640), "height": case.get("h", 480)}
        return family.video(VideoInfo(**size, num_frames=total, fps=case.get("fps", 1)))
    return family.image(case["w"], case["h"], num_images=row.num_images)


def expected_tokens(row, case):
    """Prompt tokens of a case, or nothing where the file does not say them."""
    if row.constant_tokens is not None:
        return row.constant_tokens
    if "error" in case:
        return case["vllm_tokens"]
    if "special_tokens" in case:
        return case["special_tokens"] + case["timestamp_digits"] + case["timestamp_other_chars"]
    return case.get(row.tokens)


@pytest.mark.parametrize(("row", "case"), cases())
def test_equals_the_real_processor(row, case):
    counted = count(row, case)
    if "error" in case and "vllm_tokens" not in case:
        assert isinstance(counted, Refused)
        return
    assert isinstance(counted, Count), counted
    tokens, embeds = expected_tokens(row, case), case.get(row.embeds)
    assert tokens is not None or embeds is not None
    assert tokens is None or counted.num_tokens == tokens
    assert embeds is None or counted.num_embeds == embeds


def test_every_series_has_a_row():
    rows = {(row.file, row.key) for row in ROWS} | series_grid.ELSEWHERE.keys()
    missing = [
        (path.stem, key)
        for path in sorted(GOLDEN_DIR.glob("*.json"))
        for key in series_of(path.stem)
        if (path.stem, key) not in rows
    ]
    assert missing == []


def test_every_row_has_its_series():
    files = {row.file for row in ROWS if GOLDEN_DIR == HERE or series_of(row.file)}
    missing = [(row.file, row.key) for row in ROWS if row.file in files and row.key not in series_of(row.file)]
    assert missing == []
