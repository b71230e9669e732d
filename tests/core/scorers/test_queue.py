import pytest

from tessera.core.scorers.queue import QueueScorer


@pytest.mark.parametrize(
    ("waiting", "scores"),
    [
        ([0, 1, 4], [1.0, 0.75, 0.0]),
        ([5, 5], [1.0, 1.0]),
        ([7], [1.0]),
        ([0, 0, 0], [1.0, 1.0, 1.0]),
        ([2, None, 6], [1.0, 0.0, 0.0]),
        ([None, None], [1.0, 1.0]),
        ([3, None], [1.0, 1.0]),
    ],
)
def test_share_of_the_way_to_the_longest_queue(build, waiting, scores):
    assert QueueScorer().score(build.priced(), build.loads(num_waiting=waiting)) == scores


def test_of_nobody_there_is_no_score(build):
    assert QueueScorer().score(build.priced(), []) == []
