"""Does the simulated fleet do what the live one does? The same requests at the same instants, both ways.

    python bench/live_sim.py [--write bench/results/live_sim.json] [--policy NAME ...]

Live: real Envoy, ``tessera serve`` and emulated servers, each a process, on the wall clock
at speed 1. Simulated: the same scenario, policy and seed in virtual time. Both sides draw
what is asked and when from the same workload; a request's body is the one that the
simulator's router reads, too. Three minutes of waiting for two policies.

Times are the client's. The simulator has no network, no HTTP and no other program on its
cores: what a request takes for those stands in the difference.
"""

import argparse
import asyncio
import hashlib
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from random import Random
from typing import Any

import aiohttp

from report import arguments, headed, keep
from tessera.cli.demo_fleet import DemoFleet
from tessera.sim.content import PATH, Ask, body_of
from tessera.sim.figures import quantile
from tessera.sim.load import StageRecord
from tessera.sim.load_stages import offsets
from tessera.sim.policies import named
from tessera.sim.run import Run, play, runs_of
from tessera.sim.scenario import Scenario, parse_scenario

SCENARIO = """
description: "New questions to groups of three pictures, and questions before one photo of a catalogue"
workload:
  type: mixture
  parts:
    - share: 60
      workload:
        {type: shared-prefix, num_groups: 40, questions: new, zipf: 0.8, question_tokens: 800, output_tokens: 60}
    - share: 40
      workload: {type: photos, order: question-first, catalogue: 60, closing_tokens: 16, output_tokens: 60}
endpoints: 3
load: {mode: points, rates: [10], duration_s: 60, warm_up: {duration_s: 20}}
"""
MODEL = "Qwen/Qwen3-VL-32B-Instruct"
POLICIES = ("tessera-multimodal", "round-robin")
SEED = 0
MEASURED = 1
"""The stage behind the warm-up."""
NUM_SERVERS = 3
ALL_NAMES = tuple(permutations(range(NUM_SERVERS)))
"""Which live server is called which simulated one: among idle servers alike, whoever is asked first is drawn."""
CACHES = ("prefix_cache", "encoder_cache", "processor_cache")
WITHIN = 0.25
"""How far the medians of the time to first token may lie apart."""


@dataclass
class Answer:
    """One answer as its client saw it."""

    sent_at: float
    """Seconds on the client's clock."""
    first_at: float = 0.0
    ended_at: float = 0.0
    status: int = 0
    body_sha256: str = ""
    late_s: float = 0.0
    """How long behind its instant the request was sent."""


@dataclass
class Side:
    """What one of the two fleets did in the measured stage; one entry for each request, in the order of asking."""

    ttfts_s: list[float] = field(default_factory=list)
    tpots_s: list[float] = field(default_factory=list)
    servers: list[int | None] = field(default_factory=list)
    hits: dict[str, float | None] = field(default_factory=dict)
    num_failed: int = 0

    def figures(self) -> dict[str, Any]:
        """As the result tells them."""
        ordered = sorted(self.ttfts_s)
        counts = [self.servers.count(server) for server in sorted({each for each in self.servers if each is not None})]
        return {
            "num_requests": len(self.servers),
            "num_failed": self.num_failed,
            "ttft_p50_s": _short(quantile(ordered, 0.5)),
            "ttft_p90_s": _short(quantile(ordered, 0.9)),
            "tpot_mean_s": _short(statistics.fmean(self.tpots_s)),
            **{f"{cache.removesuffix('_cache')}_hit_fraction": _short(self.hits[cache]) for cache in CACHES},
            "requests_by_server": counts,
        }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")


def simulated(run: Run) -> Side:
    """The run in virtual time."""
    record = play(run)[MEASURED]
    ids = [f"10.0.0.{number}:8000" for number in range(1, 1 + run.scenario.document.endpoints)]
    return Side(
        ttfts_s=[each.ttft_s for each in record.sent if each.ttft_s is not None],
        tpots_s=[each.tpot_s for each in record.sent if each.tpot_s is not None],
        servers=[ids.index(each.endpoint_id) if each.endpoint_id else None for each in record.sent],
        hits=_simulated_hits(record),
        num_failed=sum(each.first_at is None for each in record.sent),
    )


def _simulated_hits(record: StageRecord) -> dict[str, float | None]:
    counters = [
        [{cache: _counted(getattr(facts, cache)) for cache in CACHES} for facts in several]
        for several in (record.facts_before, record.facts_after)
    ]
    return _hits(*counters)


def _counted(counters: Any) -> dict[str, int]:
    return {"num_queried": counters.num_queried, "num_hit": counters.num_hit}


def _hits(before: Sequence[Any], after: Sequence[Any]) -> dict[str, float | None]:
    """Hits over queries of each cache, all servers together, between two readings of their counters."""
    found = {}
    for cache in CACHES:
        queried, hit = (
            sum(now[cache][name] - was[cache][name] for was, now in zip(before, after, strict=True))
            for name in ("num_queried", "num_hit")
        )
        found[cache] = hit / queried if queried else None
    return found


class Live:
    """The run on the wall clock."""

    def __init__(self, run: Run, fleet: DemoFleet, session: aiohttp.ClientSession) -> None:
        self._fleet = fleet
        self._session = session
        self._stages = run.stages
        self._plan = _plan(run)
        self._url = f"http://127.0.0.1:{fleet.ports['envoy']}{PATH}"

    async def play(self) -> Side:
        """Send everything at its instant, wait for the last answer, and ask the servers what they did."""
        began = time.monotonic() + 1.0
        measured_from = began + sum(stage.duration_s for stage in self._stages[:MEASURED])
        reading = asyncio.create_task(self._facts_at(measured_from))
        answers = await asyncio.gather(*(self._send(began + offset, body) for _, offset, body in self._plan))
        after = await self._facts_at(0.0)
        return await self._side(answers, await reading, after)

    async def _facts_at(self, at: float) -> list[dict[str, Any]]:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        return [await self._get(port, "/emulator/facts") for port in self._fleet.server_ports]

    async def _get(self, port: int, path: str) -> Any:
        async with self._session.get(f"http://127.0.0.1:{port}{path}") as answer:
            return await answer.json()

    async def _send(self, at: float, body: bytes) -> Answer:
        await asyncio.sleep(max(0.0, at - time.monotonic()))
        answer = Answer(sent_at=time.monotonic())
        answer.late_s = answer.sent_at - at
        headers = {"content-type": "application/json"}
        async with self._session.post(self._url, data=body, headers=headers) as response:
            answer.status = response.status
            async for _ in response.content.iter_any():
                answer.ended_at = time.monotonic()
                answer.first_at = answer.first_at or answer.ended_at
        return answer

    async def _side(self, answers: Sequence[Answer], before: list[Any], after: list[Any]) -> Side:
        """Put each answer beside the server that saw its body."""
        served = {}
        for index, port in enumerate(self._fleet.server_ports):
            records = (await self._get(port, "/emulator/requests"))["requests"]
            served |= {record["sha256"]: index for record in records}
        side = Side(hits=_hits(before, after))
        late = []
        for (stage, ask_offset, body), answer in zip(self._plan, answers, strict=True):
            del ask_offset
            if stage != MEASURED:
                continue
            late.append(answer.late_s)
            side.servers.append(served.get(_sha256(body)))
            if answer.status != 200:
                side.num_failed += 1
                continue
            side.ttfts_s.append(answer.first_at - answer.sent_at)
            side.tpots_s.append((answer.ended_at - answer.first_at) / (_num_output_tokens(body) - 1))
        print(f"  sent {len(late)}, at most {max(late) * 1000:.0f} ms behind their instants")
        return side


def _sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def _num_output_tokens(body: bytes) -> int:
    return int(json.loads(body)["max_tokens"])


def _plan(run: Run) -> list[tuple[int, float, bytes]]:
    """(stage, seconds from the start, body) of each request, as the simulator's load generator draws them."""
    workload = run.scenario.workload.make(str(run.seed))
    plan, began = [], 0.0
    for index, stage in enumerate(run.stages):
        gaps = offsets(stage, run.scenario.document.load.spacing, Random(f"{run.seed}/gaps/{index}"))
        asks: list[Ask] = [ask for ask, _ in zip(workload.asks(index), gaps, strict=False)]
        plan += [(index, began + gap, body_of(ask, MODEL)) for gap, ask in zip(gaps, asks, strict=True)]
        began += stage.duration_s
    return plan


async def live(run: Run) -> Side:
    """The run on the wall clock, in a fleet of its own."""
    config = run.policy.path(run.scenario.folder)
    fleet = DemoFleet(model=MODEL, num_servers=run.scenario.document.endpoints, speed=1.0, config=config)
    no_limit = aiohttp.TCPConnector(limit=0)
    async with fleet, aiohttp.ClientSession(connector=no_limit, timeout=aiohttp.ClientTimeout(300)) as session:
        return await Live(run, fleet, session).play()


def _same(here: Side, there: Side, names: Sequence[int]) -> float:
    """Share of the requests that went to the same server, where the live server ``i`` is called ``names[i]``."""
    pairs = zip(here.servers, there.servers, strict=True)
    return statistics.fmean(one is not None and names[one] == other for one, other in pairs)


def compared(here: Side, there: Side) -> dict[str, Any]:
    """The live side over the simulated one."""
    p50s = [quantile(sorted(side.ttfts_s), 0.5) or 0.0 for side in (here, there)]
    p90s = [quantile(sorted(side.ttfts_s), 0.9) or 0.0 for side in (here, there)]
    error = p50s[0] / p50s[1] - 1
    return {
        "live": here.figures(),
        "simulated": there.figures(),
        "ttft_p50_overhead_s": _short(p50s[0] - p50s[1]),
        "ttft_p50_error": round(error, 4),
        "ttft_p90_error": round(p90s[0] / p90s[1] - 1, 4),
        "tpot_error": round(statistics.fmean(here.tpots_s) / statistics.fmean(there.tpots_s) - 1, 4),
        "same_server_fraction": round(_same(here, there, range(NUM_SERVERS)), 4),
        "same_server_fraction_renamed": round(max(_same(here, there, names) for names in ALL_NAMES), 4),
        "is_within": abs(error) <= WITHIN,
    }


def scenario(policies: Sequence[str]) -> Scenario:
    """What both fleets are asked."""
    made = parse_scenario(SCENARIO, "live-sim", Path(__file__).parent)
    assert made.document.endpoints == NUM_SERVERS
    return made.with_policies(list(policies))


def measure(policies: Sequence[str]) -> dict[str, Any]:
    """Each policy on both fleets."""
    asked = scenario(policies)
    result = headed("Does the simulated fleet do what the live one does?")
    result |= {"scenario": SCENARIO.strip().splitlines(), "seed": SEED, "within": WITHIN, "by_policy": {}}
    for run in runs_of(asked, [SEED]):
        assert run.policy == named(run.policy.config), "a live gateway learns of first tokens as its policy's does"
        print(f"{run.policy.title}: {run.num_requests} requests live", flush=True)
        here = asyncio.run(live(run))
        result["by_policy"][run.policy.title] = compared(here, simulated(run))
        print(json.dumps(result["by_policy"][run.policy.title], indent=2), flush=True)
    return result


def main() -> None:
    parser: argparse.ArgumentParser = arguments(__doc__)
    parser.add_argument("--policy", action="append", help="a policy's name; may be given several times")
    given = parser.parse_args()
    result = measure(given.policy or POLICIES)
    keep(result, given.write)


if __name__ == "__main__":
    main()
