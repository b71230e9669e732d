"""A belief in ten times the encoder cache that engines have comes down by itself; a right one stays."""

import pytest

from tessera.core.matching.mm_embeddings_cache import CACHE_SIZE_EMBEDS, MMEmbeddingsCacheProducer
from tessera.sim.gateway import Gateway
from tessera.sim.run import play, runs_of


@pytest.fixture
def beliefs(monkeypatch):
    """The producer of each router that a gateway is made with."""
    found = []
    make = Gateway.__init__

    def kept(gateway, router, *args, **options):
        found.extend(each for each in router.producers if isinstance(each, MMEmbeddingsCacheProducer))
        make(gateway, router, *args, **options)

    monkeypatch.setattr(Gateway, "__init__", kept)
    return found


def rooms(small, beliefs, tmp_path, size):
    """What each of two endpoints is believed to have room for, after 300 s of photos behind new questions."""
    (tmp_path / "policy.yaml").write_text(
        f"""
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: token-producer
- type: approx-prefix-cache-producer
- type: mm-embeddings-cache-producer
  parameters: {{cacheSizeEmbeds: {size}}}
- type: ttft-cost-producer
- type: ttft-cost-scorer
schedulingProfiles:
- name: default
  plugins: [{{pluginRef: ttft-cost-scorer}}]
"""
    )
    photos = "{type: photos, order: question-first, closing_tokens: 16, catalogue: 200, output_tokens: 8}"
    load = "{{mode: points, rates: [2], duration_s: 300, warm_up: {{duration_s: 5}}}}"
    scenario = small(policies=f"[{tmp_path / 'policy.yaml'}]", workload=photos, load=load)
    play(runs_of(scenario, [0])[0])
    (belief,) = beliefs
    return [belief.room_of(f"10.0.0.{number}:8000") for number in (1, 2)]


def test_ten_times_the_size_comes_down(small, beliefs, tmp_path):
    found = rooms(small, beliefs, tmp_path, 10 * CACHE_SIZE_EMBEDS)
    assert all(CACHE_SIZE_EMBEDS / 2 <= each <= 4 * CACHE_SIZE_EMBEDS for each in found), found


def test_the_right_size_stays(small, beliefs, tmp_path):
    found = rooms(small, beliefs, tmp_path, CACHE_SIZE_EMBEDS)
    assert all(each >= 0.8 * CACHE_SIZE_EMBEDS for each in found), found
