"""Which bodies do the benchmarks send? A short chat, a long one, and chats with pictures, the same bytes every time."""

import json
import random
import struct
from base64 import b64encode

MODEL = "Qwen/Qwen3-VL-32B-Instruct"
SHORT, LONG, PICTURES, PICTURE_8_MB = "518 B", "149 KB", "2.3 MB, 3 images", "8 MB, 1 image"
SIZES = {SHORT: 518, LONG: 148_862, PICTURES: 2_329_533, PICTURE_8_MB: 8_000_000}
"""Bytes of each body. The first three are those that the ext_proc prototypes were measured with."""

_WORDS = ("the", "picture", "shows", "a", "harbour", "at", "dawn", "with", "boats", "cranes", "and", "gulls")


def all_bodies() -> dict[str, bytes]:
    """Every body by its name."""
    rng = random.Random(7)
    bodies = {
        SHORT: _chat(rng, [], SIZES[SHORT]),
        LONG: _chat(rng, [], SIZES[LONG]),
        PICTURES: _chat(rng, [(2560, 1440), (1920, 1080), (1280, 960)], SIZES[PICTURES]),
        PICTURE_8_MB: _chat(rng, [(4000, 3000)], SIZES[PICTURE_8_MB]),
    }
    assert {name: len(body) for name, body in bodies.items()} == SIZES
    return bodies


def _chat(rng: random.Random, images: list[tuple[int, int]], num_bytes: int) -> bytes:
    """A chat completion of exactly ``num_bytes``: text, and images that fill most of it where there are any."""
    urls = ["data:image/jpeg;base64," + jpeg(rng, size, (num_bytes - 1000) // len(images)) for size in images]
    parts: list[object] = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    missing = num_bytes - len(_encoded("", parts))
    text = " ".join(rng.choices(_WORDS, k=missing))[:missing]
    return _encoded(text, parts)


def _encoded(text: str, parts: list[object]) -> bytes:
    question: object = [*parts, {"type": "text", "text": text}] if parts else text
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": question}]
    return json.dumps({"model": MODEL, "messages": messages, "max_tokens": 64, "stream": False}).encode()


def jpeg(rng: random.Random, size: tuple[int, int], num_chars: int) -> str:
    """Base64 of the headers of a baseline JPEG and noise behind them, at most ``num_chars`` characters.

    Nothing on the road decodes pixels, so noise costs what a photograph does.
    """
    width, height = size
    frame = struct.pack(">BHHB", 8, height, width, 3) + bytes([1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1])
    segments = [(0xE0, b"JFIF\0\1\1\0\0\1\0\1\0\0"), (0xDB, b"\0" + bytes(range(1, 65))), (0xC0, frame)]
    segments.append((0xDA, bytes([3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0])))
    head = b"\xff\xd8" + b"".join(struct.pack(">BBH", 0xFF, kind, len(data) + 2) + data for kind, data in segments)
    num_bytes = (num_chars - len("data:image/jpeg;base64,") - 64) // 4 * 3
    return b64encode(head + rng.randbytes(num_bytes - len(head))).decode()
