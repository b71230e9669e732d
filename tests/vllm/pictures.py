"""Pictures of every format and mode that an engine is sent, as bytes."""

import base64
import io
import random
from pathlib import Path
from typing import Any

from PIL import Image

SAMPLES = Path(__file__).parent.parent / "images"


def picture(kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (320, 240), seed: int = 0) -> bytes:
    """An encoded picture, other pixels for each seed; transparent at one corner where the mode can be."""
    colours = Image.frombytes("RGBA", (4, 4), random.Random(seed).randbytes(64)).resize(size)
    if mode in {"RGBA", "LA"}:
        colours.putpixel((0, 0), (0, 0, 0, 0))
    made = colours.convert("RGB").convert(mode) if mode not in {"RGBA", "LA"} else colours.convert(mode)
    buffer = io.BytesIO()
    made.save(buffer, kind)
    return buffer.getvalue()


def sample(name: str) -> bytes:
    """A file of tests/images."""
    return (SAMPLES / name).read_bytes()


def uri(content: bytes, subtype: str = "png") -> str:
    return f"data:image/{subtype};base64,{base64.b64encode(content).decode()}"


def image(content: bytes | None, subtype: str = "png", **fields: Any) -> dict[str, Any]:
    """A part of a message: the picture inline, or nothing but its ``uuid``."""
    return {"type": "image_url", "image_url": None if content is None else {"url": uri(content, subtype)}, **fields}
