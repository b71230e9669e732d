import pytest

from tessera.core.scorers.header_label_affinity import HeaderLabelAffinityScorer


@pytest.mark.parametrize(
    ("headers", "scores"),
    [({"x-session-id": "a"}, [1.0, 0.0, 0.0]), ({"x-session-id": ""}, [0.0] * 3), ({}, [0.0] * 3)],
)
def test_one_where_the_label_equals_the_header(build, headers, scores):
    scorer = HeaderLabelAffinityScorer(header_name="X-Session-Id", label_key="team")
    labels = [{"team": "a"}, {"team": "b"}, {}]
    candidates = [build.candidate(endpoint=build.endpoint(number, **each)) for number, each in enumerate(labels, 1)]
    assert scorer.score(build.priced(headers=headers), candidates) == scores


@pytest.mark.parametrize(
    ("fields", "missing"), [({"header_name": "x"}, "labelKey"), ({"label_key": "x"}, "headerName")]
)
def test_one_without_the_other_is_a_problem(fields, missing):
    assert [key for key, _ in HeaderLabelAffinityScorer(**fields).check()] == [missing]
    assert list(HeaderLabelAffinityScorer(header_name="x", label_key="y").check()) == []


def test_its_header_is_one_to_keep():
    scorer = HeaderLabelAffinityScorer(header_name="X-Team", label_key="y")
    assert list(scorer.headers_read()) == [("headerName", "X-Team")]
    assert list(HeaderLabelAffinityScorer().headers_read()) == []
