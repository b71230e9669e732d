"""Which types can YAML declare that decide nothing: parsers, data sources, extractors, discovery?

They are parameters only; ``live`` carries them out. A declaration is looked up by
its type name as a plugin of ``core`` is, and decoded as strictly.
"""

from collections.abc import Callable
from typing import Annotated, ClassVar, Literal, TypeVar

from tessera.core.plugin import GoDuration, Range, params

MIN_INTERVAL_S = 0.05
"""Seconds between two scrapes of an endpoint at the least, llm-d's floor and default."""

Port = Annotated[int, Range(ge=1, le=65535)]


class Declaration:
    """A type that YAML may declare and that is no plugin of ``core``."""

    kind: ClassVar[str]
    """The word for what it is: ``parser``, ``source``, ``extractor``, ``discovery`` or ``request hook``."""
    type: ClassVar[str]
    """The name in YAML."""
    suffixes: ClassVar[tuple[str, ...]] = ()
    """For a parser: path suffixes that it claims; none: every path that nobody else claims."""
    source_type: ClassVar[str] = ""
    """For an extractor: the type of the source that it reads."""


D = TypeVar("D", bound=Declaration)
DECLARATIONS: dict[str, type[Declaration]] = {}
"""Every declarable type by its name, in the order of this file."""


def declaration(
    kind: str, type_name: str, *, suffixes: tuple[str, ...] = (), source_type: str = ""
) -> Callable[[type[D]], type[D]]:
    """Make a class a declarable type of that name."""

    def decorate(cls: type[D]) -> type[D]:
        cls.kind, cls.type, cls.suffixes, cls.source_type = kind, type_name, suffixes, source_type
        DECLARATIONS[type_name] = made = params(cls)
        return made

    return decorate


@declaration(
    "parser",
    "openai-parser",
    suffixes=(
        "chat/completions",
        "completions",
        "embeddings",
        "responses",
        "conversations",
        "chat/completions/render",
        "completions/render",
        "images/generations",
        "audio/transcriptions",
        "audio/translations",
    ),
)
class OpenAIParser(Declaration):
    """Reads the bodies of OpenAI's API: chat completions, completions, responses, transcriptions and translations.

    Its other paths are routed unread.
    """


@declaration("parser", "anthropic-parser", suffixes=("messages", "messages/count_tokens"))
class AnthropicParser(Declaration):
    """Reads the bodies of Anthropic's messages API; ``count_tokens`` is routed unread."""


@declaration("parser", "vllmhttp-parser", suffixes=("inference/v1/generate",))
class VllmHttpParser(Declaration):
    """Reads the bodies of vLLM's generate API: token ids, and the media that stand in them."""


@declaration("parser", "passthrough-parser")
class PassthroughParser(Declaration):
    """Reads no body: whatever no other parser claims is routed unread."""


@declaration("source", "metrics-data-source")
class MetricsDataSource(Declaration):
    """Reads each endpoint's metrics page over HTTP, again and again."""

    scheme: Literal["http", "https"] = "http"
    """Whether the connection is encrypted."""
    path: str = "/metrics"
    """The page's path."""
    port: Port | None = None
    """The page's port; the endpoint's ``metricsPort``, else its port, where it is left out."""
    insecure_skip_verify: bool = True
    """Whether any certificate is accepted with ``https``."""
    ca_cert_path: str = ""
    """A file of CA certificates that an endpoint's is checked against."""
    client_cert_path: str = ""
    """The certificate shown to endpoints."""
    client_key_path: str = ""
    """The key of that certificate."""
    interval: Annotated[float, GoDuration()] = MIN_INTERVAL_S
    """From one scrape of an endpoint to the next; below 50ms it counts as 50ms."""


@declaration("source", "models-data-source")
class ModelsDataSource(Declaration):
    """Reads each endpoint's list of models over HTTP, again and again."""

    scheme: Literal["http", "https"] = "http"
    """Whether the connection is encrypted."""
    path: str = "/v1/models"
    """The list's path."""
    insecure_skip_verify: bool = True
    """Whether any certificate is accepted with ``https``."""
    interval: Annotated[float, GoDuration()] = 30.0
    """From one reading of an endpoint's list to the next."""


@declaration("source", "endpoint-notification-source")
class EndpointNotificationSource(Declaration):
    """Says that endpoints come and go; Tessera tells every plugin so whether it is listed or not."""


@params
class CustomMetric:
    """A further series of the metrics page."""

    attribute_key: str
    """The name under which it is known."""
    metric_spec: str
    """``family{label=value,...}``."""


@params
class EngineConfig:
    """Under which names an engine's metrics page says how loaded it is; ``family{label=value,...}`` each."""

    name: str
    """The engine; one of the built-in names changes that engine's table, another adds one."""
    queued_requests_spec: str | None = None
    """Requests waiting."""
    running_requests_spec: str | None = None
    """Requests running."""
    kv_usage_spec: str | None = None
    """Share of KV blocks in use, 0..1."""
    lora_spec: str | None = None
    """An info series about LoRA adapters."""
    cache_info_spec: str | None = None
    """An info series that carries the cache's geometry as label values."""
    cache_block_size_label_name: str | None = None
    """The label of that series that holds the tokens of a block."""
    cache_num_blocks_label_name: str | None = None
    """The label of that series that holds the number of blocks."""
    cache_block_size_spec: str | None = None
    """Tokens a block holds, where it is a series of its own."""
    cache_num_blocks_spec: str | None = None
    """Blocks, where it is a series of its own."""
    custom_metrics: tuple[CustomMetric, ...] = ()
    """Further series."""


@declaration("extractor", "core-metrics-extractor", source_type="metrics-data-source")
class CoreMetricsExtractor(Declaration):
    """Takes an endpoint's load from its metrics page, by its engine's table of names.

    vllm, sglang, trtllm-serve, triton-tensorrt-llm and triton are built in.
    """

    engine_label_key: str = "llm-d.ai/engine-type"
    """The label that names an endpoint's engine."""
    default_engine: str = "vllm"
    """The engine of an endpoint without that label."""
    engine_configs: tuple[EngineConfig, ...] = ()
    """Engines beside the built-in ones, or changes to those."""


@declaration("extractor", "models-data-extractor", source_type="models-data-source")
class ModelsDataExtractor(Declaration):
    """Takes the model ids from an endpoint's list of models."""


@declaration("discovery", "file-discovery")
class FileDiscovery(Declaration):
    """Reads the endpoints from a file."""

    path: str
    """The file: YAML or JSON, at most 1 MiB."""
    watch_file: bool = False
    """Whether a changed file is read again."""


@declaration("request hook", "disagg-headers-handler")
class HeadersHandler(Declaration):
    """Nothing more: ``disagg-profile-handler`` tells the endpoint that decodes whom to ask, with this or without it."""

    prefill_profile: str = "prefill"
    """Not read: the handler's own ``profiles`` say it."""
    encode_profile: str = "encode"
    """Not read: the handler's own ``profiles`` say it."""


@declaration("request hook", "prefill-header-handler")
class PrefillHeaderHandler(HeadersHandler):
    """The older name of ``disagg-headers-handler``."""
