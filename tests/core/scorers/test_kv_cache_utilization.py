import pytest

from tessera.core.scorers.kv_cache_utilization import KVCacheUtilizationScorer


@pytest.mark.parametrize(
    ("usage", "scores"),
    [([0.0, 0.25, 1.0], [1.0, 0.75, 0.0]), ([0.25, None, 0.5], [0.75, 0.5, 0.5]), ([None, None], [1.0, 1.0])],
)
def test_what_is_free(build, usage, scores):
    assert KVCacheUtilizationScorer().score(build.priced(), build.loads(kv_usage_fraction=usage)) == scores
