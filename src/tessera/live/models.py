"""Which model were the engines started with? ``root`` of each endpoint's ``/v1/models``."""

import asyncio
from collections.abc import Callable, Sequence

import aiohttp
import msgspec

from tessera.core.types import Endpoint

INTERVAL_S = 30.0
"""From one round over all endpoints to the next."""
FIRST_ROUNDS_S = 2.0
"""The same while no endpoint has answered yet."""
TIMEOUT_S = 5.0
MAX_BYTES = 1 << 20
MAX_CONCURRENT = 8


class _Card(msgspec.Struct):
    id: str = ""
    root: str | None = None
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card] = []


def engine_model(page: bytes) -> str | None:
    """The base model that a ``/v1/models`` answer lists first; nothing where it lists none.

    >>> engine_model(b'{"data": [{"id": "alias", "root": "Qwen/Qwen3-VL-8B-Instruct"}]}')
    'Qwen/Qwen3-VL-8B-Instruct'
    """
    try:
        cards = msgspec.json.decode(page, type=_Models).data
    except (msgspec.DecodeError, RecursionError):
        return None
    # A LoRA adapter names the model that it sits on as its parent.
    return next(((card.root or card.id)[:1024] for card in cards if not card.parent and (card.root or card.id)), None)


async def watch_models(
    endpoints: Callable[[], Sequence[Endpoint]],
    found: Callable[[str], None],
    problem: Callable[[str], None],
) -> None:
    """Ask every endpoint now and each 30 s; tell ``found`` when the model that they agree on changes.

    Endpoints that disagree are a problem, told once for each disagreement, and the
    model counts as unknown then (an empty name). One that does not answer is passed over.
    """
    known: str | None = None
    told: frozenset[str] = frozenset()
    limit = asyncio.Semaphore(MAX_CONCURRENT)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        while True:
            answers = await asyncio.gather(*(_ask(session, limit, endpoint) for endpoint in endpoints()))
            names = frozenset(name for name in answers if name)
            if len(names) > 1 and names != told:
                told = names
                listed = ", ".join(sorted(names)[:8])
                problem(f"endpoints serve different models ({listed}): items are identified by their content only")
            agreed = next(iter(names)) if len(names) == 1 else ""
            if names and agreed != known:
                known = agreed
                found(agreed)
            await asyncio.sleep(INTERVAL_S if names else FIRST_ROUNDS_S)


async def _page(answer: aiohttp.ClientResponse) -> bytes:
    """The answer's body, or as much of it as ``MAX_BYTES`` allow: one ``read`` gives what has come so far."""
    page = bytearray()
    while len(page) < MAX_BYTES and (piece := await answer.content.read(MAX_BYTES - len(page))):
        page += piece
    return bytes(page)


async def _ask(session: aiohttp.ClientSession, limit: asyncio.Semaphore, endpoint: Endpoint) -> str | None:
    try:
        async with limit, session.get(f"http://{endpoint.id}/v1/models") as answer:
            return engine_model(await _page(answer)) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
