"""Which values does the metrics page ask for when it is read, and of whom?"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from tessera.core.facts import EndpointState
from tessera.core.fleet import Fleet
from tessera.core.matching.first_token import FirstTokenTracker
from tessera.core.matching.inflight_load import InflightLoadProducer
from tessera.core.matching.mm_embeddings_cache import MMEmbeddingsCacheProducer
from tessera.core.matching.ttft_cost import TTFTCostProducer
from tessera.core.pricing.token import TokenProducer
from tessera.core.router import Router
from tessera.core.types import FirstTokenSource
from tessera.live.extproc.budget import BodyBudget
from tessera.live.open_requests import OpenRequests
from tessera.telemetry.metrics import GaugeFamily

MODEL_MODALITY = ("model", "modality")


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterGauges:
    """The fleet, what is in flight, and how good the price is; one row for each endpoint there is."""

    fleet: Fleet
    router: Router
    first_tokens: FirstTokenTracker
    open: OpenRequests
    budget: BodyBudget
    clock: Callable[[], float]

    def __call__(self) -> Iterator[GaugeFamily]:
        """Each family as it is now."""
        states = self.fleet.view().endpoints
        yield "llm_d_epp_ready_endpoints", "Endpoints in the pool.", ("name",), [(("pool",), float(len(states)))]
        yield from self._loads(states)
        yield from self._in_flight(states)
        yield from _prices(self.router)
        yield from _speeds(self.router)
        yield from self._encoder_caches(states)
        yield "tessera_bodies_held_bytes", "Bytes of bodies being read.", (), [((), float(self.budget.held_bytes))]

    def _loads(self, states: tuple[EndpointState, ...]) -> Iterator[GaugeFamily]:
        now = self.clock()
        loads = [(state.endpoint.id, state.load) for state in states]
        ages = [((name,), now - load.at) for name, load in loads if load.at is not None]
        yield "tessera_metrics_age_seconds", "Age of each endpoint's last scrape.", ("endpoint",), ages
        waiting = [((name,), float(load.num_waiting)) for name, load in loads if load.num_waiting is not None]
        yield "tessera_endpoint_waiting_requests", "Waiting, by the engine's page.", ("endpoint",), waiting
        running = [((name,), float(load.num_running)) for name, load in loads if load.num_running is not None]
        yield "tessera_endpoint_running_requests", "Running, by the engine's page.", ("endpoint",), running
        usage = [((name,), load.kv_usage_fraction) for name, load in loads if load.kv_usage_fraction is not None]
        yield "tessera_endpoint_kv_usage_fraction", "KV cache in use, 0..1.", ("endpoint",), usage

    def _in_flight(self, states: tuple[EndpointState, ...]) -> Iterator[GaugeFamily]:
        sources = [
            ((state.endpoint.id, str(source)), float(source is self.first_tokens.source_of(state.endpoint.id)))
            for state in states
            for source in FirstTokenSource
        ]
        yield "tessera_first_token_source", "1 for the source in use.", ("endpoint", "source"), sources
        ledgers = [m for m in self.router.memories if isinstance(m, InflightLoadProducer)][:1]
        in_flight = [(state.endpoint.id, each.load_of(state.endpoint.id)) for each in ledgers for state in states]
        requests = [((name,), float(load.num_requests)) for name, load in in_flight]
        yield "tessera_inflight_requests", "Requests sent and not ended.", ("endpoint",), requests
        tokens = [((name,), float(load.num_uncached_tokens)) for name, load in in_flight]
        yield "tessera_inflight_tokens", "Uncached tokens before their first token.", ("endpoint",), tokens
        yield "llm_d_epp_request_running", "Requests sent and not ended.", (), [((), float(len(self.open)))]

    def _encoder_caches(self, states: tuple[EndpointState, ...]) -> Iterator[GaugeFamily]:
        beliefs = [each for each in self.router.producers if isinstance(each, MMEmbeddingsCacheProducer)][:1]
        pairs = [(belief, state.endpoint.id) for belief in beliefs for state in states]
        held = [((name,), float(belief.num_embeds_of(name))) for belief, name in pairs]
        yield "tessera_encoder_cache_embeds", "Embeddings that it is believed to hold.", ("endpoint",), held
        room = [((name,), float(belief.room_of(name))) for belief, name in pairs]
        text = "Embeddings that its cache is believed to have room for; slow first tokens behind hits shrink it."
        yield "tessera_encoder_cache_room_embeds", text, ("endpoint",), room


def pricing_table(router: Router) -> list[dict[str, Any]]:
    """How far the price is from what engines count, one row for each model and modality."""
    return router.pricer.table() if isinstance(router.pricer, TokenProducer) else []


def _prices(router: Router) -> Iterator[GaugeFamily]:
    priced = [row for row in pricing_table(router) if "bias" in row]
    biases = [((row["model"], row["modality"]), row["bias"]) for row in priced]
    yield "tessera_estimate_bias", "Typical price over what the engine counted, less 1.", MODEL_MODALITY, biases
    errors = [((row["model"], row["modality"]), row["error_factor"]) for row in priced]
    yield "tessera_estimate_error_factor", "Typical error, as a factor of at least 1.", MODEL_MODALITY, errors


def _speeds(router: Router) -> Iterator[GaugeFamily]:
    producers = [each for each in router.producers if isinstance(each, TTFTCostProducer)][:1]
    known = [row for producer in producers for row in producer.speeds()]
    factors = [
        ((group, work), factor)
        for group, speed, _ in known
        for work, factor in (("prefill", speed.prefill_factor), ("media", speed.media_factor))
    ]
    text = "Learned seconds of work over those by the configured rates."
    yield "tessera_ttft_speed_factor", text, ("group", "work"), factors
    fixed = [((group,), speed.fixed_s) for group, speed, _ in known]
    yield "tessera_ttft_fixed_seconds", "Learned part of the time to first token that is no work.", ("group",), fixed
    samples = [((group,), float(number)) for group, _, number in known]
    yield "tessera_ttft_speed_samples", "First tokens that these stand on.", ("group",), samples
