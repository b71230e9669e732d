"""How long does a decision take, by load alone and by load and affinity?

    python bench/decide.py [--write bench/results/decide.json]

``Router.decide`` is called for a chat with three images while a few hundred requests
are in flight, at several sizes of the fleet: price, match, filter, score, pick, record.
What is measured is the thread's CPU time of each call, so that whatever else runs on
the machine does not count; garbage collection is set as ``tessera serve`` sets it. The
sizes take turns over several rounds, because a shared machine is slower for seconds at
a time; reported are the medians over the rounds.
"""

import functools
import random
import statistics
import time
from collections import deque
from dataclasses import replace
from typing import Any

from bodies import PICTURES, all_bodies
from report import arguments, as_text, headed, keep
from tessera.config.load import load_data
from tessera.core.facts import EndpointState, FirstToken, FleetView, Load
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import (
    Decision,
    Ending,
    Endpoint,
    FirstTokenSource,
    InferenceRequest,
    ModelProfile,
    Outcome,
)
from tessera.live.memory import keep_large_blocks

FLEETS = (1, 8, 64, 256)
FILTERS: tuple[dict[str, Any], ...] = (
    {"type": "label-selector-filter", "parameters": {"matchLabels": {"app": "vllm"}}},
    {"type": "decode-filter"},
    {"type": "utilization-detector", "parameters": {"queueDepthThreshold": 64, "kvCacheUtilThreshold": 1.0}},
    {"type": "concurrency-detector", "parameters": {"maxConcurrency": 1000}},
)
"""Their limits leave everybody in, so that the scorers see the whole fleet."""
BY_LOAD = (
    "token-load-scorer",
    "active-request-scorer",
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "load-aware-scorer",
)
BY_LOAD_AND_AFFINITY = (
    *BY_LOAD,
    "prefix-cache-scorer",
    "mm-embeddings-cache-scorer",
    "no-hit-lru-scorer",
    "lora-affinity-scorer",
    "session-affinity-scorer",
)
"""Every request asks the same, so every endpoint that had it before matches, and prefix chains are walked whole."""
SCORERS = {"load": BY_LOAD, "load and affinity": BY_LOAD_AND_AFFINITY}
NUM_IN_FLIGHT = 300
NUM_BEFORE_FIRST_TOKEN = 100
NUM_KEPT = 1000
"""Decisions that stay in memory, as for ``/debug``."""
NUM_VIEWS = 16
AT = 10.0
TARGET_MS, TARGET_FLEET = 0.5, 64


def make_router(scorers: tuple[str, ...]) -> Router:
    plugins = [*FILTERS, *({"type": name} for name in scorers), {"type": "max-score-picker"}]
    profile = {"name": "default", "plugins": [{"pluginRef": each["type"]} for each in plugins]}
    head = {"apiVersion": "llm-d.ai/v1alpha1", "kind": "EndpointPickerConfig"}
    return load_data(head | {"plugins": plugins, "schedulingProfiles": [profile]}).router


@functools.cache
def make_request() -> InferenceRequest:
    headers = {":method": "POST", ":path": "/v1/chat/completions", "x-request-id": "7f3c"}
    request, _ = Router.read(all_bodies()[PICTURES], headers, ModelProfile(), request_id="", at=AT, wall_at=AT)
    assert sum(not hasattr(part, "digests") for part in request.prompts[0]) == 3
    return request


def make_views(num_endpoints: int) -> list[FleetView]:
    """The fleet after each of a few rounds of scrapes."""
    rng = random.Random(num_endpoints)
    labels = {"app": "vllm", "llm-d.ai/role": "decode"}
    endpoints = [
        Endpoint(address=f"10.0.{n // 250}.{n % 250 + 1}", port=8000, labels=labels) for n in range(num_endpoints)
    ]

    def load() -> Load:
        return Load(
            num_waiting=rng.randrange(8),
            num_running=rng.randrange(64),
            kv_usage_fraction=rng.random(),
            block_size=16,
            num_blocks=20_000,
            at=AT - 0.05 * rng.random(),
        )

    return [FleetView(tuple(EndpointState(each, load()) for each in endpoints)) for _ in range(NUM_VIEWS)]


def one_round(scorers: tuple[str, ...], num_endpoints: int, num_decisions: int) -> dict[str, float]:
    """Median and p99 of the CPU time of one decision, microseconds."""
    router, request, views = make_router(scorers), make_request(), make_views(num_endpoints)
    in_flight: deque[str] = deque()
    kept: deque[Decision] = deque(maxlen=NUM_KEPT)
    times_us = []
    for number in range(NUM_IN_FLIGHT + num_decisions):
        asked = replace(request, request_id=f"r{number}")
        rng, view = SeededRng(0, asked.request_id), views[number % NUM_VIEWS]
        before = time.thread_time_ns()
        decision = router.decide(asked, view, AT, rng)
        elapsed = time.thread_time_ns() - before
        stage = decision.primary_stage
        assert len(stage.totals) == num_endpoints, "a filter dropped somebody"
        kept.append(decision)
        in_flight.append(asked.request_id)
        if number >= NUM_BEFORE_FIRST_TOKEN:
            early = in_flight[-NUM_BEFORE_FIRST_TOKEN]
            router.observe(FirstToken(at=AT, request_id=early, source=FirstTokenSource.COUNTER))
        if number >= NUM_IN_FLIGHT:
            times_us.append(elapsed / 1000)
            router.settle(Outcome(request_id=in_flight.popleft(), ending=Ending.FINISHED, finished_at=AT))
    return {
        "median_us": round(statistics.median(times_us), 1),
        "p99_us": round(statistics.quantiles(times_us, n=100)[98], 1),
    }


def measure(num_rounds: int, num_decisions: int) -> dict[str, dict[str, Any]]:
    """By scorers and number of endpoints: the medians over the rounds, and every round."""
    runs = [(name, size) for name in SCORERS for size in FLEETS]
    rounds: dict[tuple[str, int], list[dict[str, float]]] = {run: [] for run in runs}
    for _ in range(num_rounds):
        for (name, size), figures in rounds.items():
            figures.append(one_round(SCORERS[name], size, num_decisions))
    result: dict[str, dict[str, Any]] = {name: {} for name in SCORERS}
    for (name, size), figures in rounds.items():
        medians = {key: statistics.median(each[key] for each in figures) for key in figures[0]}
        result[name][str(size)] = medians | {"rounds": figures}
    return result


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--num-rounds", type=int, default=5)
    parser.add_argument("--num-decisions", type=int, default=2000, help="decisions a round, for each size")
    args = parser.parse_args()
    keep_large_blocks()
    measured = measure(args.num_rounds, args.num_decisions)
    result = {
        **headed(f"CPU of one decision; target: under {TARGET_MS} ms at {TARGET_FLEET} endpoints"),
        "filters": [each["type"] for each in FILTERS],
        "scorers": SCORERS,
        "num_items": 3,
        "num_decisions": args.num_decisions,
        "num_in_flight": NUM_IN_FLIGHT,
        "by_scorers_and_num_endpoints": measured,
        "meets_target": {
            name: fleets[str(TARGET_FLEET)]["median_us"] < 1000 * TARGET_MS for name, fleets in measured.items()
        },
    }
    print(as_text(result))
    keep(result, args.write)


if __name__ == "__main__":
    main()
