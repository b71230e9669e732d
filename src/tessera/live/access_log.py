"""What does Envoy's access log say came of a request?"""

from collections.abc import Iterator, Mapping
from typing import Any

from tessera.core.types import Usage
from tessera.live.extproc import access_log_pb2 as pb
from tessera.live.extproc.names import FIRST_BODY_TAG, OWN_NAMESPACE, REQUEST_ID_KEY, STAGES_KEY, USAGE_NAMESPACE
from tessera.live.open_requests import LogEntry

MAX_COUNT = 1 << 40
"""A larger token count is no token count."""


def read_entries(message: pb.StreamAccessLogsMessage) -> Iterator[LogEntry]:
    """The entries of requests that we decided; others (fail-open traffic, other listeners) are passed over."""
    for entry in message.http_logs.log_entry:
        request_id = _metadata(entry, OWN_NAMESPACE).get(REQUEST_ID_KEY)
        if isinstance(request_id, str) and not entry.common_properties.intermediate_log_entry:
            stages = _metadata(entry, OWN_NAMESPACE).get(STAGES_KEY)
            yield _read(entry, request_id, stages if isinstance(stages, str) else None)


def _read(entry: pb.HTTPAccessLogEntry, request_id: str, stages: str | None) -> LogEntry:
    common = entry.common_properties
    flags = common.response_flags
    has_status = entry.response.HasField("response_code")
    return LogEntry(
        request_id=request_id,
        status=(entry.response.response_code.value or None) if has_status else None,
        endpoint=_endpoint(common.upstream_remote_address),
        usage=_usage(_metadata(entry, USAGE_NAMESPACE)),
        first_body_s=_microseconds(common.custom_tags.get(FIRST_BODY_TAG, "")),
        num_attempts=common.upstream_request_attempt_count or None,
        client_left=flags.downstream_connection_termination or flags.downstream_remote_reset,
        upstream_failed=(
            flags.upstream_connection_failure
            or flags.upstream_connection_termination
            or flags.upstream_remote_reset
            or flags.upstream_protocol_error
            or flags.upstream_retry_limit_exceeded
            or flags.no_healthy_upstream
        ),
        stages=stages,
    )


def _metadata(entry: pb.HTTPAccessLogEntry, namespace: str) -> Mapping[str, Any]:
    known = entry.common_properties.metadata.filter_metadata
    # A protobuf map makes what it is asked for, so ask whether it is there first.
    return dict(known[namespace]) if namespace in known else {}


def _endpoint(address: pb.Address) -> str | None:
    if address.WhichOneof("address") != "socket_address":
        return None
    socket = address.socket_address
    host = f"[{socket.address}]" if ":" in socket.address else socket.address
    return f"{host}:{socket.port_value}"


def _usage(values: Mapping[str, Any]) -> Usage | None:
    prompt = _count(values, "prompt_tokens")
    if prompt is None:
        return None
    cached, read = _count(values, "cached_tokens"), _count(values, "cache_read_tokens")
    return Usage(
        prompt_tokens=prompt + (read or 0) + (_count(values, "cache_written_tokens") or 0),
        completion_tokens=_count(values, "completion_tokens"),
        cached_tokens=read if cached is None else cached,
    )


def _count(values: Mapping[str, Any], key: str) -> int | None:
    value = values.get(key)
    return int(value) if isinstance(value, float) and 0 <= value <= MAX_COUNT else None


def _microseconds(text: str) -> float | None:
    return int(text) / 1e6 if text.isascii() and text.isdigit() and len(text) < 16 else None
