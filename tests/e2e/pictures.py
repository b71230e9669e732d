"""Pictures and bodies for the end-to-end tests."""

import base64
import io
import json
import random
from typing import Any

from PIL import Image


def data_uri(width: int, height: int, kind: str = "JPEG", seed: int = 0) -> str:
    """A picture of that size, different for each seed."""
    colours = Image.frombytes("RGB", (4, 4), random.Random(seed).randbytes(48))
    buffer = io.BytesIO()
    colours.resize((width, height)).save(buffer, kind)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


def chat(model: str, urls: list[str], text: str = "What is this?", **fields: Any) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    content.append({"type": "text", "text": text})
    return {"model": model, "messages": [{"role": "user", "content": content}], "max_tokens": 4, **fields}


def body(model: str, urls: list[str], **fields: Any) -> bytes:
    return json.dumps(chat(model, urls, **fields)).encode()
