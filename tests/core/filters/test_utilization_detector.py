import pytest

from tessera.core.facts import Load
from tessera.core.filters.utilization_detector import UtilizationDetector
from tessera.core.rng import SeededRng


def kept(build, loads, at=10.0, **parameters):
    candidates = [build.candidate(number, load=load) for number, load in enumerate(loads, 1)]
    passed = UtilizationDetector(**parameters).keep(build.priced(at=at), candidates, SeededRng(1, "r"))
    return [candidates.index(each) for each in passed]


def load(waiting, usage, at=10.0):
    return Load(num_waiting=waiting, kv_usage_fraction=usage, at=at)


@pytest.mark.parametrize(
    ("loads", "parameters", "indices"),
    [
        ([load(5, 0.1), load(6, 0.1)], {}, [0]),
        ([load(0, 0.8), load(0, 0.81)], {}, [0]),
        ([load(6, 0.1), load(0, 0.9), load(0, 0.0)], {"headroom": 0.2}, [0, 1, 2]),
        ([load(3, 0.0), load(2, 0.0)], {"queue_depth_threshold": 2}, [1]),
        ([load(0, 0.5), load(0, 0.6)], {"kv_cache_util_threshold": 0.5}, [0]),
    ],
)
def test_over_the_larger_of_the_two_ratios_is_dropped(build, loads, parameters, indices):
    assert kept(build, loads, **parameters) == indices


def test_an_old_or_missing_page_counts_as_full(build):
    loads = [load(0, 0.0, at=9.75), load(0, 0.0, at=9.875), Load(), load(0, None), load(None, 0.0)]
    assert kept(build, loads) == [1]
    assert kept(build, loads, metrics_staleness_threshold=0.25) == [0, 1]


def test_where_nobody_has_room_everybody_stays(build):
    assert kept(build, [load(100, 1.0), Load()]) == [0, 1]
    assert kept(build, []) == []
