"""Where does Envoy send things: to the endpoints in Tessera's order, and to Tessera's own gRPC servers?"""

import ipaddress
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from tessera.live.extproc.names import DESTINATION, DESTINATION_SERVED, LB_NAMESPACE

ENDPOINTS_CLUSTER: Final = "endpoints"
_WIDE_OPEN: Final = 1_000_000
# uvicorn, and so vLLM, closes a connection after 5 idle seconds: reusing one at that moment loses the request.
_UPSTREAM_IDLE_TIMEOUT: Final = "4s"
_CONNECT_TIMEOUT: Final = "1s"


def endpoints_config(endpoints: Sequence[tuple[str, int]]) -> dict[str, Any]:
    """The content of the endpoints file (EDS) for IP literals and ports; an empty list is allowed."""
    assignment = _load_assignment(ENDPOINTS_CLUSTER, endpoints)
    return {"resources": [typed("envoy.config.endpoint.v3.ClusterLoadAssignment", **assignment)]}


def write_endpoints(path: Path, endpoints: Sequence[tuple[str, int]]) -> None:
    """Write the endpoints file so that Envoy sees either the old or the new list, never half of one."""
    draft = path.with_name(f".{path.name}.new")
    draft.write_text(json.dumps(endpoints_config(endpoints)))
    os.replace(draft, path)


def endpoints_cluster(endpoints: Sequence[tuple[str, int]], eds_path: Path | None, buffer_bytes: int) -> dict[str, Any]:
    """The cluster of the endpoints: Tessera's list in its order, else round robin over those of file or list."""
    cluster: dict[str, Any] = {
        "name": ENDPOINTS_CLUSTER,
        "connect_timeout": _CONNECT_TIMEOUT,
        "per_connection_buffer_limit_bytes": buffer_bytes,
        "load_balancing_policy": _override_host(),
        "typed_extension_protocol_options": _http_options(
            common_http_protocol_options={"idle_timeout": _UPSTREAM_IDLE_TIMEOUT},
            explicit_http_config={"http_protocol_options": {}},
        ),
        "circuit_breakers": _no_circuit_breakers(),
    }
    if eds_path is None:
        return cluster | {"type": "STATIC", "load_assignment": _load_assignment(ENDPOINTS_CLUSTER, endpoints)}
    source = {"path_config_source": {"path": str(eds_path.absolute())}, "resource_api_version": "V3"}
    return cluster | {"type": "EDS", "eds_cluster_config": {"eds_config": source}}


def grpc_cluster(name: str, address: str, buffer_bytes: int) -> dict[str, Any]:
    """A cluster of one gRPC server at ``host:port``; a host that is no IP literal is looked up in DNS."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    return {
        "name": name,
        "type": "STATIC" if is_ip(host) else "STRICT_DNS",
        "connect_timeout": _CONNECT_TIMEOUT,
        "per_connection_buffer_limit_bytes": buffer_bytes,
        "load_assignment": _load_assignment(name, [(host, int(port))]),
        "typed_extension_protocol_options": _http_options(
            explicit_http_config={
                "http2_protocol_options": {
                    "max_concurrent_streams": 2**16,
                    "initial_stream_window_size": 16 * 1024 * 1024,
                    "initial_connection_window_size": 64 * 1024 * 1024,
                }
            }
        ),
        "circuit_breakers": _no_circuit_breakers(),
    }


def typed(type_: str, **config: Any) -> dict[str, Any]:
    """A configuration that names its own message type."""
    return {"@type": f"type.googleapis.com/{type_}", **config}


def socket_address(address: str, port: int) -> dict[str, Any]:
    """An IP literal and a port; port 0 asks the system."""
    return {"socket_address": {"address": address, "port_value": port}}


def is_ip(host: str) -> bool:
    """Whether ``host`` is an IPv4 or IPv6 literal, without brackets."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _override_host() -> dict[str, Any]:
    policies = "envoy.extensions.load_balancing_policies"
    override_host = typed(
        f"{policies}.override_host.v3.OverrideHost",
        override_host_sources=[
            {"metadata": {"key": LB_NAMESPACE, "path": [{"key": DESTINATION}]}},
            {"header": DESTINATION},
        ],
        fallback_policy=_policy("round_robin", typed(f"{policies}.round_robin.v3.RoundRobin")),
        selected_host_key={"key": LB_NAMESPACE, "path": [{"key": DESTINATION_SERVED}]},
    )
    return _policy("override_host", override_host)


def _policy(name: str, config: dict[str, Any]) -> dict[str, Any]:
    extension = {"name": f"envoy.load_balancing_policies.{name}", "typed_config": config}
    return {"policies": [{"typed_extension_config": extension}]}


def _http_options(**options: Any) -> dict[str, Any]:
    name = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {name: typed(name, **options)}


def _no_circuit_breakers() -> dict[str, Any]:
    limits = ("max_connections", "max_pending_requests", "max_requests", "max_retries")
    return {"thresholds": [dict.fromkeys(limits, _WIDE_OPEN)]}


def _load_assignment(cluster: str, endpoints: Sequence[tuple[str, int]]) -> dict[str, Any]:
    lb_endpoints = [{"endpoint": {"address": socket_address(host, port)}} for host, port in endpoints]
    return {"cluster_name": cluster, "endpoints": [{"lb_endpoints": lb_endpoints}]}
