from random import Random
from statistics import fmean

from tessera.sim.load_stages import LoadStage, offsets


def test_exponential_gaps_fill_the_stage():
    times = offsets(LoadStage(rate=40, duration_s=100), "poisson", Random(1))
    assert len(times) == 4000
    assert times == sorted(times)
    assert abs(times[-1] - 100) < 1e-9
    gaps = [later - sooner for sooner, later in zip([0.0, *times[:-1]], times, strict=True)]
    # Exponential gaps vary as much as their mean: the standard deviation is 25 ms too, +- 3 percent.
    spread = fmean((gap - 0.025) ** 2 for gap in gaps) ** 0.5
    assert 0.022 < spread < 0.028


def test_the_same_draws_give_the_same_gaps():
    stage = LoadStage(rate=3, duration_s=7)
    assert stage.num_requests == 21
    assert offsets(stage, "poisson", Random("5")) == offsets(stage, "poisson", Random("5"))


def test_requests_are_whole_ones():
    assert LoadStage(rate=0.3, duration_s=5).num_requests == 1
    assert offsets(LoadStage(rate=0.1, duration_s=5), "poisson", Random(0)) == []
