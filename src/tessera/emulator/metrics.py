"""What does the emulated server's metrics page say? vLLM 0.32's names, labels and buckets."""

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from tessera.emulator.pictures import ProcessorCache
from tessera.emulator.service import Service, Token
from tessera.emulator.settings import EmulatorSettings

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


class Metrics:
    """The page of one server; its numbers move as tokens come and requests end."""

    def __init__(self, settings: EmulatorSettings, service: Service, cache: ProcessorCache) -> None:
        self._registry = CollectorRegistry()
        self._values = (settings.model, "0")
        self._service = service
        self._cache = cache
        self._num_queries_told = 0
        self._num_hits_told = 0
        self._running = self._gauge("num_requests_running", "Requests that the accelerator works on.")
        self._waiting = self._gauge("num_requests_waiting", "Requests that wait for it.")
        self._kv_usage = self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 1 is all of them.")
        self._prefix_queries = self._counter("prefix_cache_queries", "Prompt tokens that a prefix cache could hold.")
        self._counter("prefix_cache_hits", "Prompt tokens found in the prefix cache; this engine has none.")
        self._mm_queries = self._counter("mm_cache_queries", "Media items looked up in the processor cache.")
        self._mm_hits = self._counter("mm_cache_hits", "Media items found in the processor cache.")
        self._counter("num_preemptions", "Preemptions; this engine never preempts.")
        self._prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of prompts that are computed.")
        self._generation_tokens = self._counter("generation_tokens", "Answer tokens.")
        self._ttft = self._histogram("time_to_first_token_seconds", "From arrival to the first token.", TTFT_BUCKETS)
        self._gap = self._histogram("inter_token_latency_seconds", "From one token to the next.", GAP_BUCKETS)
        self._e2e = self._histogram("e2e_request_latency_seconds", "From arrival to the last token.", LATENCY_BUCKETS)
        self._queue = self._histogram("request_queue_time_seconds", "From arrival to the start.", LATENCY_BUCKETS)
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

    def tokens_came(self, tokens: Sequence[Token]) -> None:
        """Count tokens, and the works that ended with them."""
        self._generation_tokens.inc(len(tokens))
        for token in tokens:
            if token.position == 0:
                self._first_token_came(token)
            else:
                self._gap.observe(token.gap_s)
            if token.is_last:
                self._work_finished(token)

    def work_aborted(self) -> None:
        """Count a work whose client went away."""
        self._ended["abort"].inc()

    def page(self) -> bytes:
        """The page as it is now."""
        self._running.set(len(self._service.running))
        self._waiting.set(len(self._service.waiting))
        self._kv_usage.set(self._service.kv_usage_fraction)
        self._mm_queries.inc(self._cache.num_queries - self._num_queries_told)
        self._mm_hits.inc(self._cache.num_hits - self._num_hits_told)
        self._num_queries_told, self._num_hits_told = self._cache.num_queries, self._cache.num_hits
        return generate_latest(self._registry)

    def _first_token_came(self, token: Token) -> None:
        work = token.work
        self._ttft.observe(token.gap_s)
        self._queue.observe(work.started_at - work.arrived_at)
        self._prompt_tokens.inc(work.num_prompt_tokens)
        self._prefix_queries.inc(work.num_prompt_tokens)

    def _work_finished(self, token: Token) -> None:
        self._ended[token.work.finish_reason].inc()
        self._e2e.observe(token.at - token.work.arrived_at)

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(f"vllm:{name}", text, LABELS, registry=self._registry).labels(*self._values)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"vllm:{name}", text, LABELS, registry=self._registry).labels(*self._values)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        made = Histogram(f"vllm:{name}", text, LABELS, registry=self._registry, buckets=buckets)
        return made.labels(*self._values)

    def _cache_config(self, settings: EmulatorSettings) -> None:
        labels = {
            "block_size": str(settings.block_size),
            "num_gpu_blocks": str(settings.num_gpu_blocks),
            "kv_cache_size_tokens": str(settings.num_cache_tokens),
            "enable_prefix_caching": "False",
            "engine": "0",
        }
        info = Gauge("vllm:cache_config_info", "The KV cache's settings.", tuple(labels), registry=self._registry)
        info.labels(**labels).set(1)
