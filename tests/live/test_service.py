"""Does the live router read each request where it may: on the loop, or in its threads?"""

import asyncio
import base64
import json
import struct
import sys
import threading
from pathlib import Path

import pytest

from tessera.core.dialects.excision import MIN_BODY_BYTES
from tessera.core.media import pillow
from tessera.core.media.digests import ContentHash
from tessera.core.parts import MediaItem
from tessera.core.router import Router
from tessera.core.types import Ending, ModelProfile, Outcome
from tessera.live.extproc.budget import BodyBudget
from tessera.live.extproc.handler import Ask
from tessera.live.service import INLINE_BYTES, INLINE_COMMAS, INLINE_TOKENISED_BYTES, RouterService

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


async def test_bodies_of_many_parts_are_read_in_a_thread(service, monkeypatch) -> None:
    readers, read = [], Router.read

    def noted(*args, **fields):
        readers.append(threading.current_thread())
        return read(*args, **fields)

    monkeypatch.setattr(Router, "read", noted)
    num_others = ask(PNG).body.count(b",")
    for num_commas in (INLINE_COMMAS, INLINE_COMMAS + 1):
        await service.read(ask(PNG, text="," * (num_commas - num_others)), "r1")
    assert [each is threading.current_thread() for each in readers] == [True, False]


SAMPLES = Path(__file__).parents[1] / "images"
VECTORS = Path(__file__).parents[1] / "core" / "media" / "vectors" / "mm-hash.json"
MODEL = "Qwen/Qwen3-VL-32B-Instruct"


class Words:
    """A tokenizer of one token a word."""

    def count(self, text: str) -> int:
        return len(text.split())


@pytest.mark.parametrize("tokenizer", [None, Words()], ids=["bytes", "tokens"])
@pytest.mark.parametrize("name", ["tga.tga", "dds.dds", "psd.psd", "sgi.sgi", "png_rgba.png"])
async def test_one_picture_has_the_engines_name_however_large_the_body_is(service, threads, name, tokenizer) -> None:
    vectors = {each["file"]: each.get("hashes", {}) for each in json.loads(VECTORS.read_text())["vectors"]}
    picture = (SAMPLES / name).read_bytes()
    service.profile = ModelProfile(engine_model=MODEL, tokenizer=tokenizer)
    named, padded = [], (0, INLINE_TOKENISED_BYTES, INLINE_BYTES, MIN_BODY_BYTES)
    for num_bytes in padded:
        request, _ = await service.read(ask(picture, PNG, picture, text="x" * num_bytes), "r1")
        named += [(item.identifier, item.is_identity_exact) for item in items(request)[::2]]
    assert named == [(vectors[name][f"{MODEL}|blake3"], True)] * 2 * len(padded)
    assert len(threads) == (0 if name.endswith("png") else 2 * len(padded))


async def test_without_an_engine_it_has_one_name_too(service) -> None:
    named = set()
    for num_bytes in (0, INLINE_BYTES):
        request, _ = await service.read(ask(TGA, text="x" * num_bytes), "r1")
        (item,) = items(request)
        named.add((item.identifier, item.is_identity_exact))
    content = ContentHash()
    content.update(TGA)
    assert named == {(content.hexdigest(), False)}


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


@pytest.mark.parametrize(
    ("ending", "status", "served", "was_answered"),
    [
        (Ending.FINISHED, 200, "10.0.0.1:8000", True),
        (Ending.FINISHED, None, "10.0.0.1:8000", True),
        (Ending.FINISHED, 400, "10.0.0.1:8000", False),
        (Ending.FINISHED, 200, "10.0.0.2:8000", False),
        (Ending.ABORTED, 200, "10.0.0.1:8000", False),
    ],
)
async def test_only_the_winner_that_answered_has_counted_a_first_token(
    service, build, monkeypatch, ending, status, served, was_answered
) -> None:
    """After a retry elsewhere, an error or an abort no increment of the winner's counter is still to come."""
    told = []
    monkeypatch.setattr(service.first_tokens, "ended", lambda *given, **named: told.append((given, named)))
    decision = build.decision(None, build.stage([build.candidate(1), build.candidate(2)]))
    service._settle(
        Outcome(request_id="r1", ending=ending, decision=decision, status=status, endpoint=served, finished_at=2.5)
    )
    assert told == [(("r1", 2.5), {"was_answered": was_answered})]
