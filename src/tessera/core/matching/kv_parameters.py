"""What are the parameters of exact prefix matching? llm-d's blocks, letter for letter."""

from typing import Annotated, Any, Literal

from tessera.core.plugin import Range, params


@params
class TokenProcessorConfig:
    """How token ids become block keys."""

    block_size_tokens: Annotated[int, Range(ge=1, le=65_536)] = 16
    """Tokens of a block until events tell it; each endpoint's own counts from then on."""
    hash_seed: str = ""
    """The engine's PYTHONHASHSEED, where ``hashSeed`` does not say it."""
    hash_algorithm: Literal["cbor-fnv", "xxh64"] = "cbor-fnv"
    """Accepted for compatibility: keys are the engine's own hashes, whose algorithm is found out."""


@params
class InMemoryConfig:
    """The index in this process."""

    size: Annotated[int, Range(ge=1)] = 1 << 23
    """Blocks that are kept over all endpoints and tiers, at most 176 bytes each (llm-d's default is 10^8)."""
    pod_cache_size: Annotated[int, Range(ge=1)] = 10
    """Accepted for compatibility: any number of endpoints may hold a block."""


@params
class KVBlockIndexConfig:
    """Where the index lies."""

    in_memory_config: InMemoryConfig = InMemoryConfig()
    """The index in this process."""
    redis_config: dict[str, Any] | None = None
    """Not there: the index is in this process."""
    cost_aware_memory_config: dict[str, Any] | None = None
    """Accepted for compatibility; ``inMemoryConfig.size`` bounds the index."""
    enable_metrics: bool = False
    """Accepted for compatibility; the index has metrics anyway."""
    metrics_logging_interval: str = ""
    """Accepted for compatibility."""


@params
class KVCacheBackendConfig:
    """One tier of an engine's cache."""

    name: str
    """Its medium in the events, lower case."""
    weight: Annotated[float, Range(ge=0, le=1)]
    """What a block there is worth."""


@params
class IndexerConfig:
    """The index and its tiers."""

    kv_block_index_config: KVBlockIndexConfig = KVBlockIndexConfig()
    """Where the index lies, and its size."""
    kv_cache_backend_configs: tuple[KVCacheBackendConfig, ...] = (
        KVCacheBackendConfig(name="gpu", weight=1.0),
        KVCacheBackendConfig(name="cpu", weight=0.8),
    )
    """Blocks of other tiers are not kept."""


Port = Annotated[int, Range(ge=1, le=65_535)]


@params
class PodDiscoveryConfig:
    """Where each endpoint publishes."""

    pod_label_selector: str = "llm-d.ai/inference-serving=true"
    """Accepted for compatibility: the fleet's endpoints are subscribed to."""
    pod_namespace: str = ""
    """Accepted for compatibility."""
    socket_port: Port = 5557
    """The events' port, where the endpoint does not name its own; a data-parallel rank adds its number."""
    replay_socket_port: Port | None = None
    """The replay port, likewise; nothing: what was missed stays unknown."""


@params
class KVEventsConfig:
    """How engines tell what they store."""

    zmq_endpoint: str = ""
    """Not there: an address that engines connect to. Each endpoint is subscribed to instead."""
    topic_filter: str = "kv@"
    """What the topic of events begins with; empty for an engine without ``topic``."""
    concurrency: Annotated[int, Range(ge=1)] = 4
    """Accepted for compatibility: events are taken in order on the event loop."""
    engine_type: Literal["vllm", "sglang"] = "vllm"
    """Accepted for compatibility: both shapes of events are read, whoever sends them."""
    discover_pods: bool = True
    """Whether endpoints are subscribed to at all."""
    pod_discovery_config: PodDiscoveryConfig = PodDiscoveryConfig()
    """Where each endpoint publishes."""
    data_parallel_size: Annotated[int, Range(ge=1, le=64)] = 1
    """Data-parallel engines behind each endpoint, each with ports of its own."""
