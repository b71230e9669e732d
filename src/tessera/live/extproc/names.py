"""Which names do Envoy's configuration, our ext_proc answers and the reader of the access log share?"""

from typing import Final

from tessera.core.headers import PLAN_HEADERS

DESTINATION: Final = "x-gateway-destination-endpoint"
"""Header and metadata key of the ordered endpoint list, ``ip:port,ip:port``."""
DESTINATION_SERVED: Final = "x-gateway-destination-endpoint-served"
"""Metadata key under which Envoy tells the endpoint that it really used."""
STRIPPED_NAMES: Final = (
    DESTINATION,
    DESTINATION_SERVED,
    *PLAN_HEADERS,
    "x-llm-d-request-dropped-reason",
)
"""Headers that only we may set; client copies are removed."""
STRIPPED_PREFIX: Final = "x-tessera-"
"""Headers that start so are ours, too."""
LB_NAMESPACE: Final = "envoy.lb"
"""Dynamic-metadata namespace of both endpoint keys."""
ATTRIBUTES: Final = "envoy.filters.http.ext_proc"
"""Under which an ext_proc message carries the attributes that the gateway was told to send."""
UPSTREAM_ADDRESS: Final = "upstream.address"
"""Attribute: ``ip:port`` of the endpoint that was used last; Envoy's own name for ``DESTINATION_SERVED``."""
OWN_NAMESPACE: Final = "tessera"
"""Dynamic-metadata namespace of ours: what an ext_proc answer puts there comes back in the access-log entry."""
REQUEST_ID_KEY: Final = "id"
"""Key in ``OWN_NAMESPACE`` of our internal request id."""
STAGES_KEY: Final = "stages"
"""Key in ``OWN_NAMESPACE`` of what the answer's header ``x-tessera-stages`` said."""
USAGE_NAMESPACE: Final = "tessera.usage"
"""Dynamic-metadata namespace of ``prompt_tokens``, ``completion_tokens`` and ``cached_tokens`` of the answer.

Anthropic's answers have ``cache_read_tokens`` and ``cache_written_tokens`` instead of the last, which come on top of
the first.
"""
FIRST_BODY_TAG: Final = "first_body_us"
"""Access-log tag: microseconds from the request's first byte to the answer's first body byte; absent without one."""
LOG_NAME: Final = "tessera"
"""Name of our log in the first message of an access-log stream."""

EXT_PROC_METHOD: Final = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
"""gRPC path of the one ext_proc method, a stream in both directions."""
ACCESS_LOG_METHOD: Final = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
"""gRPC path of the one access-log method, a stream from Envoy."""
