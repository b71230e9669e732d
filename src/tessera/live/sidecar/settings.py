"""What was a sidecar told?"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from tessera.core.flow.settings import FlowSettings
from tessera.core.work import Work

MAX_BODY_BYTES: Final = 64 << 20
"""Of one request, as in the router."""
MAX_BODIES_BYTES: Final = 4 << 30
"""Of all requests whose stages run apart, together."""


class ECConnectorName(StrEnum):
    """llm-d's words for how embeddings are handed over."""

    EXAMPLE = "ec-example"
    NIXL = "ec-nixl"


@dataclass(frozen=True, slots=True, kw_only=True)
class SidecarSettings:
    """Ports, connectors, limits; every time in seconds."""

    bind: str = "127.0.0.1"
    port: int = 8000
    """Of rank 0; rank i listens on port + i. 0 asks the system for each."""
    model_host: str = "127.0.0.1"
    model_port: int = 8200
    """Of rank 0's engine; rank i's is on model_port + i."""
    num_ranks: int = 1
    ec: ECConnectorName | None = None
    """Without it nothing is encoded elsewhere."""
    cert_path: Path | None = None
    """A folder with tls.crt and tls.key: clients must speak TLS."""
    tls_stages: frozenset[Work] = frozenset()
    """The stages whose servers speak TLS."""
    unverified_stages: frozenset[Work] = frozenset()
    """Of these, the stages whose certificates are not checked."""
    endpoints_path: Path | None = None
    """Only servers in this file may be asked to encode or prefill; without it, whomever a header names."""
    samples_prefillers: bool = False
    """Try the prefillers that a header names in random order."""
    metrics_port: int | None = None
    is_tracing: bool = False
    """Send a span for each request and each of its legs; needs the extra ``otel``."""
    flow: FlowSettings = field(default_factory=FlowSettings)
    connect_timeout_s: float = 3.0
    idle_timeout_s: float | None = None
    """How long the engine may send nothing; nothing: as long as the request may take."""
    client_idle_timeout_s: float = 60.0
    """How long a client may send nothing in the middle of its body; 408 then."""
    drain_timeout_s: float = 60.0
    """How long requests in flight may go on after the end was asked for; as llm-d's sidecar."""
    max_body_bytes: int = MAX_BODY_BYTES
    max_bodies_bytes: int = MAX_BODIES_BYTES
