import pytest

from tessera.core.scorers.running_requests_size import RunningRequestsSizeScorer


@pytest.mark.parametrize(
    ("running", "scores"),
    [([10, 4, 2], [0.0, 0.75, 1.0]), ([9, 9], [1.0, 1.0]), ([1, None, 3], [1.0, 0.0, 0.0])],
)
def test_share_of_the_way_to_the_busiest(build, running, scores):
    candidates = build.loads(num_running=running, num_waiting=[100 * number for number in range(len(running))])
    assert RunningRequestsSizeScorer().score(build.priced(), candidates) == scores
