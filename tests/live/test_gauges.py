"""Each family of the page as an operator reads it."""

from dataclasses import replace

import pytest

from tessera.core.facts import Joined, Load, Scraped
from tessera.core.matching.mm_embeddings_cache import MMEmbeddingsCacheProducer
from tessera.core.matching.speed import Sample
from tessera.core.matching.ttft_cost import TTFTCostProducer
from tessera.core.types import ModelProfile
from tessera.live.extproc.budget import BodyBudget
from tessera.live.gauges import pricing_table
from tessera.live.service import RouterService


def service_of(build, router, at=10.0):
    budget = BodyBudget(limit_bytes=1 << 30, per_body_bytes=1 << 26)
    return RouterService(router, ModelProfile(), seed=7, budget=budget, clock=lambda: at, wall_clock=lambda: 0.0)


def rows(service):
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in service.metrics.registry.collect()
        for sample in family.samples
        if family.type == "gauge"
    }


def test_the_fleet_and_what_is_in_flight(build):
    service = service_of(build, build.router())
    known, unknown = build.endpoint(1), build.endpoint(2)
    for endpoint in (known, unknown):
        service.observe(Joined(at=0.0, endpoint=endpoint))
    load = Load(num_waiting=3, num_running=4, kv_usage_fraction=0.5, at=7.5)
    service.observe(Scraped(at=8.0, endpoint_id=known.id, load=load))
    winner = service.decide(build.text_request(40), 10.0).primary_stage.winner.id
    found = rows(service)
    assert found["llm_d_epp_ready_endpoints", "pool"] == 2
    assert found["tessera_metrics_age_seconds", known.id] == 2.5
    assert found["tessera_endpoint_waiting_requests", known.id] == 3
    assert found["tessera_endpoint_running_requests", known.id] == 4
    assert found["tessera_endpoint_kv_usage_fraction", known.id] == 0.5
    assert not any(name.startswith(("tessera_endpoint", "tessera_metrics")) for name, *of in found if unknown.id in of)
    sources = {source: found["tessera_first_token_source", winner, source] for source in ("body", "counter")}
    assert sources == {"body": 0, "counter": 0}
    assert found["tessera_first_token_source", winner, "predicted"] == 1
    assert found["tessera_inflight_requests", winner] == 1
    assert found["tessera_inflight_tokens", winner] == 40
    assert found["llm_d_epp_request_running",] == 1
    assert found["tessera_bodies_held_bytes",] == 0
    service.close()


def test_how_fast_endpoints_were_found_to_be(build):
    """Text at half the configured 10,000 tokens a second, 0.2 s for every request."""
    producer = TTFTCostProducer(prefill_tokens_per_s=10_000.0)
    for tokens in range(1000, 5000, 100):
        producer._learned.add(Sample(group="", num_tokens=tokens, media_s=0.0, ttft_s=0.2 + tokens / 5000))
    router = build.router()
    service = service_of(build, replace(router, producers=(*router.producers, producer)))
    found = rows(service)
    assert found["tessera_ttft_speed_factor", "", "prefill"] == pytest.approx(2.0)
    assert found["tessera_ttft_speed_factor", "", "media"] == pytest.approx(2.0)
    assert found["tessera_ttft_fixed_seconds", ""] == pytest.approx(0.2)
    assert found["tessera_ttft_speed_samples", ""] == 40
    service.close()


def test_what_an_encoder_cache_is_believed_to_hold_and_to_have_room_for(build):
    belief = MMEmbeddingsCacheProducer(cache_size_embeds=1000)
    router = build.router()
    service = service_of(build, replace(router, producers=(*router.producers, belief)))
    endpoint = build.endpoint(1)
    service.observe(Joined(at=0.0, endpoint=endpoint))
    belief._held.enter(endpoint.id, {"a": 300, "b": 400}, "r1")
    belief._held.resize(endpoint.id, 0.5, 0.1)
    found = rows(service)
    assert found["tessera_encoder_cache_embeds", endpoint.id] == 400
    assert found["tessera_encoder_cache_room_embeds", endpoint.id] == 500
    service.close()


def test_an_empty_fleet_has_no_rows_of_endpoints(build):
    service = service_of(build, build.router())
    assert rows(service) == {
        ("llm_d_epp_ready_endpoints", "pool"): 0,
        ("llm_d_epp_request_running",): 0,
        ("tessera_bodies_held_bytes",): 0,
    }
    assert pricing_table(service.router) == service.pricing_table() == []
    service.close()
