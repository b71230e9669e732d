"""What may stand in an EndpointPickerConfig, above the parameters of its plugins?

Everything is llm-d's but ``routing``. Each block is decoded strictly by
``blocks.decode``; the parameters of a plugin are those of its class, and the types
that are no classes of ``core`` are in ``declarations``.
"""

from dataclasses import field
from typing import Annotated, Any

from pydantic import Field

from tessera.config.quantities import AsQuantity, Quantity
from tessera.core.plugin import GoDuration, Range, params

KIND = "EndpointPickerConfig"
API_VERSION = "llm-d.ai/v1alpha1"
"""The version that an effective configuration is written in."""

FEATURE_GATES = {"flowControl": False, "haPopulateNonLeaderDatastore": True}
"""llm-d's feature gates and whether each is on where the file does not say."""

Seconds = Annotated[float, GoDuration()]
Text = Annotated[str, Field(min_length=1)]


@params
class PluginEntry:
    """One plugin instance."""

    type: Text
    """The plugin's type name."""
    name: str = ""
    """By what other parts refer to it; the type where it is left out."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """The parameters of its type."""


@params
class Reference:
    """One plugin, by its name."""

    plugin_ref: Text
    """The plugin's ``name``."""


@params
class ProfileEntry:
    """A filter, scorer or picker of a profile."""

    plugin_ref: Text
    """The plugin's ``name``."""
    weight: float | None = None
    """By what a scorer's score is multiplied; 1 where it is left out."""


@params
class ProfileSpec:
    """A pipeline: filters in the order of the list, then all scorers, then the picker."""

    name: Text
    """By what a profile handler refers to it."""
    plugins: tuple[ProfileEntry, ...] = ()
    """What the profile runs."""


@params
class SourceSpec:
    """A source of data about endpoints, and what reads it."""

    plugin_ref: Text
    """The source's ``name``."""
    extractors: tuple[Reference, ...] = ()
    """Extractors that turn its data into facts."""


@params
class DataLayerSpec:
    """Where data about endpoints comes from."""

    inject_defaults: bool = True
    """Whether the metrics source and its extractor are added where no metrics source is listed."""
    sources: tuple[SourceSpec, ...] = ()
    discovery: Reference | None = None
    """Where endpoints come from, outside Kubernetes."""
    peer_discovery: Reference | None = None
    cross_replica_syncer_plugin_ref: str | None = None
    cross_replica_sync_interval: Seconds = 0.2


@params
class PriorityBand:
    """Limits and policies of the requests of one priority."""

    priority: int = 0
    max_bytes: Quantity = 0
    """Bytes queued; 0: llm-d's default of 1 GB."""
    max_requests: Quantity = 0
    """Requests queued; 0: llm-d's default of 5000."""
    fairness_policy_ref: str | None = None
    ordering_policy_ref: str | None = None


@params
class FlowControlSpec:
    """Queueing before the decision; without the gate ``flowControl`` only the detector counts."""

    max_bytes: Quantity = 0
    """Bytes queued in all; 0: no limit."""
    max_requests: Quantity = 0
    """Requests queued in all; 0: no limit."""
    default_request_ttl: Annotated[float, GoDuration(), Field(alias="defaultRequestTTL")] = 60.0
    """How long a request may wait while there are endpoints."""
    no_endpoint_request_ttl: Annotated[float | None, GoDuration(), Field(alias="noEndpointRequestTTL")] = None
    """How long a request may wait while there are none; the former where it is left out."""
    default_priority_band: PriorityBand | None = None
    default_negative_priority_band: PriorityBand | None = None
    priority_bands: tuple[PriorityBand, ...] = ()
    usage_limit_policy_plugin_ref: str | None = None
    saturation_detector: Reference | None = None
    """What says that the pool is full."""
    enable_eviction: bool = False


@params
class RequestHandlerSpec:
    """How bodies are read."""

    parsers: tuple[Reference, ...] = ()
    """Parsers; the one that claims the longest suffix of the path reads the body."""


@params
class RoutingSpec:
    """What is Tessera's own: the list of endpoints, and how much of bodies is held."""

    fallbacks: Annotated[int, Range(ge=0, le=64)] = 2
    """Endpoints listed behind the winner, which the proxy tries in turn."""
    max_body_bytes: Annotated[int, Range(ge=1, le=(1 << 31) - 1), AsQuantity] = 64 << 20
    """A longer request body is answered 413; gRPC counts messages in 31 bits."""
    max_bodies_in_flight_bytes: Annotated[int, Range(ge=1), AsQuantity] = 4 << 30
    """Where the bodies being read sum up to more, a request is answered 503."""
    seed: int = 0
    """Ties break the same way for the same seed and request id."""


@params
class Envelope:
    """An EndpointPickerConfig, legacy spellings rewritten."""

    api_version: str = API_VERSION
    kind: str = KIND
    feature_gates: tuple[str, ...] = ()
    """``name``, ``name=true`` or ``name=false``."""
    plugins: tuple[PluginEntry, ...] = ()
    scheduling_profiles: tuple[ProfileSpec, ...] = ()
    data_layer: DataLayerSpec = DataLayerSpec()
    flow_control: FlowControlSpec = FlowControlSpec()
    request_handler: RequestHandlerSpec = RequestHandlerSpec()
    routing: RoutingSpec = RoutingSpec()
