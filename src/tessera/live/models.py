"""Which model were the engines started with, and which LoRA adapters do they have? Each endpoint's ``/v1/models``."""

import asyncio
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple

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
MAX_NAME_CHARS = 1024
MAX_ADAPTERS = 4096
"""Adapters of all endpoints that are known by name; requests for further ones count as for the base model."""


class _Card(msgspec.Struct):
    id: str = ""
    root: str | None = None
    parent: str | None = None


class _Models(msgspec.Struct):
    data: list[_Card] = []


class Served(NamedTuple):
    """What an endpoint says that it serves."""

    model: str | None
    """The base model that is listed first, by its root; nothing where none is."""
    adapters: frozenset[str]
    """The names of the LoRA adapters."""


def served(page: bytes) -> Served | None:
    """What a ``/v1/models`` answer lists; nothing where it is none.

    >>> served(b'{"data": [{"id": "alias", "root": "Qwen/Qwen3-VL-8B-Instruct"}]}')
    Served(model='Qwen/Qwen3-VL-8B-Instruct', adapters=frozenset())
    """
    try:
        cards = msgspec.json.decode(page, type=_Models).data
    except (msgspec.DecodeError, RecursionError):
        return None
    # A LoRA adapter names the model that it sits on as its parent.
    models = (card.root or card.id for card in cards if not card.parent and (card.root or card.id))
    adapters = (card.id[:MAX_NAME_CHARS] for card in cards if card.parent and card.id)
    model = next(models, None)
    return Served(model and model[:MAX_NAME_CHARS], frozenset(islice(adapters, MAX_ADAPTERS)))


async def watch_models(
    endpoints: Callable[[], Sequence[Endpoint]],
    found: Callable[[str, frozenset[str]], None],
    problem: Callable[[str], None],
    *,
    model: str = "",
) -> None:
    """Ask every endpoint now and each 30 s; tell ``found`` when the model that they agree on or the adapters change.

    Endpoints that disagree on the model are a problem, told once for each disagreement,
    and the model counts as unknown then (an empty name); not where ``model`` says what
    it is. While an endpoint does not answer, adapters that were known stay known.
    """
    known: Served | None = None
    told: frozenset[str] = frozenset()
    limit = asyncio.Semaphore(MAX_CONCURRENT)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT_S)) as session:
        while True:
            answers = await asyncio.gather(*(_ask(session, limit, endpoint) for endpoint in endpoints()))
            names = frozenset(answer.model for answer in answers if answer and answer.model)
            if len(names) > 1 and names != told and not model:
                told = names
                listed = ", ".join(sorted(names)[:8])
                problem(f"endpoints serve different models ({listed}): items are identified by their content only")
            if names:
                agreed = model or (next(iter(names)) if len(names) == 1 else "")
                heard = Served(agreed, _adapters(answers, known.adapters if known else frozenset()))
                if heard != known:
                    known = heard
                    found(agreed, heard.adapters)
            await asyncio.sleep(INTERVAL_S if names else FIRST_ROUNDS_S)


def _adapters(answers: Sequence[Served | None], before: frozenset[str]) -> frozenset[str]:
    """Every endpoint's adapters; those that were known before too, unless every endpoint has answered."""
    heard = frozenset(name for answer in answers if answer for name in answer.adapters)
    missed = sorted(before - heard) if None in answers else []
    return frozenset(islice((*sorted(heard), *missed), MAX_ADAPTERS))


async def _page(answer: aiohttp.ClientResponse) -> bytes:
    """The answer's body, or as much of it as ``MAX_BYTES`` allow: one ``read`` gives what has come so far."""
    page = bytearray()
    while len(page) < MAX_BYTES and (piece := await answer.content.read(MAX_BYTES - len(page))):
        page += piece
    return bytes(page)


async def _ask(session: aiohttp.ClientSession, limit: asyncio.Semaphore, endpoint: Endpoint) -> Served | None:
    try:
        async with limit, session.get(f"http://{endpoint.id}/v1/models") as answer:
            return served(await _page(answer)) if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError):
        return None
