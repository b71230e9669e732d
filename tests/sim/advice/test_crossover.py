"""Where the answer turns with the size of pictures."""

import pytest

from tessera.sim.advice.asked import parse_question
from tessera.sim.advice.candidates import Candidate
from tessera.sim.advice.crossover import Point, Variant, crossover_of, variants_of
from tessera.sim.advice.demand import Bound
from tessera.sim.advice.ranking import Result
from tessera.sim.advice.search import Edge, index_of
from tessera.sim.topology import AGGREGATED, TOPOLOGIES


def asked(size, pictures=2):
    return parse_question(f"{{size: {size}, pictures: {pictures}, prompt_tokens: 5, output_tokens: 5}}", "x")


def point(width, height, split_rate):
    """Aggregated at 1 req/s, a split at another rate of the grid."""
    rate = lambda topology, rate: Result(  # noqa: E731
        Candidate(topology, Bound(1.0, "all", "TPOT")), (Edge(0, index_of(rate), ()),)
    )
    variant = Variant(asked("64x32").workload, (width, height))
    return Point(variant, 0.5, rate(AGGREGATED, 1.0), None, rate(TOPOLOGIES["6e+5pd"], split_rate))


def test_the_sizes_that_are_tried_have_the_workloads_shape():
    variants = variants_of(asked("1000x1000"))
    assert [variant.label for variant in variants] == ["1000x1000", "1440x1440", "1920x1920", "2880x2880"]
    assert [variant.is_own for variant in variants] == [True, False, False, False]
    assert (variants[1].workload.width, variants[1].workload.num_pictures) == (1440, 2)


def test_without_pictures_there_is_one_size():
    assert len(variants_of(asked("640x360", pictures=0))) == 1


def test_between_two_sizes_by_the_logarithm_of_pixels():
    # Leads 1/1.03^4 and 1.03^4: equal in the middle, at the geometric mean of the pixels.
    found = crossover_of([point(100, 100, 0.8885), point(400, 400, 1.126)])
    assert (found.below.variant.size, found.above.variant.size) == ((100, 100), (400, 400))
    assert found.num_pixels == pytest.approx(200 * 200, rel=0.01)


def test_a_win_that_does_not_last_is_none():
    rising = [point(10, 10, 1.2), point(20, 20, 0.8), point(40, 40, 1.2)]
    assert crossover_of(rising).below.variant.size == (20, 20)
    assert crossover_of(rising[:2]) is None


@pytest.mark.parametrize("rates", [(0.9, 0.9), (1.2, 1.2), (0.9, 1.03), ()])
def test_always_never_or_not_by_enough(rates):
    assert crossover_of([point(10 * place, 10, rate) for place, rate in enumerate(rates, 1)]) is None
