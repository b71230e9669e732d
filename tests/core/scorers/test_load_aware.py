import pytest

from tessera.core.scorers.load_aware import LoadAwareScorer


@pytest.mark.parametrize(
    ("threshold", "waiting", "scores"),
    [
        (128, [0, 1, 64, 128, 500], [0.5, 0.49609375, 0.25, 0.0, 0.0]),
        (4, [1, 3, None], [0.375, 0.125, 0.125]),
        (128, [None], [0.5]),
    ],
)
def test_half_of_what_is_below_the_threshold(build, threshold, waiting, scores):
    candidates = build.loads(num_waiting=waiting)
    assert LoadAwareScorer(threshold=threshold).score(build.priced(), candidates) == scores
    assert LoadAwareScorer().threshold == 128
