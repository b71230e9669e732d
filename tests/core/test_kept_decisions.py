"""What does a kept decision hold? Nothing of its body, however large it was."""

import base64
import gc
import json
import random
import struct
import sys
import types
import zlib

import pytest

from tessera.core.facts import Load
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import ModelProfile

HEADERS = {":method": "POST", ":path": "/v1/chat/completions", "x-request-id": "client"}
NUM_DECISIONS = 1000
BODY_BYTES = 8 << 20
MAX_OBJECT_BYTES = 256 << 10


def png_of(num_bytes, width=1280, height=720):
    """A PNG with as many bytes of noise for pixels."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    pixels = struct.pack(">I", num_bytes) + b"IDAT" + random.Random(7).randbytes(num_bytes) + bytes(4)
    return head + pixels + struct.pack(">I", 0) + b"IEND" + bytes(4)


@pytest.fixture(scope="module")
def large_body():
    url = "data:image/png;base64," + base64.b64encode(png_of(BODY_BYTES * 3 // 4)).decode()
    content = [{"type": "text", "text": "What is this? " * 20}, {"type": "image_url", "image_url": {"url": url}}]
    fields = {"model": "org/vlm", "stream": True, "mm_processor_kwargs": {"min_pixels": 4}}
    body = json.dumps({"messages": [{"role": "user", "content": content}]} | fields).encode()
    assert len(body) >= BODY_BYTES
    return body


def reachable(roots):
    """Every object that the roots hold, themselves included; classes, functions and modules are not theirs."""
    shared = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType)
    seen, waiting = {}, [roots]
    while waiting:
        each = waiting.pop()
        if id(each) not in seen and not isinstance(each, shared):
            seen[id(each)] = each
            waiting.extend(gc.get_referents(each))
    return list(seen.values())


def decide_many(build, bodies):
    router = build.router()
    view = build.view([build.endpoint(n) for n in range(8)], Load(num_waiting=0, kv_usage_fraction=0.1, at=0.0))
    decisions = []
    for number, body in enumerate(bodies):
        request, _ = Router.read(body, HEADERS, ModelProfile(), request_id=f"r{number}", at=0.0, wall_at=0.0)
        decisions.append(router.decide(request, view, 0.0, SeededRng(7, request.request_id)))
    return router, decisions


def test_a_thousand_decisions_of_8_mb_bodies_hold_no_body(build, large_body):
    router, decisions = decide_many(build, [large_body] * NUM_DECISIONS)
    assert decisions[0].priced.num_prompt_tokens == 71 + 900
    assert decisions[0].request.body_bytes == len(large_body)
    held = reachable([decisions, router])
    assert max(sys.getsizeof(each) for each in held if isinstance(each, str | bytes | bytearray)) < MAX_OBJECT_BYTES
    assert sum(sys.getsizeof(each) for each in held) < 40 << 20


def filled(**fields):
    return json.dumps({"messages": [], "model": "m"} | fields).encode()


LONG = "x" * (2 << 20)


@pytest.mark.parametrize(
    "body",
    [
        filled(messages=[{"role": "user", "content": LONG}]),
        filled(messages=[{"role": LONG, "content": "a"}]),
        filled(messages=[{"role": "user", "content": "a", "tool_calls": [{"function": {"arguments": LONG}}]}]),
        filled(tools=[LONG]),
        filled(model=LONG),
        filled(cache_salt=LONG),
        filled(session_id=LONG),
        filled(mm_processor_kwargs={"a": LONG}),
        filled(mm_processor_kwargs={LONG: 1}),
        filled(mm_processor_kwargs={"a": {LONG: 1}}),
        filled(mm_processor_kwargs={f"k{n}": ["x" * 1000] * 60 for n in range(60)}),
        filled(messages=[{"role": "user", "content": [{"image_url": "http://x/" + LONG}]}]),
        filled(messages=[{"role": "user", "content": [{"image_url": "data:," + LONG}]}]),
        filled(messages=[{"role": "user", "content": [{"image_url": None, "uuid": LONG}]}]),
        filled(messages=[{"role": "user", "content": [{"input_audio": {"data": LONG, "format": LONG}}]}]),
    ],
)
def test_whatever_is_long_in_a_body_is_not_kept(build, body):
    _, decisions = decide_many(build, [body])
    held = reachable(decisions)
    assert max(sys.getsizeof(each) for each in held if isinstance(each, str | bytes)) < MAX_OBJECT_BYTES
    assert sum(sys.getsizeof(each) for each in held) < 400_000


def test_of_a_text_its_digests_are_an_eighth_at_most(build):
    body = filled(messages=[{"role": "user", "content": "x" * 50_000}])
    _, decisions = decide_many(build, [body])
    digests = [each for each in reachable(decisions) if isinstance(each, bytes)]
    assert max(map(len, digests)) == -(-50_004 // 64) * 8
