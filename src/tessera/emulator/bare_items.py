"""Which pictures come as no more than their grid, and is that grid one that vLLM would take?

Such a part is ``{"type": "image_embeds", "image_embeds": {"image_grid_thw": [1, 44, 80]}, "uuid": "..."}``:
the embeddings lie elsewhere. The grid may also be the base64 of a tensor that torch has saved.
"""

import binascii
import io
import math
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from struct import unpack
from typing import Any, Final, NamedTuple

from tessera.core.dialects.content_parts import piece_of
from tessera.core.draft import DraftMedia
from tessera.emulator.refusals import Refusal

MAX_TENSOR_CHARS: Final = 65_536
"""Base64 of a saved grid; those of torch have about 2,000."""
MAX_PATCHES: Final = 1 << 20
"""Patches of one picture."""
_GRID_BYTES: Final = 24
"""Three integers of 8 bytes."""


class Grid(NamedTuple):
    """Pairs of frames, rows and columns of a picture's patches: ``image_grid_thw``."""

    num_frames: int
    rows: int
    columns: int


def grids_of(messages: Any) -> list[Grid]:
    """The grids of a chat's parts that are no more than that, in prompt order.

    Raises:
        Refusal: a grid is missing or malformed, or a part brings the embeddings themselves.
    """
    return [_grid(part.get("image_embeds")) for part in _parts(messages) if _is_embeds(part)]


def _parts(messages: Any) -> Iterator[dict[str, Any]]:
    for message in messages if isinstance(messages, list) else []:
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, list):
            yield from (part for part in content if isinstance(part, dict))


def _is_embeds(part: dict[str, Any]) -> bool:
    piece = piece_of(part)
    return isinstance(piece, DraftMedia) and piece.is_embeds


def _grid(value: Any) -> Grid:
    if not isinstance(value, dict) or set(value) != {"image_grid_thw"}:
        raise Refusal(
            'An image_embeds part must be {"image_grid_thw": [t, h, w]} and a uuid here: the emulator takes no '
            "embeddings from a request.",
            param="image_embeds",
        )
    given = value["image_grid_thw"]
    numbers: Any = _saved_tensor(given) if isinstance(given, str) else given
    if not isinstance(numbers, list | tuple) or not all(map(_is_finite, numbers)):
        raise Refusal("Metadata image_grid_thw must be a finite numeric array.")
    if len(numbers) != 3 or min(numbers) < 1 or math.prod(numbers) > MAX_PATCHES:
        raise Refusal(f"image_grid_thw has {len(numbers)} numbers, expected 3 of at least 1, {MAX_PATCHES} patches")
    return Grid(*(int(each) for each in numbers))


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _saved_tensor(text: str) -> tuple[int, ...] | None:
    """The three integers in a file of ``torch.save``; nothing where it is none."""
    if len(text) > MAX_TENSOR_CHARS:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(b64decode(text, validate=True))) as archive:
            names = [info.filename for info in archive.infolist() if info.filename.endswith("/data/0")]
            sizes = [archive.getinfo(name).file_size for name in names]
            if sizes != [_GRID_BYTES]:
                return None
            return unpack("<3q", archive.read(names[0]))
    except (ValueError, binascii.Error, zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError):
        return None
