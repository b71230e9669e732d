"""llm-d's configuration for data-parallel ranks loads unchanged, and each request names its rank."""

import pytest

from tessera.config.load import load_text
from tessera.core.entrance import addresses_of
from tessera.core.errors import ConfigError
from tessera.core.facts import EndpointState, FleetView, Joined, Load
from tessera.core.rng import SeededRng
from tessera.core.router import Router

CONFIG = """
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: data-parallel-profile-handler
  parameters:
    primaryPort: 8000
- type: queue-scorer
- type: max-score-picker
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 2
  - pluginRef: max-score-picker
"""


def test_the_rank_with_the_shortest_queue_is_named(build):
    loaded = load_text(CONFIG)
    assert loaded.missing_plugins == ()
    ranks = [build.endpoint(1, port=8000 + rank) for rank in range(4)]
    loads = [Load(num_waiting=number, num_running=0, at=0.0) for number in (3, 2, 0, 1)]
    view = FleetView(tuple(map(EndpointState, ranks, loads)))
    for each in ranks:
        loaded.router.observe(Joined(at=0.0, endpoint=each))
    headers = {":path": "/v1/chat/completions"}
    body = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'
    request, _ = Router.read(body, headers, loaded.profile, request_id="r", at=0.0, wall_at=0.0)
    decision = loaded.router.decide(request, view, 0.0, SeededRng(0, "r"))
    assert decision.plan == {"default": "10.0.0.1:8002"}
    assert addresses_of(decision) == ("10.0.0.1:8000",)
    assert loaded.router.request_headers(decision) == {"x-data-parallel-host-port": "10.0.0.1:8002"}


def test_several_profiles_are_refused():
    text = CONFIG + "- name: other\n  plugins:\n  - pluginRef: max-score-picker\n"
    with pytest.raises(ConfigError, match="the handler runs one profile, and there are default, other; leave one"):
        load_text(text)
