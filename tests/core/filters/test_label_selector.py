import pytest

from tessera.core.filters.label_selector import LabelSelectorFilter, MatchExpression
from tessera.core.rng import SeededRng

GPU = [{"gpu": "h100", "zone": "a"}, {"gpu": "l4"}, {"zone": "b"}, {}]


def kept(build, **parameters):
    candidates = [build.candidate(endpoint=build.endpoint(n, **labels)) for n, labels in enumerate(GPU)]
    passed = LabelSelectorFilter(**parameters).keep(build.priced(), candidates, SeededRng(1, "r"))
    return [candidates.index(each) for each in passed]


def expression(operator, *values, key="gpu"):
    return (MatchExpression(key=key, operator=operator, values=values),)


@pytest.mark.parametrize(
    ("parameters", "indices"),
    [
        ({}, [0, 1, 2, 3]),
        ({"match_labels": {"gpu": "h100"}}, [0]),
        ({"match_labels": {"gpu": "h100", "zone": "b"}}, []),
        ({"match_expressions": expression("In", "h100", "l4")}, [0, 1]),
        ({"match_expressions": expression("NotIn", "l4")}, [0, 2, 3]),
        ({"match_expressions": expression("Exists")}, [0, 1]),
        ({"match_expressions": expression("DoesNotExist")}, [2, 3]),
        ({"match_expressions": expression("Exists") + expression("Exists", key="zone")}, [0]),
        ({"match_labels": {"zone": "b"}, "match_expressions": expression("DoesNotExist")}, [2]),
    ],
)
def test_every_requirement_must_hold(build, parameters, indices):
    assert kept(build, **parameters) == indices


@pytest.mark.parametrize(
    ("operator", "values", "num_problems"),
    [("In", (), 1), ("NotIn", (), 1), ("Exists", ("x",), 1), ("DoesNotExist", ("x",), 1), ("In", ("x",), 0)],
)
def test_an_operator_without_the_values_it_needs_is_a_problem(operator, values, num_problems):
    problems = list(LabelSelectorFilter(match_expressions=expression(operator, *values)).check())
    assert [path for path, _ in problems] == ["matchExpressions[0].values"] * num_problems
