"""How must Envoy be configured so that Tessera chooses its endpoints and hears what came of each request?

The answer is a plain JSON-able dict, which Envoy reads as it stands. Everything here was tried against Envoy 1.40.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tessera.core.errors import ConfigError, Problem
from tessera.core.headers import STAGES
from tessera.live.envoy_clusters import (
    ENDPOINTS_CLUSTER,
    endpoints_cluster,
    grpc_cluster,
    is_ip,
    socket_address,
    typed,
)
from tessera.live.extproc.names import (
    FIRST_BODY_TAG,
    LB_NAMESPACE,
    LOG_NAME,
    OWN_NAMESPACE,
    STAGES_KEY,
    STRIPPED_NAMES,
    STRIPPED_PREFIX,
    USAGE_NAMESPACE,
)

LISTENER: Final = "tessera"
BASELINE_LISTENER: Final = "baseline"
_EXT_PROC: Final = "ext_proc"
_ACCESS_LOG: Final = "access_log"

# Without the last prefix a client could ask for retries of its own (x-envoy-retry-on) or shorten time-outs.
_STRIPPED_PREFIXES: Final = (STRIPPED_PREFIX, "x-envoy-")

# OpenAI's completions say prompt and completion, its responses and Anthropic's messages input and output; their
# streams hold the usage one level further down. What a cache had or took is no input of Anthropic's.
_USAGE_PATHS: Final = (
    ("prompt_tokens", ("usage", "prompt_tokens")),
    ("completion_tokens", ("usage", "completion_tokens")),
    ("cached_tokens", ("usage", "prompt_tokens_details", "cached_tokens")),
    ("prompt_tokens", ("usage", "input_tokens")),
    ("completion_tokens", ("usage", "output_tokens")),
    ("cached_tokens", ("usage", "input_tokens_details", "cached_tokens")),
    ("prompt_tokens", ("response", "usage", "input_tokens")),
    ("completion_tokens", ("response", "usage", "output_tokens")),
    ("cached_tokens", ("response", "usage", "input_tokens_details", "cached_tokens")),
    ("cache_read_tokens", ("usage", "cache_read_input_tokens")),
    ("cache_written_tokens", ("usage", "cache_creation_input_tokens")),
    ("prompt_tokens", ("message", "usage", "input_tokens")),
    ("cache_read_tokens", ("message", "usage", "cache_read_input_tokens")),
    ("cache_written_tokens", ("message", "usage", "cache_creation_input_tokens")),
)
# Envoy's short names of what may go wrong on the way to an endpoint; an answer of ours has none of these flags.
_UPSTREAM_FAULTS: Final = ("UH", "UF", "UO", "URX", "UC", "UR", "LR", "UT", "SI", "UPE", "UMSDR", "DT", "NC", "OM")
_MAX_SSE_EVENT_BYTES: Final = 256 * 1024
_HEADERS_TIMEOUT_S: Final = 10.0
_MAX_BUFFER_BYTES: Final = 2**32 - 1


class BodyMode(StrEnum):
    """How Envoy hands request bodies to us."""

    BUFFERED = "BUFFERED"
    """In one message; cheapest, and requests go on by round robin when Tessera is down."""
    FULL_DUPLEX_STREAMED = "FULL_DUPLEX_STREAMED"
    """In pieces that we send back; ignores ``failure_mode_allow`` and the message time-out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvoySettings:
    """What the generated configuration depends on. Raises ConfigError when a value cannot be expressed in it."""

    listen_address: str = "127.0.0.1"
    """IP literal that clients connect to."""
    listen_port: int = 8080
    """0 asks the system."""
    baseline_listen_port: int | None = None
    """A second listener that knows nothing of Tessera and spreads requests by round robin; None: there is none."""
    admin_port: int = 0
    """Envoy's admin interface, on 127.0.0.1 only; 0 asks the system."""
    ext_proc_address: str = "127.0.0.1:9002"
    """``host:port`` of the gRPC server that answers ext_proc."""
    access_log_address: str | None = None
    """``host:port`` of the gRPC server that takes the access log; None: the one that answers ext_proc."""
    endpoints: Sequence[tuple[str, int]] = ()
    """IP literal and port of each endpoint that may get a client's request (decode-capable ones only)."""
    eds_path: Path | None = None
    """File with the endpoints, as ``write_endpoints`` makes it, watched by Envoy; None: ``endpoints`` are fixed."""
    num_retries: int = 2
    """Further attempts after the first: as many as fallbacks in the endpoint list."""
    max_body_bytes: int = 64 * 1024 * 1024
    """Envoy answers 413 beyond this in BUFFERED mode; also the bound of each buffer. At most 4 GiB - 1."""
    body_mode: BodyMode = BodyMode.BUFFERED
    message_timeout_s: float = 2.0
    """How long Envoy waits for one ext_proc answer before the request goes on by round robin."""
    request_timeout_s: float = 120.0
    """How long a client may take to send a whole request, 408 beyond; 64 MiB then need 4.5 Mbit/s."""
    progress_interval_s: float | None = None
    """How often the access log also tells of a request that still runs, so that its first token is known while it
    streams (``intermediate_log_entry`` is true then); at least 0.001. None: one entry, at the end."""
    shows_response_headers: bool = False
    """Whether Envoy sends us each response's headers, with the endpoint that served: one message more a response."""
    reports_stages: bool = False
    """Whether answers may say in ``x-tessera-stages`` how their stages ended: the access log tells it then, and no
    client sees it."""
    concurrency: int = 2
    """Envoy's worker threads, at least 1."""

    def __post_init__(self) -> None:
        problems = [
            Problem(f"endpoints[{index}]", f"{host!r} is not an IP address; Envoy's cluster takes IP literals only")
            for index, (host, _) in enumerate(self.endpoints)
            if not is_ip(host)
        ]
        if not 0 < self.max_body_bytes <= _MAX_BUFFER_BYTES:
            problems.append(Problem("max_body_bytes", f"{self.max_body_bytes} is outside 1..{_MAX_BUFFER_BYTES}"))
        if not is_ip(self.listen_address):
            problems.append(Problem("listen_address", f"{self.listen_address!r} is not an IP address"))
        for name in ("ext_proc_address", "access_log_address"):
            address = getattr(self, name)
            if address is not None and not address.rpartition(":")[2].isdecimal():
                problems.append(Problem(name, f"expected host:port, got {address!r}"))
        if problems:
            raise ConfigError(problems)


def envoy_config(settings: EnvoySettings) -> dict[str, Any]:
    """The whole bootstrap configuration."""
    listeners = [_listener(LISTENER, settings.listen_port, settings)]
    if settings.baseline_listen_port is not None:
        listeners.append(_listener(BASELINE_LISTENER, settings.baseline_listen_port, settings))
    buffer_bytes = settings.max_body_bytes
    clusters = [
        endpoints_cluster(settings.endpoints, settings.eds_path, buffer_bytes),
        grpc_cluster(_EXT_PROC, settings.ext_proc_address, buffer_bytes),
    ]
    if settings.access_log_address is not None:
        clusters.append(grpc_cluster(_ACCESS_LOG, settings.access_log_address, buffer_bytes))
    return {
        "node": {"id": "tessera-envoy", "cluster": "tessera"},
        "admin": {"address": socket_address("127.0.0.1", settings.admin_port)},
        "static_resources": {"listeners": listeners, "clusters": clusters},
    }


def _listener(name: str, port: int, settings: EnvoySettings) -> dict[str, Any]:
    manager = typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        **_connection_manager(name, settings),
    )
    return {
        "name": name,
        "address": socket_address(settings.listen_address, port),
        # With it two routers could share a port by accident, each getting half of the connections.
        "enable_reuse_port": False,
        "per_connection_buffer_limit_bytes": settings.max_body_bytes,
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }


def _connection_manager(name: str, settings: EnvoySettings) -> dict[str, Any]:
    """One HTTP listener; the baseline differs only in having no ext_proc, no usage reading and no access log."""
    asks_tessera = name == LISTENER
    filters = [_strip_filter()]
    if asks_tessera:
        filters += [_ext_proc_filter(settings), _sse_usage_filter(), _json_usage_filter()]
    if asks_tessera and settings.reports_stages:
        # Of responses the last filter is the first, so this one sees what ext_proc takes away.
        filters.append(_stages_filter())
    filters.append(_filter("router", "envoy.extensions.filters.http.router.v3.Router", suppress_envoy_headers=True))
    progress = {}
    if asks_tessera and settings.progress_interval_s is not None:
        progress = {"access_log_options": {"access_log_flush_interval": _duration(settings.progress_interval_s)}}
    return progress | {
        "stat_prefix": name,
        "codec_type": "AUTO",
        # An answer may be silent for minutes, but what a client announces and does not send is charged to all others.
        "stream_idle_timeout": "0s",
        "request_headers_timeout": _duration(_HEADERS_TIMEOUT_S),
        "request_timeout": _duration(settings.request_timeout_s),
        "server_header_transformation": "PASS_THROUGH",
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "request_id_extension": {
            # Packing a trace reason would change one digit of the client's own id.
            "typed_config": typed("envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig", pack_trace_reason=False)
        },
        "local_reply_config": _local_replies(settings),
        "route_config": _routes(settings),
        "http_filters": filters,
        "access_log": [_access_log(settings)] if asks_tessera else [],
    }


def _routes(settings: EnvoySettings) -> dict[str, Any]:
    """Every path goes to the endpoints; only what no endpoint has begun to work on, or answered 503, is retried."""
    retry_policy = {
        "retry_on": "connect-failure,refused-stream,reset-before-request,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": settings.num_retries,
        # Where the list is exhausted, round robin would else offer a host that has just failed.
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": typed("envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"),
            }
        ],
        "host_selection_retry_max_attempts": 5,
        "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.05s"},
    }
    route = {
        "match": {"prefix": "/"},
        "route": {"cluster": ENDPOINTS_CLUSTER, "timeout": "0s", "retry_policy": retry_policy},
    }
    return {"name": "all", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}


def _strip_filter() -> dict[str, Any]:
    mutations: list[dict[str, Any]] = [{"remove": name} for name in STRIPPED_NAMES]
    mutations += [{"remove_on_match": {"key_matcher": {"prefix": prefix}}} for prefix in _STRIPPED_PREFIXES]
    return _filter(
        "strip",
        "envoy.extensions.filters.http.header_mutation.v3.HeaderMutation",
        # A client should not read the fleet's addresses where we are not asked, and a header of ours from nobody.
        mutations={"request_mutations": mutations, "response_mutations": [{"remove": STAGES}]},
    )


def _stages_filter() -> dict[str, Any]:
    told = {"metadata_namespace": OWN_NAMESPACE, "key": STAGES_KEY, "type": "STRING"}
    return _filter(
        "header_to_metadata",
        "envoy.extensions.filters.http.header_to_metadata.v3.Config",
        response_rules=[{"header": STAGES, "on_header_present": told}],
    )


def _ext_proc_filter(settings: EnvoySettings) -> dict[str, Any]:
    return _filter(
        "ext_proc",
        "envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": _EXT_PROC}, "timeout": "0s"},
        processing_mode={
            "request_header_mode": "SEND",
            "request_body_mode": settings.body_mode.value,
            "request_trailer_mode": "SEND" if settings.body_mode is BodyMode.FULL_DUPLEX_STREAMED else "SKIP",
            "response_header_mode": "SEND" if settings.shows_response_headers else "SKIP",
            "response_body_mode": "NONE",
            # Nobody sends trailers; this keeps the stream open, and so its end is the request's end.
            "response_trailer_mode": "SEND",
        },
        message_timeout=_duration(settings.message_timeout_s),
        failure_mode_allow=True,
        allow_mode_override=True,
        metadata_options=_metadata_options(settings),
        # Told apart from our own answers by this code; the client sees 503.
        status_on_error={"code": "BadGateway"},
    )


def _metadata_options(settings: EnvoySettings) -> dict[str, Any]:
    """What Envoy takes from our answers, and what it tells us: who served, where it shows us responses."""
    told = {"forwarding_namespaces": {"untyped": [LB_NAMESPACE]}} if settings.shows_response_headers else {}
    return told | {"receiving_namespaces": {"untyped": [LB_NAMESPACE, OWN_NAMESPACE]}}


def _sse_usage_filter() -> dict[str, Any]:
    rules = [{"rule": rule} for rule in _usage_rules()]
    parser = typed("envoy.extensions.content_parsers.json.v3.JsonContentParser", rules=rules)
    return _filter(
        "sse_to_metadata",
        "envoy.extensions.filters.http.sse_to_metadata.v3.SseToMetadata",
        response_rules={
            "max_event_size": _MAX_SSE_EVENT_BYTES,
            "content_parser": {"name": "envoy.content_parsers.json", "typed_config": parser},
        },
    )


def _json_usage_filter() -> dict[str, Any]:
    return _filter(
        "json_to_metadata",
        "envoy.extensions.filters.http.json_to_metadata.v3.JsonToMetadata",
        response_rules={
            "allow_content_types_regex": {"regex": r"application/json\s*(;.*)?"},
            "rules": _usage_rules(),
        },
    )


def _usage_rules() -> list[dict[str, Any]]:
    return [
        {
            "selectors": [{"key": key} for key in path],
            "on_present": {"metadata_namespace": USAGE_NAMESPACE, "key": name, "type": "NUMBER"},
        }
        for name, path in _USAGE_PATHS
    ]


def _access_log(settings: EnvoySettings) -> dict[str, Any]:
    cluster = _EXT_PROC if settings.access_log_address is None else _ACCESS_LOG
    config = typed(
        "envoy.extensions.access_loggers.grpc.v3.HttpGrpcAccessLogConfig",
        common_config={
            "log_name": LOG_NAME,
            "transport_api_version": "V3",
            "grpc_service": {"envoy_grpc": {"cluster_name": cluster}},
            "buffer_flush_interval": "0.05s",
            "custom_tags": [{"tag": FIRST_BODY_TAG, "value": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:us)%"}],
        },
        additional_request_headers_to_log=["x-request-id"],
    )
    return {"name": "envoy.access_loggers.http_grpc", "typed_config": config}


def _local_replies(settings: EnvoySettings) -> dict[str, Any]:
    """Envoy's own errors in OpenAI's shape.

    An ext_proc immediate answer passes here too; it sets no response flag and is no 502, so that only its 413 is
    rewritten, into what it says anyway.
    """
    unavailable = "service_unavailable_error"
    upstream_fault = {"response_flag_filter": {"flags": list(_UPSTREAM_FAULTS)}}
    timeout = {"and_filter": {"filters": [upstream_fault, _has_status(504)]}}
    too_large = (
        f"the body has more than {settings.max_body_bytes} bytes (routing.maxBodyBytes); send smaller media or links"
    )
    too_slow = f"the whole request did not come within {settings.request_timeout_s:g} s"
    nobody = "no model server could take the request: %RESPONSE_CODE_DETAILS%"
    return {
        "mappers": [
            _error_mapper(_has_status(413), too_large, "invalid_request_error", "request_too_large"),
            _error_mapper(_has_status(408), too_slow, "invalid_request_error", "request_timeout"),
            _error_mapper(timeout, "no model server answered in time", unavailable, "upstream_timeout"),
            _error_mapper(upstream_fault, nobody, unavailable, "upstream_unavailable"),
            _error_mapper(_has_status(502), "the router could not be asked", unavailable, "router_unavailable")
            | {"status_code": 503},
        ]
    }


def _error_mapper(filter_: Mapping[str, Any], message: str, kind: str, code: str) -> dict[str, Any]:
    error = {"message": message, "type": kind, "param": None, "code": code}
    body = {"json_format": {"error": error}, "content_type": "application/json"}
    return {"filter": dict(filter_), "body_format_override": body}


def _has_status(status: int) -> dict[str, Any]:
    # Envoy insists on a runtime key beside the value.
    value = {"default_value": status, "runtime_key": f"tessera.local_reply.{status}"}
    return {"status_code_filter": {"comparison": {"op": "EQ", "value": value}}}


def _filter(name: str, type_: str, **config: Any) -> dict[str, Any]:
    return {"name": name, "typed_config": typed(type_, **config)}


def _duration(seconds: float) -> str:
    return f"{seconds:.6f}s"
