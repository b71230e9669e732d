"""Does exact mode find who holds a picture, from the engines' KV events through a real Envoy?"""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml

from tessera.config.load import load_text
from tessera.emulator import KVEventSettings
from tessera.emulator.served_model import read_prompt_rules
from tessera.live.app import LiveRouter, ServeSettings

from ..models import write_model
from .conftest import MODEL, LoopThread, World, emulator, wait_for
from .pictures import chat, data_uri

pytestmark = [pytest.mark.e2e, pytest.mark.envoy]
PRECISE = "PrefixMatch/precise-prefix-cache-producer"
CONFIG = """
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
  parameters:
    estimate: {{model: {{path: {folder}, engineModel: {model}}}}}
    tokenizer: {{path: {folder}}}
- {{type: precise-prefix-cache-producer, parameters: {{hashSeed: "42", speculativeIndexing: false}}}}
- {{type: prefix-cache-scorer, parameters: {{prefixMatchInfoProducerName: precise-prefix-cache-producer}}}}
- {{type: max-score-picker}}
schedulingProfiles:
- {{name: default, plugins: [{{pluginRef: prefix-cache-scorer}}, {{pluginRef: max-score-picker}}]}}
"""


@pytest.fixture(scope="module")
def exact(thread: LoopThread, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Two emulated engines that tell what they hold, and a Tessera that makes the same token ids."""
    folder = tmp_path_factory.mktemp("exact")
    write_model(folder)
    rules = read_prompt_rules(folder)
    own = KVEventSettings(hash_seed="42")
    emulators = [emulator(family=rules.family, renderer=rules.renderer, kv_events=own) for _ in range(2)]
    for each in emulators:
        thread.run(each.start())
    endpoints = _write_endpoints(folder / "endpoints.yaml", [each.ports for each in emulators])

    async def start() -> tuple[LiveRouter, dict[str, int]]:
        router = LiveRouter(
            ServeSettings(
                config=load_text(CONFIG.format(folder=folder, model=MODEL)),
                endpoints_path=endpoints,
                listen_port=0,
                grpc_port=0,
                metrics_port=0,
                with_envoy=True,
            )
        )
        return router, await router.start()

    router, ports = thread.run(start())
    world = World(thread, emulators, router, ports)
    router.service.on_outcome = world.outcomes.append
    wait_for(lambda: metric(world, "tessera_kv_connected") == 2.0)
    yield world
    thread.run(router.stop(drain_timeout_s=2))
    for each in emulators:
        thread.run(each.stop())


def _write_endpoints(path: Path, ports: list[dict[str, int]]) -> Path:
    entries = [
        {
            "name": f"server-{number}",
            "address": "127.0.0.1",
            "port": str(each["http"]),
            "kvEventsPort": each["kv_events"],
            "kvReplayPort": each["kv_replay"],
        }
        for number, each in enumerate(ports)
    ]
    path.write_text(yaml.safe_dump({"endpoints": entries}))
    return path


def metric(world: World, name: str) -> float:
    """Sum over the labels of a series."""
    page = httpx.get(f"{world.admin}/metrics").text
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{"))
    )


def ask(world: World, seed: int, text: str) -> tuple[str | None, dict[str, Any], dict[str, Any]]:
    """Ask about a picture: who served, the usage, and what the router knew of each endpoint's cache."""
    request_id = str(uuid.uuid4())
    body = chat(MODEL, [data_uri(640, 480, "PNG", seed)], text=text)
    headers = {"x-request-id": request_id}
    answer = httpx.post(f"{world.url}/v1/chat/completions", json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    outcome = world.outcome_of(request_id)
    record = httpx.get(f"{world.admin}/debug/decisions/{request_id}").json()
    rows = {row["endpoint"]: row["facts"] for row in record["stages"][0]["candidates"]}
    return outcome.endpoint, answer.json()["usage"], rows


def test_the_second_question_about_a_picture_goes_to_who_holds_it(exact: World) -> None:
    for seed in range(2):
        num_heard = metric(exact, "tessera_kv_events_total")
        first, usage, before = ask(exact, seed, "What is it?")
        assert usage["prompt_tokens_details"]["cached_tokens"] == 0
        assert {each[PRECISE]["num_matched_tokens"] for each in before.values()} == {0}
        wait_for(lambda num_heard=num_heard: metric(exact, "tessera_kv_events_total") > num_heard)
        again, usage, rows = ask(exact, seed, "And how many of them are there?")
        assert again == first
        # "<|im_start|>user\n", a marker, 300 cells, a marker, 31 bytes, the end, and "assistant\n" behind its start.
        assert usage["prompt_tokens"] == 6 + 1 + 300 + 1 + 31 + 2 + 1 + 10
        # The questions part behind 308 tokens, in the 20th block of 16.
        assert usage["prompt_tokens_details"]["cached_tokens"] == 304
        holder, other = rows.pop(str(first)), next(iter(rows.values()))
        assert holder[PRECISE] == {
            "num_matched_tokens": 304,
            "num_total_tokens": 352,
            "num_matched_text_tokens": 7,
            "num_matched_media_tokens": 297,
            "is_exact": True,
        }
        assert (other[PRECISE]["num_matched_tokens"], other[PRECISE]["is_exact"]) == (0, True)
    page = httpx.get(f"{exact.admin}/metrics").text
    modes = [line for line in page.splitlines() if line.startswith("tessera_kv_key_mode{") and line.endswith(" 1.0")]
    assert modes, "no engine's hashes were seen"
    assert all('mode="direct"' in line for line in modes)
