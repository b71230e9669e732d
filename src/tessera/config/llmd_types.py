"""Which plugin types does llm-d have, so that one we lack is told from a spelling mistake?

Source: llm-d-router at ebab687927f5, August 2026.
"""

from types import MappingProxyType

_NAMES = {
    "admitter": "latency-slo-admitter probabilistic-admitter",
    "decider": "always-disagg-multimodal-decider always-disagg-pd-decider prefix-based-pd-decider",
    "discovery": "file-discovery multicluster-file-discovery",
    "extractor": "core-metrics-extractor dcgm-extractor models-data-extractor multicluster-metrics-extractor"
    " topology-extractor",
    "filter": "by-label by-label-selector concurrency-detector decode-filter encode-filter endpoint-attribute-filter"
    " header-based-testing-filter label-selector-filter multicluster-session-affinity-filter prefill-filter"
    " prefix-cache-affinity-filter session-affinity-filter slo-headroom-tier-filter topology-affinity-filter"
    " utilization-detector utilization-filter",
    "handler": "data-parallel-profile-handler disagg-profile-handler header-profile-handler pd-profile-handler"
    " single-profile-handler",
    "parser": "anthropic-parser openai-parser passthrough-parser sglanghttp-parser vertexai-parser vllmgrpc-parser"
    " vllmhttp-parser",
    "picker": "max-score-picker random-picker weighted-random-picker",
    "policy": "edf-ordering-policy fcfs-ordering-policy global-strict-fairness-policy"
    " priority-holdback-policy priority-then-time-eviction-order-policy program-aware-fairness"
    " round-robin-fairness-policy sheddable-eviction-filter slo-deadline-ordering-policy"
    " soft-reflective-ceiling-policy static-usage-limit-policy",
    "producer": "approx-prefix-cache-producer burst-prefix-cache-producer inflight-load-producer"
    " mm-embeddings-cache-producer multicluster-approx-prefix-cache-producer p2p-source-producer"
    " precise-prefix-cache-producer predicted-latency-producer session-id-producer token-producer tokenizer",
    "request hook": "agent-identity destination-endpoint-served-verifier disagg-headers-handler"
    " disaggregatedset-rollout-screener prefill-header-handler request-attribute-reporter",
    "scorer": "active-request-scorer context-length-aware endpoint-attribute-scorer header-label-affinity-scorer"
    " kv-cache-utilization-scorer latency-scorer load-aware-scorer lora-affinity-scorer mm-embeddings-cache-scorer"
    " multicluster-kv-cache-utilization-scorer multicluster-prefix-cache-scorer multicluster-queue-scorer"
    " no-hit-lru-scorer precise-prefix-cache-scorer prefix-cache-scorer queue-scorer running-requests-size-scorer"
    " session-affinity-scorer token-load-scorer topology-affinity-scorer",
    "source": "dcgm-data-source endpoint-notification-source k8s-notification-source metrics-data-source"
    " models-data-source multicluster-metrics-data-source",
    "syncer": "local-syncer",
}
LLMD_TYPES = MappingProxyType({name: kind for kind, names in _NAMES.items() for name in names.split()})
"""Kind of each of llm-d's types, by type name."""
