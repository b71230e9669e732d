import pytest

from tessera.core.facts import InFlightLoad
from tessera.core.scorers.active_request import ActiveRequestScorer
from tessera.core.types import Candidate


@pytest.mark.parametrize(
    ("parameters", "requests", "scores"),
    [
        ({}, [0, 1, 2, 4], [1.0, 0.75, 0.5, 0.0]),
        ({}, [0, 0], [1.0, 1.0]),
        ({}, [3, 3], [0.0, 0.0]),
        ({"idle_threshold": 2}, [2, 3, 4], [1.0, 0.25, 0.0]),
        ({"max_busy_score": 0.5}, [0, 1, 4], [1.0, 0.375, 0.0]),
    ],
)
def test_share_below_the_busiest(build, parameters, requests, scores):
    candidates = build.in_flight(num_requests=requests)
    assert ActiveRequestScorer(**parameters).score(build.priced(), candidates) == scores


def test_a_named_producer_is_read_instead(build):
    scorer = ActiveRequestScorer(in_flight_load_producer_name="other")
    loads = [{(InFlightLoad, "other"): InFlightLoad(num_requests=n)} for n in (1, 2)]
    assert scorer.score(build.priced(), [Candidate(build.endpoint(1), facts) for facts in loads]) == [0.5, 0.0]
    assert scorer.reads_of() == ((InFlightLoad, "other"),)
