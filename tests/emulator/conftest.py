"""What every test of the emulator needs: a running server, clients, pictures."""

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from openai import AsyncOpenAI
from PIL import Image

from tessera.emulator import Emulator, EmulatorSettings
from tessera.engine.profiles import PROFILES

SAMPLES = Path(__file__).parent / "samples"


@pytest.fixture
def samples() -> Path:
    """Answers recorded from a real vLLM 0.32 with a tiny Qwen3-VL."""
    return SAMPLES


@pytest.fixture
def settings() -> EmulatorSettings:
    """The recorded server's settings, with an engine fifty times as fast as the default."""
    return EmulatorSettings(
        model="tiny-qwen3-vl",
        max_model_len=8192,
        max_images=8,
        profile=replace(PROFILES["h200-tp2-qwen3-vl-32b"], block_size=32, num_blocks=300),
        speed=50,
    )


@pytest.fixture
async def emulator(settings: EmulatorSettings) -> AsyncIterator[Emulator]:
    async with Emulator(settings) as running:
        yield running


@pytest.fixture
async def client(emulator: Emulator) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{emulator.url}/v1", api_key="none", max_retries=0, timeout=20) as made:
        yield made


@pytest.fixture
async def http(emulator: Emulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(emulator.url) as session:
        yield session


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    async def wait(condition: Callable[[], bool]) -> None:
        """Let the event loop turn until the condition holds; ten seconds are a failure."""
        async with asyncio.timeout(10):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0)

    return wait


@pytest.fixture
def picture() -> Callable[..., str]:
    def draw(width: int, height: int, kind: str = "PNG") -> str:
        out = io.BytesIO()
        Image.new("RGB", (width, height), (width % 256, height % 256, 7)).save(out, kind)
        return f"data:image/{kind.lower()};base64,{base64.b64encode(out.getvalue()).decode()}"

    return draw
