"""Does llm-d's own load generator get every answer through Envoy and Tessera, and does a picture cost what we said?"""

import asyncio
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tessera.cli.demo_fleet import DemoFleet
from tessera.config.shipped import shipped

from . import shared_prefix_load as load
from .conftest import MODEL, NUM_SERVERS

pytestmark = [pytest.mark.e2e, pytest.mark.envoy, pytest.mark.slow]

FOLDER = "TESSERA_INFERENCE_PERF_DIR"
"""Names the folder in which inference-perf is installed, if need be; else it is one of the user's cache."""
RESULT = "TESSERA_INFERENCE_PERF_RESULT"
"""Names the file in which the report is kept; nothing: it is not."""
INSTALL = Path(__file__).resolve().parents[2] / "tools" / "inference_perf" / "install.py"
NO_PYTHON = 3
NUM_PICTURE_TOKENS = 880
"""Qwen3-VL's of 1280x720: (1280 / 32) x (704 / 32), since 720 is rounded to 22.5 and then to an even 22."""
NUM_TEMPLATE_TOKENS = 8
"""Markers that the emulated chat template puts around one message and before the answer."""


@dataclass
class Driven:
    """What everybody saw of the run."""

    reports: dict[str, Any]
    """inference-perf, by stage."""
    served: list[dict[str, Any]]
    """The emulated servers: each request's record."""
    facts: list[dict[str, Any]]
    """Their counters."""
    decisions: dict[str, Any]
    """Tessera, by the client's request id."""
    samples: dict[str, float]
    """Tessera's metrics, summed over labels."""

    def encoder_runs(self) -> int:
        """Pictures that an encoder computed."""
        return sum(each["encoder_cache"]["num_queried"] - each["encoder_cache"]["num_hit"] for each in self.facts)

    def kept(self) -> dict[str, Any]:
        """As the benchmarks' results have it."""
        tokens = [record["num_prompt_tokens"] for record in self.served]
        priced = [decision["priced"]["num_prompt_tokens"] for decision in self.decisions.values()]
        return {
            "command": "make test-slow",
            "question": "Does llm-d's own load generator get every answer, and does a picture cost what we said?",
            "date": datetime.now(UTC).date().isoformat(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "servers": NUM_SERVERS,
            "workload": load.workload("URL", MODEL, Path("TOKENIZER"), Path("REPORTS")),
            "report": {name: load.trimmed(report) for name, report in sorted(self.reports.items())},
            "tessera": {
                "decisions": len(self.decisions),
                "images_priced": int(self.samples["tessera_items_total"]),
                "prompt_tokens_priced": sum(priced),
                "prompt_tokens_by_usage": sum(tokens),
                "cached_tokens_foreseen": int(self.samples["tessera_kv_belief_predicted_tokens_total"]),
                "cached_tokens_by_usage": int(self.samples["tessera_kv_belief_cached_tokens_total"]),
                "images_encoded": self.encoder_runs(),
                "requests_by_server": [each["num_first_tokens"] for each in self.facts],
            },
        }


@pytest.fixture(scope="module")
def env() -> Path:
    """An environment with inference-perf, installed once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = Path(os.environ.get(FOLDER) or cache / "tessera-inference-perf")
    done = subprocess.run([sys.executable, INSTALL, folder], capture_output=True, text=True, check=False)
    if done.returncode == NO_PYTHON:
        pytest.skip(f"inference-perf cannot be installed: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return folder / "env"


@pytest.fixture(scope="module")
def driven(env: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Driven]:
    seen = asyncio.run(drive(env, tmp_path_factory.mktemp("inference-perf")))
    if place := os.environ.get(RESULT):
        Path(place).write_text(json.dumps(seen.kept(), indent=2) + "\n")
    return seen


async def drive(env: Path, folder: Path) -> Driven:
    """Emulated servers, Tessera and Envoy, each a process, and inference-perf before them."""
    config = yaml.safe_load(shipped("tessera-multimodal.yaml").read_text())
    pricer = next(plugin for plugin in config["plugins"] if plugin["type"] == "token-producer")
    pricer["parameters"] = {"estimate": {"model": {"family": "qwen3-vl"}}}
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    tokenizer = load.write_tokenizer(folder / "tokenizer")
    async with DemoFleet(model=MODEL, num_servers=NUM_SERVERS, speed=1.0, config=path) as fleet:
        url = f"http://127.0.0.1:{fleet.ports['envoy']}"
        asked = load.workload(url, MODEL, tokenizer, folder / "reports")
        reports = await asyncio.to_thread(load.run, env, asked, folder)
        return await seen_by_all(reports, fleet)


async def seen_by_all(reports: dict[str, Any], fleet: DemoFleet) -> Driven:
    async with httpx.AsyncClient() as client:

        async def ask(port: int, path: str) -> httpx.Response:
            return (await client.get(f"http://127.0.0.1:{port}{path}")).raise_for_status()

        logs = [(await ask(port, "/emulator/requests")).json() for port in fleet.server_ports]
        facts = [(await ask(port, "/emulator/facts")).json() for port in fleet.server_ports]
        admin = fleet.ports["metrics"]
        listed = (await ask(admin, f"/debug/decisions?limit={load.NUM_REQUESTS}")).json()["decisions"]
        decisions = {
            row["client_request_id"]: (await ask(admin, f"/debug/decisions/{row['request_id']}")).json()
            for row in listed
        }
        page = (await ask(admin, "/metrics")).text
    samples: dict[str, float] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            samples[sample.name] = samples.get(sample.name, 0.0) + sample.value
    return Driven(reports, [record for log in logs for record in log["requests"]], facts, decisions, samples)


def test_every_request_is_answered(driven: Driven) -> None:
    summary = driven.reports["summary"]
    assert summary["failures"]["count"] == 0
    assert summary["successes"]["count"] == load.NUM_REQUESTS
    by_stage = [driven.reports[f"stage_{index}"]["successes"]["count"] for index in range(len(load.STAGES))]
    assert by_stage == [rate * seconds for rate, seconds in load.STAGES]
    assert [record["ending"] for record in driven.served] == ["finished"] * load.NUM_REQUESTS
    assert {record["num_output_tokens"] for record in driven.served} == {load.NUM_OUTPUT_TOKENS}


def test_tessera_decided_each_and_saw_each_end(driven: Driven) -> None:
    assert driven.samples["llm_d_epp_request_total"] == load.NUM_REQUESTS
    assert driven.samples["tessera_requests_ended_total"] == load.NUM_REQUESTS
    assert driven.samples.get("tessera_internal_errors_total", 0) == 0
    assert driven.decisions.keys() == {record["headers"]["x-request-id"] for record in driven.served}


def test_the_pictures_are_those_of_the_groups(driven: Driven) -> None:
    """Three for each group that was asked for, each sent in all of its prompts."""
    counts: dict[str, int] = {}
    for record in driven.served:
        assert [(item["width"], item["height"]) for item in record["items"]] == [(1280, 720)] * load.NUM_IMAGES
        for item in record["items"]:
            counts[item["identifier"]] = counts.get(item["identifier"], 0) + 1
    assert len(counts) == load.NUM_GROUPS * load.NUM_IMAGES
    assert sum(counts.values()) == load.NUM_REQUESTS * load.NUM_IMAGES


def test_a_picture_is_priced_as_the_server_counts_it(driven: Driven) -> None:
    assert driven.samples["tessera_items_total"] == load.NUM_REQUESTS * load.NUM_IMAGES
    fields = ("num_tokens", "num_embeds", "num_wrapper_tokens")
    for record in driven.served:
        priced = driven.decisions[record["headers"]["x-request-id"]]["priced"]
        ours, engines = (
            [[item[name] for name in fields] for item in items] for items in (priced["items"], record["items"])
        )
        assert ours == engines == [[NUM_PICTURE_TOKENS, NUM_PICTURE_TOKENS, 2]] * load.NUM_IMAGES


def test_a_prompt_is_priced_as_usage_says_but_for_the_templates_markers(driven: Driven) -> None:
    """The client's report has usage's count; so has the metric that compares it with the price."""
    usage = [record["num_prompt_tokens"] for record in driven.served]
    assert driven.reports["summary"]["successes"]["prompt_tokens"]["total"] == sum(usage)
    for record in driven.served:
        priced = driven.decisions[record["headers"]["x-request-id"]]["priced"]["num_prompt_tokens"]
        assert 0 <= record["num_prompt_tokens"] - priced <= NUM_TEMPLATE_TOKENS
    assert driven.samples["tessera_estimate_ratio_count"] == load.NUM_REQUESTS
    assert driven.samples["tessera_estimate_ratio_sum"] / load.NUM_REQUESTS == pytest.approx(1.0, abs=0.005)


def test_a_group_stays_where_its_pictures_are(driven: Driven) -> None:
    """Each picture is encoded once; a few more where two prompts of a group come before either is computed."""
    assert driven.encoder_runs() <= 1.5 * load.NUM_GROUPS * load.NUM_IMAGES
    foreseen = driven.samples["tessera_kv_belief_predicted_tokens_total"]
    assert foreseen == pytest.approx(driven.samples["tessera_kv_belief_cached_tokens_total"], rel=0.05)
