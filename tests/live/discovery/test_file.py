"""Does the file's discovery tell the fleet as it is, and each change once?"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tessera.core.errors import ConfigError
from tessera.core.facts import Joined, Left
from tessera.live.discovery.file import watch_file


def write(path: Path, *endpoints: str) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_text("endpoints:\n" + "".join(f"- {each}\n" for each in endpoints) if endpoints else "endpoints: []\n")
    os.replace(fresh, path)


def short(events) -> list[tuple[str, str]]:
    return [(type(event).__name__, event.endpoint.id) for event in events]


A = '{name: a, address: 10.0.0.1, port: "8000"}'
B = '{name: b, address: 10.0.0.2, port: "8000"}'


@pytest.fixture
async def watched(tmp_path: Path) -> AsyncIterator[tuple[Path, AsyncIterator]]:
    path = tmp_path / "endpoints.yaml"
    write(path, A)
    events = watch_file(path, lambda: 7.0, poll_s=0.001)
    yield path, events
    await events.aclose()


async def test_the_first_batch_is_the_whole_fleet_and_then_only_changes(watched) -> None:
    path, events = watched
    assert short(await anext(events)) == [("Joined", "10.0.0.1:8000")]
    write(path, A, B)
    second = await anext(events)
    assert short(second) == [("Joined", "10.0.0.2:8000")]
    assert second[0].at == 7.0
    write(path, B)
    assert short(await anext(events)) == [("Left", "10.0.0.1:8000")]


async def test_other_labels_are_a_join_again(watched) -> None:
    path, events = watched
    await anext(events)
    write(path, '{name: a, address: 10.0.0.1, port: "8000", labels: {zone: x}}')
    changed = await anext(events)
    assert short(changed) == [("Joined", "10.0.0.1:8000")]
    assert changed[0].endpoint.labels == {"zone": "x"}


async def test_an_empty_file_is_an_empty_fleet(tmp_path: Path) -> None:
    path = tmp_path / "endpoints.yaml"
    write(path)
    events = watch_file(path, lambda: 0.0, poll_s=0.001)
    assert list(await anext(events)) == []
    await events.aclose()


async def test_a_file_that_breaks_keeps_the_old_set(watched, caplog: pytest.LogCaptureFixture) -> None:
    path, events = watched
    await anext(events)
    path.write_text("endpoints: {{{")
    waiting = anext(events)
    task = asyncio.ensure_future(waiting)
    while "stay as they were" not in caplog.text:  # noqa: ASYNC110
        await asyncio.sleep(0)
    write(path, A, B)
    assert short(await task) == [("Joined", "10.0.0.2:8000")]


async def test_no_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        await anext(watch_file(tmp_path / "none.yaml", lambda: 0.0))


def test_events_are_of_the_spine() -> None:
    assert {Joined.__module__, Left.__module__} == {"tessera.core.facts"}
