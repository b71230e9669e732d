"""That pools behind a real Envoy answer as one server does, and that each item is encoded once, where it should be."""

import asyncio
import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from tessera.cli.main import app

from ..pictures import chat, data_uri
from .conftest import CONFIGS, MODEL, Fleet, Reply, Server, post, until

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]

HD, UHD = (1280, 720), (3840, 2160)
NUM_MIXED = 16


def ask(*seeds: int, size: tuple[int, int] = HD, **fields: Any) -> dict[str, Any]:
    return chat(MODEL, [data_uri(*size, seed=seed) for seed in seeds], temperature=0, max_tokens=8, **fields)


def first_seed(fleet: Fleet) -> int:
    """Pictures of its own for each configuration: the servers are the same, and have caches."""
    return 10_000 * list(CONFIGS).index(fleet.config.stem)


def without_names(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer or an event of one without what each server makes up: its id, its second, where KV is kept."""
    return {name: value for name, value in answer.items() if name not in ("id", "created", "kv_transfer_params")}


def told(reply: Reply, *, streamed: bool) -> list[Any]:
    """All that a client reads of an answer."""
    parts = reply.events if streamed else [reply.json]
    return [without_names(part) if isinstance(part, dict) else part for part in parts]


def legs(servers: list[Server], request_id: str) -> list[dict[str, Any]]:
    """What these servers were asked for one request."""
    records = [{**record, "server": each.id} for each in servers for record in each.records()]
    return [each for each in records if each["headers"].get("x-request-id", "").partition("-enc-")[0] == request_id]


def stage_counts(fleet: Fleet) -> Counter[str]:
    """How many ends of each stage the router was told, all of them done."""
    found: Counter[str] = Counter()
    for name, value in fleet.router.counters().items():
        if name.startswith("tessera_stages_ended_total{"):
            assert 'result="done"' in name
            found[name.partition('stage="')[2].partition('"')[0]] += int(value)
    return found


async def test_mixed_traffic_is_answered_as_by_one_server_and_text_encodes_nowhere(fleet: Fleet) -> None:
    first = first_seed(fleet)
    bodies = {
        uuid.uuid4().hex: ask(
            *(range(first + 10 * number, first + 10 * number + number % 3) if number % 2 else ()),
            text=f"Question {number} of {fleet.config.stem}",
            stream=bool(number % 4 < 2),
            **({"stream_options": {"include_usage": True}} if number % 4 == 0 else {}),
        )
        for number in range(NUM_MIXED)
    }
    async with aiohttp.ClientSession() as client:
        here = [post(client, fleet.id, body, x_request_id=request_id) for request_id, body in bodies.items()]
        replies = await asyncio.gather(*here)
        for reply, body in zip(replies, bodies.values(), strict=True):
            alone = await post(client, fleet.alone.id, body)
            assert (reply.status, alone.status) == (200, 200)
            streamed = bool(body["stream"])
            assert told(reply, streamed=streamed) == told(alone, streamed=streamed)
            assert not [name for name in reply.headers if name.startswith("x-tessera")]
    for request_id, body in bodies.items():
        num_items = len(body["messages"][0]["content"]) - 1
        assert len(legs(fleet.of("encode"), request_id)) <= num_items
        assert len(legs(fleet.of("prefill"), request_id)) == bool(fleet.of("prefill"))
        assert len(legs(fleet.engines, request_id)) == 1


def plan_of(fleet: Fleet, request_id: str) -> tuple[dict[str, str], list[str]]:
    """Who does which stage, and who encodes the items in prompt order."""
    plan = fleet.decision(request_id)["plan"]
    return {name: value for name, value in plan.items() if not name.isdigit()}, [
        plan[name] for name in sorted(filter(str.isdigit, plan), key=int)
    ]


async def test_eight_items_of_which_three_come_again_are_encoded_once_each(fleet: Fleet) -> None:
    first = first_seed(fleet) + 1000
    order = [*range(8), 0, 3, 3]
    spreads = fleet.config.stem == "e-pd-spread"
    # An idle engine is through with smaller ones sooner than encoders would be.
    body = ask(*(first + number for number in order), size=UHD if spreads else HD, text=fleet.config.stem)
    request_id = uuid.uuid4().hex
    before = stage_counts(fleet)
    async with aiohttp.ClientSession() as client:
        reply = await post(client, fleet.id, body, x_request_id=request_id)
        alone = await post(client, fleet.alone.id, body)
    assert reply.status == 200
    assert told(reply, streamed=False) == told(alone, streamed=False)
    assert reply.json["usage"]["prompt_tokens"] > 11 * 880
    stages, encoders = plan_of(fleet, request_id)
    jobs = legs(fleet.of("encode"), request_id)
    encoded = [(item["identifier"], job["server"]) for job in jobs for item in job["items"]]
    if "encode" not in stages:
        assert fleet.config.stem == "llm-d-p-d"
        assert (jobs, encoders) == ([], [])
    else:
        assert len(encoders) == len(order)
        assert [encoders[index] for index in (8, 9, 10)] == [encoders[index] for index in (0, 3, 3)]
        # Each at the encoder that the decision names, and nowhere else.
        names = [item["identifier"] for item in legs(fleet.engines, request_id)[0]["items"]]
        assert sorted(encoded) == sorted({(names[index], encoders[index]) for index in range(8)})
        assert len({name for name, _ in encoded}) == len(encoded) == 8
        assert len({server for _, server in encoded}) == (3 if spreads else 1)
        if spreads:
            assert max(job["start"] for job in jobs) < min(job["end"] for job in jobs), "one waited for another"
    ended = await until(lambda: (found := stage_counts(fleet) - before)["decode"] and found)
    num_encoders = len(set(encoders))
    assert ended == Counter(decode=1, prefill=int("prefill" in stages), encode=num_encoders) - Counter()


async def test_text_alone_goes_past_the_encoders(fleet: Fleet) -> None:
    request_id = uuid.uuid4().hex
    async with aiohttp.ClientSession() as client:
        reply = await post(client, fleet.id, ask(text="No picture."), x_request_id=request_id)
    assert reply.status == 200
    assert legs(fleet.of("encode"), request_id) == []
    stages, encoders = plan_of(fleet, request_id)
    assert stages.keys() == {"decode"} | ({"prefill"} if fleet.of("prefill") else set())
    assert encoders == []


def explained(fleet: Fleet, request: Path, *more: str) -> str:
    files = ("--config", str(fleet.config), "--endpoints", str(fleet.endpoints))
    done = CliRunner().invoke(app, ["explain", str(request), *files, *more])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_explain_says_who_would_encode_each_item(fleet: Fleet, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(ask(1, 2, 3, 1, size=UHD)))
    plan = json.loads(explained(fleet, request, "--format", "json"))["plan"]
    assert {name for name in plan if name.isdigit()} == set("0123" if fleet.of("encode") else "")
    if not fleet.of("encode"):
        return
    assert plan["0"] == plan["3"]
    table = explained(fleet, request)
    for encoder in {plan[index] for index in "012"}:
        indices = ", ".join(index for index in "0123" if plan[index] == encoder)
        assert f"{indices} encoded at {encoder}" in table
