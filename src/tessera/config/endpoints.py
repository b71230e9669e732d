"""Which endpoints does a file name? llm-d's file-discovery document, and three ports of ours."""

from collections.abc import Mapping
from dataclasses import field
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from tessera.config import document
from tessera.config.blocks import decode, nearest, seen
from tessera.core.errors import ConfigError, Problem
from tessera.core.plugin import Range, params
from tessera.core.types import Endpoint


def _literal(text: str) -> str:
    """An IP address as text, in its shortest spelling."""
    try:
        if "%" in text:
            raise ValueError(text)
        return str(ip_address(text))
    except ValueError:
        raise ValueError(f"got {seen(text)}, expected an IPv4 or IPv6 address; host names are not looked up") from None


def _port(value: Any) -> Any:
    """llm-d writes ports as text; a number is as good."""
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 5:
        return int(value)
    return value


Port = Annotated[int, Range(ge=1, le=65535), BeforeValidator(_port)]
OptionalPort = Annotated[int | None, Range(ge=1, le=65535), BeforeValidator(_port)]


@params
class EndpointEntry:
    """One endpoint of the document."""

    address: Annotated[str, AfterValidator(_literal)]
    """An IPv4 or IPv6 address."""
    port: Port
    name: str = ""
    namespace: str = "default"
    labels: Mapping[str, str] = field(default_factory=dict)
    metrics_port: OptionalPort = None
    """Where the metrics page is, if not at ``port``."""
    kv_events_port: OptionalPort = None
    """Where the engine publishes KV events."""
    kv_replay_port: OptionalPort = None
    """Where the engine replays KV events."""


def read_endpoints_file(path: Path) -> tuple[list[Endpoint], list[Problem]]:
    """The endpoints in a file of at most 1 MiB; as ``read_endpoints``."""
    return read_endpoints(document.read_file(path))


def read_endpoints(text: str) -> tuple[list[Endpoint], list[Problem]]:
    """The endpoints of a document in its order, and why each of the others was skipped.

    An ``ip:port`` that was there before is skipped.

    Raises:
        ConfigError: the text is no such document; whoever watches the file keeps the old endpoints.
    """
    data = document.parse(text)
    if not isinstance(data, dict) or "endpoints" not in data:
        expected = "expected a mapping with a list named endpoints: is this the endpoints file?"
        raise ConfigError([Problem("", f"got {_shape(data)}, {expected}")])
    items = data["endpoints"] or []
    if not isinstance(items, list):
        raise ConfigError([Problem("endpoints", f"got {seen(items)}, expected a list")])
    if unknown := [key for key in data if key != "endpoints"]:
        raise ConfigError([Problem(key, f"unknown key{nearest(key, ['endpoints'])}") for key in unknown[:10]])
    found: dict[str, Endpoint] = {}
    problems: list[Problem] = []
    for index, item in enumerate(items):
        path = f"endpoints[{index}]"
        entry, faults = decode(EndpointEntry, item, path)
        problems += faults
        if entry is None:
            continue
        endpoint = _endpoint(entry)
        if endpoint.id in found:
            problems.append(Problem(path, f"{endpoint.id} stands twice; the first one counts"))
        else:
            found[endpoint.id] = endpoint
    return list(found.values()), problems


def _shape(data: Any) -> str:
    return f"a mapping of {', '.join(list(data)[:5]) or 'nothing'}" if isinstance(data, dict) else seen(data)


def _endpoint(entry: EndpointEntry) -> Endpoint:
    return Endpoint(
        address=entry.address,
        port=entry.port,
        name=entry.name,
        namespace=entry.namespace,
        labels=dict(entry.labels),
        metrics_port=entry.metrics_port,
        kv_events_port=entry.kv_events_port,
        kv_replay_port=entry.kv_replay_port,
    )
