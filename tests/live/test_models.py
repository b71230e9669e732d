"""Is the engines' own model name found, and disagreement told once?"""

import asyncio
import json
from collections.abc import Iterable

from tessera.core.types import Endpoint
from tessera.emulator import Emulator, EmulatorSettings
from tessera.live.models import MAX_ADAPTERS, Served, _adapters, served, watch_models


def test_what_a_page_lists() -> None:
    page = (
        b'{"data": [{"id": "lora", "parent": "base", "root": "/path"}, {"id": "base"}, {"id": "", "parent": "base"}]}'
    )
    assert served(page) == ("base", {"lora"})
    assert served(b'{"data": []}') == (None, frozenset())
    assert served(b"not json") is None
    assert served(b'{"data": [{"id": 5}]}') is None
    assert served(b'{"x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}") is None


def test_adapters_are_bounded() -> None:
    def page(names: Iterable[str]) -> bytes:
        return json.dumps({"data": [{"id": name, "parent": "base"} for name in names]}).encode()

    full = served(page(f"{number:05}" for number in range(MAX_ADAPTERS + 1)))
    assert full is not None
    assert (len(full.adapters), max(full.adapters)) == (MAX_ADAPTERS, f"{MAX_ADAPTERS - 1:05}")
    more = served(page(["new"]))
    assert _adapters([full, more], frozenset()) == full.adapters
    assert _adapters([more, None], full.adapters) == {"new", *sorted(full.adapters)[:-1]}
    assert served(page(["x" * 2000])) == (None, {"x" * 1024})


def test_adapters_of_who_does_not_answer_stay_known() -> None:
    one, two = Served("base", frozenset("a")), Served("base", frozenset("b"))
    assert _adapters([one, two], frozenset("c")) == {"a", "b"}
    assert _adapters([one, None], frozenset("bc")) == {"a", "b", "c"}


async def first_words(endpoints: list[Endpoint], num: int, model: str = "") -> list[tuple[str, str]]:
    said: list[tuple[str, str]] = []
    enough = asyncio.Event()

    def hear(kind: str, text: str) -> None:
        said.append((kind, text))
        if len(said) == num:
            enough.set()

    def found(name: str, adapters: frozenset[str]) -> None:
        hear("model", "+".join([name, *sorted(adapters)]))

    watching = asyncio.create_task(
        watch_models(lambda: endpoints, found, lambda text: hear("problem", text), model=model)
    )
    async with asyncio.timeout(10):
        await enough.wait()
    watching.cancel()
    return said


def endpoint(emulator: Emulator) -> Endpoint:
    return Endpoint(address="127.0.0.1", port=emulator.port)


async def test_endpoints_that_agree_and_that_do_not() -> None:
    root = "Qwen/Qwen3-VL-8B-Instruct"
    async with (
        Emulator(EmulatorSettings(model="alias", root=root)) as one,
        Emulator(EmulatorSettings(model="alias", root=root)) as two,
        Emulator(EmulatorSettings(model="alias", root="other")) as three,
    ):
        gone = Endpoint(address="127.0.0.1", port=1)
        assert await first_words([endpoint(one), endpoint(two), gone], 1) == [("model", root)]
        said = await first_words([endpoint(one), endpoint(three)], 2)
        assert [kind for kind, _ in said] == ["problem", "model"]
        assert root in said[0][1]
        assert said[1] == ("model", "")
        assert await first_words([endpoint(one), endpoint(three)], 1, model="told") == [("model", "told")]


async def test_a_page_that_comes_in_pieces_is_read_whole() -> None:
    """A server with many adapters answers in more than one packet."""
    page = b'{"data": [' + b'{"id": "adapter", "parent": "base"}, ' * 3000 + b'{"id": "base"}]}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(page) + page[:1000])
        await writer.drain()
        await asyncio.sleep(0.05)
        writer.write(page[1000:])
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        assert await first_words([Endpoint(address="127.0.0.1", port=port)], 1) == [("model", "base+adapter")]
