"""What does the emulated server's metrics page say? vLLM 0.32's names, labels and buckets."""

from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tessera.emulator.settings import EmulatorSettings
from tessera.emulator.tickets import Work
from tessera.engine.events import EngineFacts
from tessera.engine.roles import Role

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
GAP_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
LATENCY_BUCKETS = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0),
    *(30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)

FINISHED_REASONS = ("stop", "length", "abort", "error", "repetition")
LABELS = ("model_name", "engine")

_GAUGES: dict[str, tuple[str, Callable[[EngineFacts], float]]] = {
    "num_requests_running": ("Requests in the batch.", lambda facts: facts.num_running),
    "num_requests_waiting": ("Requests that wait for it.", lambda facts: facts.num_waiting),
    "kv_cache_usage_perc": ("Share of KV blocks in use, 1 is all of them.", lambda facts: facts.kv_usage_fraction),
}
_COUNTERS: dict[str, tuple[str, Callable[[EngineFacts], float]]] = {
    "prefix_cache_queries": ("Tokens looked up in the prefix cache.", lambda facts: facts.prefix_cache.num_queried),
    "prefix_cache_hits": ("Tokens found in the prefix cache.", lambda facts: facts.prefix_cache.num_hit),
    "mm_cache_queries": ("Items looked up in the processor cache.", lambda facts: facts.processor_cache.num_queried),
    "mm_cache_hits": ("Items found in the processor cache.", lambda facts: facts.processor_cache.num_hit),
    "num_preemptions": ("Preemptions.", lambda facts: facts.num_preemptions),
    "prompt_tokens": ("Prompt tokens of prompts that are computed.", lambda facts: facts.num_prompt_tokens),
    "generation_tokens": ("Answer tokens.", lambda facts: facts.num_generation_tokens),
    "external_prefix_cache_queries": (
        "Tokens asked of peers that keep KV.",
        lambda facts: facts.external_prefix_cache.num_queried,
    ),
    "external_prefix_cache_hits": (
        "Tokens whose KV peers sent.",
        lambda facts: facts.external_prefix_cache.num_hit,
    ),
}
_PROMPT_TOKENS_BY_SOURCE: dict[str, Callable[[EngineFacts], float]] = {
    "local_compute": lambda facts: (
        facts.num_prompt_tokens - facts.num_cached_prompt_tokens - facts.num_pulled_prompt_tokens
    ),
    "local_cache_hit": lambda facts: facts.num_cached_prompt_tokens,
    "external_kv_transfer": lambda facts: facts.num_pulled_prompt_tokens,
}
_WAITING_BY_REASON: dict[str, Callable[[EngineFacts], float]] = {
    "capacity": lambda facts: facts.num_waiting - facts.num_deferred,
    "deferred": lambda facts: facts.num_deferred,
}


class Metrics:
    """The page of one server: the engine's state as it says it, and times as they went by on the wall clock."""

    def __init__(self, settings: EmulatorSettings) -> None:
        self._registry = CollectorRegistry()
        self._values = (settings.model, "0")
        self._state = _State(self._values)
        self._registry.register(self._state)
        self._ttft = self._histogram("time_to_first_token_seconds", "From arrival to the first token.", TTFT_BUCKETS)
        self._gap = self._histogram("inter_token_latency_seconds", "From one token to the next.", GAP_BUCKETS)
        self._e2e = self._histogram("e2e_request_latency_seconds", "From arrival to the last token.", LATENCY_BUCKETS)
        ended = Counter(
            "vllm:request_success",
            "Requests by how they ended.",
            (*LABELS, "finished_reason"),
            registry=self._registry,
        )
        self._ended = {reason: ended.labels(*self._values, reason) for reason in FINISHED_REASONS}
        self._cache_config(settings)

    def process_started(self, wall_at: float) -> None:
        """Say when the server started, Unix seconds: its own start, since several may share a process."""
        name = "process_start_time_seconds"
        Gauge(name, "Unix time at which the server started.", registry=self._registry).set(wall_at)

    def tokens_came(self, work: Work, choice: int, num_new: int, at: float) -> None:
        """Count new tokens of a choice at ``at``, and the choice itself where they are its last."""
        num_gaps, gap_s = num_new, (at - work.last_token_at[choice]) / num_new
        if work.num_produced[choice] == 0:
            self._ttft.observe(at - work.arrived_at)
            num_gaps, gap_s = num_new - 1, 0.0
        for _ in range(num_gaps):
            self._gap.observe(gap_s)
        if work.num_produced[choice] + num_new == work.request.num_output_tokens:
            self._ended[work.finish_reason].inc()
            self._e2e.observe(at - work.arrived_at)

    def work_aborted(self, work: Work) -> None:
        """Count the choices whose answer nobody waits for any more."""
        self._ended["abort"].inc(sum(produced < work.request.num_output_tokens for produced in work.num_produced))

    def page(self, facts: EngineFacts) -> bytes:
        """The page of an engine in this state."""
        self._state.facts = facts
        return generate_latest(self._registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        made = Histogram(f"vllm:{name}", text, LABELS, registry=self._registry, buckets=buckets)
        return made.labels(*self._values)

    def _cache_config(self, settings: EmulatorSettings) -> None:
        is_encode_only = settings.profile.role is Role.ENCODE
        labels = {
            "block_size": str(settings.profile.block_size),
            "num_gpu_blocks": str(settings.profile.num_blocks),
            "kv_cache_size_tokens": str(None if is_encode_only else settings.num_cache_tokens),
            "enable_prefix_caching": str(not is_encode_only),
            "engine": "0",
        }
        if settings.kv_events:
            labels["prefix_caching_hash_algo"] = settings.kv_events.hash_algorithm
        info = Gauge("vllm:cache_config_info", "The KV cache's settings.", tuple(labels), registry=self._registry)
        info.labels(**labels).set(1)


class _State(Collector):
    """The families that are the engine's state and nothing else."""

    def __init__(self, values: Sequence[str]) -> None:
        self.facts: EngineFacts | None = None
        self._values = values

    def collect(self) -> Iterator[Metric]:
        """One family for each gauge and counter; none before the state was told."""
        if self.facts is None:
            return
        for name, (text, read) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=LABELS)
            gauge.add_metric(self._values, read(self.facts))
            yield gauge
        by_reason = GaugeMetricFamily(
            "vllm:num_requests_waiting_by_reason", "Waiting requests by what they wait for.", labels=(*LABELS, "reason")
        )
        for reason, read in _WAITING_BY_REASON.items():
            by_reason.add_metric((*self._values, reason), read(self.facts))
        yield by_reason
        by_source = CounterMetricFamily(
            "vllm:prompt_tokens_by_source", "Prompt tokens by where they came from.", labels=(*LABELS, "source")
        )
        for source, read in _PROMPT_TOKENS_BY_SOURCE.items():
            by_source.add_metric((*self._values, source), read(self.facts))
        yield by_source
        for name, (text, read) in _COUNTERS.items():
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=LABELS)
            counter.add_metric(self._values, read(self.facts))
            yield counter
