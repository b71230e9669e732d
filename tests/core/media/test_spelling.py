"""Items that are the same and written in another way are told apart as the sidecar tells them apart."""

import base64
import json

import pytest

from tessera.core.flow.document import Document
from tessera.core.flow.media_items import media_items
from tessera.core.router import Router
from tessera.core.types import MediaItem, ModelProfile

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)
PLAIN = base64.b64encode(PNG + b"\xff" * 6).decode()
PADLESS, URL_SAFE = PLAIN.rstrip("="), PLAIN.replace("+", "-").replace("/", "_")
A, SIGNED, OTHERWISE = "https://x/a", "https://x/a?sig=1", "https://x/a?sig=2"


def part(url, **more):
    return {"type": "image_url", "image_url": {"url": url}, **more}


def inline(text, kind="png"):
    return part(f"data:image/{kind};base64,{text}")


CASES = {
    "nothing twice": ([part(A), part("https://x/b")], [0, 1]),
    "the same link": ([part(A), part(A)], [0, None]),
    "links that differ in what does not count": ([part(SIGNED), part(OTHERWISE), part(A)], [0, 1, 2]),
    "and again": ([part(SIGNED), part(OTHERWISE), part(OTHERWISE), part(SIGNED)], [0, 1, None, None]),
    "the same bytes": ([inline(PLAIN), inline(PLAIN), inline(PLAIN, "jpeg")], [0, None, None]),
    "other padding": ([inline(PLAIN), inline(PADLESS), part(A), inline(PADLESS)], [0, 1, 2, None]),
    "another alphabet": ([inline(URL_SAFE), inline(PLAIN)], [0, 1]),
    "one name": ([part(A, uuid="u"), part("https://x/b", uuid="u")], [0, None]),
    "one name for two kinds": (
        [part(A, uuid="u"), {"type": "video_url", "video_url": {"url": "https://x/v"}, "uuid": "u"}],
        [0, 1],
    ),
}


@pytest.mark.parametrize(("parts", "expected"), CASES.values(), ids=CASES)
def test_the_router_counts_as_the_sidecar_does(parts, expected):
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": parts}]}).encode()
    profile = ModelProfile(url_keys_ignored=frozenset({"sig"}))
    headers = {":path": "/v1/chat/completions"}
    request, _ = Router.read(body, headers, profile, request_id="r", at=0.0, wall_at=0.0)
    items = [each for prompt in request.prompts for each in prompt if isinstance(each, MediaItem)]
    numbers, seen, count = [], set(), 0
    for item in items:
        is_told = item.is_respelled or item.identifier not in seen
        seen.add(item.identifier)
        numbers.append(count if is_told else None)
        count += is_told
    assert numbers == expected
    assert len(media_items("chat", Document(body))) == count
