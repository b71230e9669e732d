"""Does the live router read each request where it may: on the loop, or in its threads?"""

import asyncio
import base64
import json
import struct
import sys
import threading

import pytest

from tessera.core.media import pillow
from tessera.core.parts import MediaItem
from tessera.core.types import ModelProfile
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask
from tessera.live.service import INLINE_BYTES, RouterService

TGA = struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, 4, 3, 24, 0) + bytes(36)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAQAAAADCAIAAAA7ljmRAAAAEElEQVR4nGP4z8AARwzEcQCukw/x0F8jngAAAABJRU5ErkJggg=="
)


@pytest.fixture
def service(build):
    budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
    one = RouterService(build.router(), ModelProfile(), seed=7, budget=budget)
    yield one
    one.close()


def ask(*pictures: bytes, text: str = "what is this?") -> Ask:
    parts = [{"type": "text", "text": text}]
    for picture in pictures:
        url = "data:image/x;base64," + base64.b64encode(picture).decode()
        parts.append({"type": "image_url", "image_url": {"url": url}})
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
    return Ask(body, {":method": "POST", ":path": "/v1/chat/completions"}, None)


def items(request) -> list[MediaItem]:
    return [part for prompt in request.prompts for part in prompt if isinstance(part, MediaItem)]


@pytest.fixture
def threads(monkeypatch):
    """The threads in which Pillow was asked."""
    asked, look = [], pillow.look

    def noted(window):
        asked.append(threading.current_thread())
        return look(window)

    monkeypatch.setattr(pillow, "look", noted)
    return asked


async def test_pictures_that_we_know_are_read_on_the_loop(service, threads) -> None:
    request, _ = await service.read(ask(PNG, PNG), "r1")
    assert [(item.format, item.width, item.height, item.reason) for item in items(request)] == [("png", 4, 3, None)] * 2
    assert threads == []


async def test_pillow_looks_at_the_others_in_a_thread(service, threads) -> None:
    request, _ = await service.read(ask(PNG, TGA, b"no picture at all"), "r1")
    assert [(item.format, item.width, item.height, item.reason) for item in items(request)] == [
        ("png", 4, 3, None),
        ("tga", 4, 3, None),
        (None, None, None, "unknown-format"),
    ]
    assert len(threads) == 2
    assert threading.current_thread() not in threads
    assert request.request_id == "r1"


async def test_large_bodies_are_read_once_in_a_thread(service, threads) -> None:
    request, _ = await service.read(ask(TGA, text="x" * INLINE_BYTES), "r1")
    assert [item.format for item in items(request)] == ["tga"]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


async def test_a_request_is_routed_where_pillow_is_absent(service, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    request, _ = await service.read(ask(TGA), "r1")
    assert [(item.format, item.width, item.reason) for item in items(request)] == [(None, None, "needs-pillow")]


async def test_a_fault_does_not_end_the_timers(service, monkeypatch) -> None:
    rounds: asyncio.Queue[None] = asyncio.Queue()

    def breaks(_: float) -> None:
        rounds.put_nowait(None)
        raise KeyError("timers")

    monkeypatch.setattr(service.open, "settle_due", breaks)
    timers = asyncio.create_task(service.run_timers())
    async with asyncio.timeout(10):
        await rounds.get()
        await rounds.get()
    timers.cancel()
    assert b'tessera_internal_errors_total{where="timers"}' in service.metrics.page()
