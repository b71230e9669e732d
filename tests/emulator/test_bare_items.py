"""Which grids are read."""

import base64
import io
import struct
import zipfile

import pytest

from tessera.emulator.bare_items import Grid, grids_of
from tessera.emulator.refusals import Refusal


def messages(*grids):
    parts = [
        {"type": "image_embeds", "image_embeds": {"image_grid_thw": grid}, "uuid": str(number)}
        for number, grid in enumerate(grids)
    ]
    return [{"role": "user", "content": [{"type": "text", "text": "x"}, *parts]}]


def saved(content, name="archive/data/0"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", b"")
        archive.writestr(name, content)
    return base64.b64encode(buffer.getvalue()).decode()


def test_grids_come_in_prompt_order():
    assert grids_of(messages([1, 44, 80], [2.0, 6, 8])) == [Grid(1, 44, 80), Grid(2, 6, 8)]


def test_a_tensor_that_torch_has_saved_is_three_integers():
    assert grids_of(messages(saved(struct.pack("<3q", 1, 44, 80)))) == [Grid(1, 44, 80)]


@pytest.mark.parametrize(
    "grid",
    [
        [[1, 44, 80]],
        [1, True, 80],
        [1, "44", 80],
        {"t": 1},
        None,
        "",
        "AAAA",
        "x" * 70_000,
        saved(b"\0" * 16),
        saved(b"\0" * 10_000_000),
        saved(struct.pack("<3q", 1, 44, 80), name="archive/data/1"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(grid):
    with pytest.raises(Refusal, match="must be a finite numeric array"):
        grids_of(messages(grid))


def test_other_parts_have_none():
    assert grids_of(None) == grids_of([3, {"content": "text"}, {"content": [1, {"type": "image_url"}]}]) == []
