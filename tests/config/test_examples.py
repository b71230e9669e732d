import json
from pathlib import Path

import pytest

from tessera.cli.options import DEFAULT_CONFIG
from tessera.config.check import advice
from tessera.config.endpoints import read_endpoints, read_endpoints_file
from tessera.config.llmd_types import LLMD_TYPES
from tessera.config.load import load_file, load_text
from tessera.config.shipped import shipped
from tessera.core.facts import PrefixMatch
from tessera.core.rng import SeededRng
from tessera.core.router import Router
from tessera.core.types import ModelProfile

EXAMPLES = Path(__file__).parents[2] / "examples"
CONFIGS = sorted(path for path in EXAMPLES.glob("*.yaml") if not path.name.startswith("endpoints"))
SAMPLES = {
    "llm-d-approx-prefix.yaml",
    "llm-d-precise-prefix.yaml",
    "llm-d-multimodal-qwen.yaml",
    "llm-d-multimodal-gemma.yaml",
    "llm-d-encoder-cache.yaml",
    "llm-d-e-pd.yaml",
    "llm-d-e-p-d.yaml",
    "llm-d-p-d.yaml",
}


def test_every_sample_of_llm_d_is_here():
    assert {path.name for path in CONFIGS} >= {"quickstart.yaml", "tessera-multimodal.yaml"} | SAMPLES


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_loads_as_far_as_its_plugins_exist(path):
    loaded = load_file(path)
    assert {each.type for each in loaded.missing_plugins} <= LLMD_TYPES.keys()
    assert [each for each in loaded.warnings if "used nowhere" in each.message] == []
    again = load_text(loaded.effective_yaml())
    assert again.effective == loaded.effective
    assert again.additions == ()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_each_runs_without_the_plugins_that_are_missing(path):
    loaded = load_file(path, ignore_missing=True)
    assert loaded.missing_plugins == ()
    assert load_text(loaded.effective_yaml()).missing_plugins == ()


def test_the_quickstart_is_what_its_comments_say():
    loaded = load_file(EXAMPLES / "quickstart.yaml")
    profile = loaded.router.scheduler.profiles["default"]
    assert [(scorer.type, weight) for scorer, weight in profile.scorers] == [
        ("token-load-scorer", 2),
        ("active-request-scorer", 1),
        ("queue-scorer", 1),
        ("kv-cache-utilization-scorer", 1),
    ]
    assert loaded.missing_plugins == loaded.warnings == ()
    assert advice(loaded) == []
    assert (loaded.routing.fallbacks, loaded.routing.max_body_bytes) == (2, 64 << 20)
    assert (loaded.routing.max_bodies_in_flight_bytes, loaded.routing.seed) == (4 << 30, 0)


def test_the_default_is_what_its_comments_say():
    loaded = load_file(shipped(DEFAULT_CONFIG))
    assert DEFAULT_CONFIG == "tessera-multimodal.yaml"
    profile = loaded.router.scheduler.profiles["default"]
    cost, balance = (scorer for scorer, _ in profile.scorers)
    assert [(each.type, weight) for each, weight in profile.scorers] == [
        ("ttft-cost-scorer", 1),
        ("work-balance-scorer", 1),
    ]
    assert (cost.own_work_price, cost.waiting_price, cost.max_work_price) == (0.5, 1, 12)
    assert cost.range_s == balance.range_s == 60
    processor = next(each for each in loaded.router.producers if each.type == "processor-cache-producer")
    assert processor.cache_size_gb == 4
    assert [each.type for each in loaded.router.producers][-1] == "ttft-cost-producer", "behind what it reads"
    assert loaded.missing_plugins == loaded.warnings == ()
    assert advice(loaded) == []
    assert loaded.routing.fallbacks == 2


@pytest.mark.parametrize("name", ["llm-d-approx-prefix", "llm-d-multimodal-qwen", "llm-d-multimodal-gemma"])
def test_the_samples_of_the_approximate_prefix_lack_nothing(name):
    assert load_file(EXAMPLES / f"{name}.yaml").missing_plugins == ()


def test_the_sample_for_text_sticks_to_who_holds_the_prompt(build):
    router = load_file(EXAMPLES / "llm-d-approx-prefix.yaml").router
    view = build.view([build.endpoint(number) for number in range(1, 9)])
    winners = []
    for number in range(5):
        messages = [{"role": "system", "content": "Be brief. " * 400}, {"role": "user", "content": f"{number}?"}]
        body = json.dumps({"model": "m", "messages": messages}).encode()
        headers = {":path": "/v1/chat/completions"}
        request, _ = Router.read(body, headers, ModelProfile(), request_id=f"r{number}", at=0.0, wall_at=0.0)
        decision = router.decide(request, view, 0.0, SeededRng(0, request.request_id))
        stage = decision.primary_stage
        winners.append((stage.winner.id, stage.candidate_of(stage.winner)[PrefixMatch].num_matched_tokens))
    assert len({endpoint for endpoint, _ in winners}) == 1
    # 4,006 of 4,012 bytes are the system's, and 1,001 of 1,003 tokens.
    assert [tokens for _, tokens in winners] == [0, 1001, 1001, 1001, 1001]


def test_the_multimodal_sample_prices_as_llm_d_does():
    pricer = load_file(EXAMPLES / "llm-d-multimodal-qwen.yaml").router.pricer
    assert pricer.estimate.video.frames.sampled.temporal_patch_size == 2
    assert pricer.estimate.video.max_video_tokens == 12288
    assert pricer.estimate.image.default_resolution.width == 1280


def test_render_services_of_samples_are_a_warning():
    loaded = load_file(EXAMPLES / "llm-d-precise-prefix.yaml")
    ignored = {each.path for each in loaded.warnings}
    assert {"plugins[0].parameters.vllm", "plugins[0].parameters.modelName"} <= ignored


def test_the_exact_example_subscribes_as_its_comments_say():
    text = (EXAMPLES / "precise-prefix.yaml").read_text()
    loaded = load_text(text)
    assert loaded.missing_plugins == ()
    assert advice(loaded) == []
    (producer,) = [each for each in loaded.router.memories if each.type == "precise-prefix-cache-producer"]
    events = producer.kv_events_config
    assert (events.topic_filter, events.data_parallel_size) == ("", 1)
    ports = events.pod_discovery_config
    assert (ports.socket_port, ports.replay_socket_port) == (5557, 5558)
    (entry,) = [line.removeprefix("#") for line in text.splitlines() if line.startswith("#      - {name")]
    (endpoint,), problems = read_endpoints(f"endpoints:\n{entry}")
    assert problems == []
    assert (endpoint.id, endpoint.kv_events_port, endpoint.kv_replay_port) == ("10.0.0.1:8000", 5557, 5558)


def test_the_endpoints_file():
    endpoints, problems = read_endpoints_file(EXAMPLES / "endpoints.yaml")
    assert problems == []
    assert len(endpoints) == 4
    assert endpoints[3].kv_events_port == 5557
