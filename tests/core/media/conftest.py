"""What do the media tests share? The sample pictures, and blocks that are built by hand."""

import json
import os
import struct
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tessera.core.draft import DraftMedia
from tessera.core.media.window import Window
from tessera.core.parts import Modality

PICTURES = Path(__file__).parents[2] / "images"
SAMPLES = Path(os.environ.get("TESSERA_IMAGES_DIR") or PICTURES)
"""Files with a manifest; others can be put in."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``sample`` runs once for each picture of the manifest."""
    if "sample" in metafunc.fixturenames:
        samples = json.loads((SAMPLES / "manifest.json").read_text())["files"]
        metafunc.parametrize("sample", samples, ids=[sample["file"] for sample in samples])


@pytest.fixture
def sample_bytes(sample: dict[str, Any]) -> bytes:
    return (SAMPLES / sample["file"]).read_bytes()


@pytest.fixture(scope="session")
def picture() -> Callable[[str], bytes]:
    """The bytes of a picture by its name."""
    return lambda name: (PICTURES / name).read_bytes()


@pytest.fixture(scope="session")
def window_of() -> Callable[[bytes], Window]:
    """A window on bytes, poured, so that its length can be trusted."""

    def make(content: bytes, **limits: int) -> Window:
        window = Window(b64encode(content).decode(), **limits)
        window.verify()
        return window

    return make


@pytest.fixture(scope="session")
def image() -> Callable[..., DraftMedia]:
    """A media part of a request: an image, by URL unless said otherwise."""

    def make(url: str | None = None, **fields: Any) -> DraftMedia:
        return DraftMedia(modality=fields.pop("modality", Modality.IMAGE), url=url, **fields)

    return make


@pytest.fixture(scope="session")
def exif_block() -> Callable[..., bytes]:
    """A TIFF block whose first directory holds an orientation between two other tags."""

    def make(orientation: int, *, order: str = "<", kind: int = 3, count: int = 1, num_before: int = 1) -> bytes:
        entries = [struct.pack(order + "HHII", 0x0100 + index, 4, 1, 5) for index in range(num_before)]
        value = {3: "H", 4: "I", 1: "B", 6: "b", 8: "h", 9: "i", 13: "I"}[kind]
        inline = struct.pack(order + value, orientation).ljust(4, b"\0")
        entries.append(struct.pack(order + "HHI", 0x0112, kind, count) + inline)
        entries.append(struct.pack(order + "HHII", 0x0128, 4, 1, 2))
        mark = b"II*\0" if order == "<" else b"MM\0*"
        directory = struct.pack(order + "H", len(entries)) + b"".join(entries) + bytes(4)
        return mark + struct.pack(order + "I", 8) + directory

    return make
