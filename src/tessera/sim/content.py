"""What does a client ask, and which bytes does it send for it?

Content is named by keys: the same key is the same text or picture, in every process and
for every policy. Text is 4 bytes a token. Pictures are of one colour, so that a body is
small though the picture is large, as those of inference-perf are.
"""

import json
import struct
import zlib
from base64 import b64encode
from dataclasses import dataclass
from functools import lru_cache
from hashlib import shake_128
from typing import Any, Final

PATH: Final = "/v1/chat/completions"
BYTES_PER_TOKEN: Final = 4
MAX_SIDE: Final = 16_384
"""Pixels a side; the largest picture takes 32 MiB while it is compressed."""


@dataclass(frozen=True, slots=True)
class Text:
    """A run of text: one text part of a message."""

    key: str
    num_tokens: int
    """Without those of the message's role."""


@dataclass(frozen=True, slots=True)
class Image:
    """A picture."""

    key: str
    width: int
    """Pixels."""
    height: int
    is_link: bool = False
    """Whether the client sends a URL instead of the bytes."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat, its parts in prompt order."""

    role: str
    parts: tuple[Text | Image, ...]


@dataclass(frozen=True, slots=True)
class Ask:
    """One request of a client, before it is sent."""

    messages: tuple[Message, ...]
    num_output_tokens: int
    """Generated exactly, as with ``ignore_eos``."""


def user(*parts: Text | Image, num_output_tokens: int) -> Ask:
    """A chat of one message of the user's."""
    return Ask((Message("user", parts),), num_output_tokens)


def text_of(text: Text) -> str:
    """The characters of a run: 4 for each token.

    >>> len(text_of(Text("question-1", 1200)))
    4800
    """
    return shake_128(text.key.encode()).hexdigest(text.num_tokens * BYTES_PER_TOKEN // 2)


def url_of(image: Image) -> str:
    """What stands in the body for a picture: a data URI, or a link."""
    if image.is_link:
        return f"https://images.example/{image.key}-{image.width}x{image.height}.png"
    return "data:image/png;base64," + b64encode(png_of(image)).decode()


def png_of(image: Image) -> bytes:
    """A PNG of one colour whose bytes are those of no other key."""
    colour = shake_128(image.key.encode()).digest(3)
    head = struct.pack(">IIBBBBB", image.width, image.height, 1, 3, 0, 0, 0)
    chunks = (
        _chunk(b"IHDR", head),
        _chunk(b"PLTE", colour),
        _chunk(b"tEXt", b"Title\0" + image.key.encode("ascii", "backslashreplace")),
        _pixels(image.width, image.height),
        _chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def body_of(ask: Ask, model: str) -> bytes:
    """The chat completion that asks it."""
    body = {
        "model": model,
        "messages": [{"role": each.role, "content": [_part(part) for part in each.parts]} for each in ask.messages],
        "max_tokens": ask.num_output_tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return json.dumps(body, separators=(",", ":")).encode()


def _part(part: Text | Image) -> dict[str, Any]:
    if isinstance(part, Text):
        return {"type": "text", "text": text_of(part)}
    return {"type": "image_url", "image_url": {"url": url_of(part)}}


@lru_cache(maxsize=1024)
def _pixels(width: int, height: int) -> bytes:
    """The IDAT chunk of a picture whose pixels are all of the palette's one colour: a bit each, all 0."""
    assert 0 < width <= MAX_SIDE, f"a picture {width} pixels wide, at most {MAX_SIDE} are drawn"
    assert 0 < height <= MAX_SIDE, f"a picture {height} pixels high, at most {MAX_SIDE} are drawn"
    row_bytes = 1 + -(-width // 8)
    return _chunk(b"IDAT", zlib.compress(bytes(row_bytes * height), 1))


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
