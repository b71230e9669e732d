"""Which numbers may YAML say? The last that is taken, and the first that is not."""

import json
from functools import reduce

import pytest
from pydantic import TypeAdapter, ValidationError

from tessera.config.discover import discover
from tessera.core.plugin import configurable_types

discover()

BOUNDS = [
    # type, parameter, taken, refused
    ("queue-scorer", "", {}, {"threshold": 1}),
    ("load-aware-scorer", "threshold", 1, 0),
    ("token-load-scorer", "queueThresholdTokens", 1, 0),
    ("active-request-scorer", "idleThreshold", 0, -1),
    ("active-request-scorer", "maxBusyScore", 0.0, -0.1),
    ("active-request-scorer", "maxBusyScore", 1.0, 1.1),
    ("max-score-picker", "maxNumOfEndpoints", 1, 0),
    ("random-picker", "maxNumOfEndpoints", 1, 0),
    ("weighted-random-picker", "maxNumOfEndpoints", 1, 0),
    ("concurrency-detector", "maxConcurrency", 1, 0),
    ("concurrency-detector", "maxTokenConcurrency", 1, 0),
    ("concurrency-detector", "headroom", 0.0, -0.1),
    ("concurrency-detector", "concurrencyMode", "hybrid", "both"),
    ("utilization-detector", "queueDepthThreshold", 1, 0),
    ("utilization-detector", "kvCacheUtilThreshold", 1.0, 1.1),
    ("utilization-detector", "kvCacheUtilThreshold", 0.01, 0.0),
    ("utilization-detector", "metricsStalenessThreshold", "0", "-1s"),
    ("utilization-detector", "headroom", 0.0, -0.1),
    ("cached-media-filter", "maxUuidsPerEndpoint", 1, 0),
    ("prefix-cache-affinity-filter", "affinityThreshold", 1.0, 1.1),
    ("prefix-cache-affinity-filter", "affinityThreshold", -1.0, "0.8"),
    ("prefix-cache-affinity-filter", "explorationProbability", 1, 1.1),
    ("prefix-cache-affinity-filter", "explorationProbability", 0, -0.1),
    ("prefix-cache-affinity-filter", "maxTTFTPenaltyMs", 0, -1),
    ("prefix-cache-affinity-filter", "peakPrefillThroughput", 0.1, 0),
    ("prefix-cache-affinity-filter", "ttftSource", "latencyPredictor", "predictor"),
    ("mm-embeddings-cache-producer", "cacheSizeEmbeds", 1, 0),
    ("mm-embeddings-cache-producer", "cacheSizeInMBPerServer", 1, 0),
    ("mm-embeddings-cache-scorer", "weighBy", "count", "size"),
    ("inflight-load-producer", "outputRatio", 0.0, -0.1),
    ("inflight-load-producer", "maxEstimatedOutputTokens", 0, -1),
    ("approx-prefix-cache-producer", "blockSizeTokens", 0, -1),
    ("approx-prefix-cache-producer", "maxPrefixTokensToMatch", 0, -1),
    ("approx-prefix-cache-producer", "maxPrefixBlocksToMatch", 0, -1),
    ("approx-prefix-cache-producer", "lruCapacityPerServer", 1, 0),
    ("approx-prefix-cache-producer", "capacityUnit", "indexBlocks", "blocks"),
    ("prefix-cache-scorer", "matchLengthWeight", 0.0, -0.1),
    ("prefix-cache-scorer", "matchLengthWeight", 1.0, 1.1),
    ("prefix-cache-scorer", "matchLengthScaleTokens", 1, 0),
    ("no-hit-lru-scorer", "lruSize", 1, 0),
    ("session-affinity-filter", "strategy", "session_id", "cookie"),
    ("session-affinity-scorer", "sessionIdConfig.evictionTtlSeconds", 1, 0),
    ("session-affinity-scorer", "sessionIdConfig.evictionSweepSeconds", 1, 0),
    ("session-affinity-scorer", "encodedEndpointHeaderConfig.header", "x-a", 1),
    ("token-producer", "estimate.image.mode", "static", "dynamics"),
    ("token-producer", "estimate.image.dynamic.factor", 1, 0),
    ("token-producer", "estimate.image.static.staticToken", 1, 0),
    ("token-producer", "estimate.image.defaultResolution.width", 1, 0),
    ("token-producer", "estimate.video.defaultDuration", 0.1, 0.0),
    ("token-producer", "estimate.video.maxVideoTokens", 0, -1),
    ("token-producer", "estimate.video.frames.minFrames", 0, -1),
    ("token-producer", "estimate.video.frames.maxFrames", 0, -1),
    ("token-producer", "estimate.video.frames.sampled.sampleFPS", 0.1, 0.0),
    ("token-producer", "estimate.video.frames.sampled.temporalPatchSize", 1, 0),
    ("token-producer", "estimate.video.frames.strided.frameStride", 1, 0),
    ("token-producer", "estimate.video.frames.strided.defaultSourceFPS", 0.1, 0.0),
    ("token-producer", "estimate.video.tokensPerFrame.static.numTokensPerFrame", 1, 0),
    ("token-producer", "estimate.video.tokensPerFrame.mode", "static", "sampled"),
]


def decode(type_name, path, value):
    keys = path.split(".") if path else []
    parameters = reduce(lambda inner, key: {key: inner}, reversed(keys), value)
    return TypeAdapter(configurable_types()[type_name]).validate_json(json.dumps(parameters))


@pytest.mark.parametrize(("type_name", "path", "taken", "refused"), BOUNDS)
def test_bounds(type_name, path, taken, refused):
    assert decode(type_name, path, taken)
    with pytest.raises(ValidationError):
        decode(type_name, path, refused)
