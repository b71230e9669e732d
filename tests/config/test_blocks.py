import dataclasses
from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

import pytest

from tessera.config.blocks import decode, fields_of, nearest, seen
from tessera.config.quantities import Quantity
from tessera.core.errors import Problem
from tessera.core.plugin import STRICT, GoDuration, Range, params


@params
class Inner:
    mode: Literal["dynamic", "static"] = "dynamic"
    factor: Annotated[int, Range(ge=1)] = 1024


@params
class Outer:
    path: str
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    by_name: dict[str, Inner] = field(default_factory=dict)
    sample_fps: Annotated[float, Range(gt=0)] = 2.0
    share: Annotated[float | None, Range(ge=0, le=1)] = None
    wait: Annotated[float, GoDuration()] = 5.0
    size: Quantity = 0
    is_on: bool = False
    either: int | Literal["auto"] = "auto"
    free: dict[str, Any] = field(default_factory=dict)


def test_keys_are_camel_case():
    assert list(fields_of(Outer))[:6] == ["path", "inner", "many", "labels", "byName", "sampleFPS"]


def test_a_whole_block():
    data = {
        "path": "x",
        "inner": {"mode": "static"},
        "many": [{"factor": 3}],
        "labels": {"a": "b"},
        "byName": {"n": {"factor": 2}},
        "sampleFPS": 3,
        "share": 1,
        "wait": "200ms",
        "size": "1Ki",
        "isOn": True,
        "either": 7,
        "free": {"a": [None, {"b": 1}]},
    }
    assert decode(Outer, data, "") == (
        Outer(
            path="x",
            inner=Inner(mode="static"),
            many=(Inner(factor=3),),
            labels={"a": "b"},
            by_name={"n": Inner(factor=2)},
            sample_fps=3.0,
            share=1.0,
            wait=0.2,
            size=1024,
            is_on=True,
            either=7,
            free={"a": [None, {"b": 1}]},
        ),
        [],
    )


def test_null_is_as_good_as_absent_for_a_known_key():
    data = {"path": "x", "inner": None, "many": [{"mode": None}], "sampleFPS": None, "byName": {"n": {"factor": None}}}
    assert decode(Outer, data, "")[0] == Outer(path="x", many=(Inner(),), by_name={"n": Inner()})


def test_null_does_not_hide_an_unknown_key():
    assert decode(Inner, {"factr": None}, "p")[1] == [
        Problem("p.factr", "unknown key; did you mean 'factor'? keys here: factor, mode")
    ]


@pytest.mark.parametrize(
    ("data", "path", "message"),
    [
        ({"inner": {"mode": "dynamc"}}, "p.inner.mode", "got 'dynamc', expected 'dynamic' or 'static'"),
        ({"inner": {"factor": 0}}, "p.inner.factor", "got 0, expected at least 1"),
        ({"inner": {"factor": 1.0}}, "p.inner.factor", "got 1.0, expected an integer"),
        ({"inner": {"factor": "1"}}, "p.inner.factor", "got '1', expected an integer"),
        ({"inner": {"factor": True}}, "p.inner.factor", "got true, expected an integer"),
        ({"inner": 5}, "p.inner", "got 5, expected a mapping"),
        ({"many": {}}, "p.many", "got a mapping, expected a list"),
        ({"many": [{}, []]}, "p.many[1]", "got a list, expected a mapping"),
        ({"many": [{"fctor": 1}]}, "p.many[0].fctor", "unknown key; did you mean 'factor'? keys here: factor, mode"),
        ({"labels": {"a/b": 1}}, 'p.labels["a/b"]', "got 1, expected text"),
        ({"byName": {"n": {"factor": "x"}}}, "p.byName.n.factor", "got 'x', expected an integer"),
        ({"sampleFPS": 0}, "p.sampleFPS", "got 0, expected more than 0"),
        ({"sampleFPS": "2"}, "p.sampleFPS", "got '2', expected a number"),
        ({"share": 1.5}, "p.share", "got 1.5, expected at most 1"),
        ({"wait": 5}, "p.wait", "got 5, expected text"),
        ({"wait": "5x"}, "p.wait", "got '5x', expected a duration such as 200ms, 5s or 1h30m"),
        ({"size": "4 GB"}, "p.size", "got '4 GB', expected a number or a quantity such as 64Mi or 4G"),
        ({"size": "-4k"}, "p.size", "got -4000, expected at least 0"),
        ({"isOn": "yes"}, "p.isOn", "got 'yes', expected true or false"),
        ({"either": "aut"}, "p.either", "got 'aut', expected an integer or 'auto'"),
        ({"samplefps": 1}, "p.samplefps", None),
    ],
)
def test_a_problem_says_what_was_seen_and_what_was_expected(data, path, message):
    value, problems = decode(Outer, {"path": "x"} | data, "p")
    assert value is None
    assert [problem.path for problem in problems] == [path]
    if message is None:
        assert problems[0].message.startswith("unknown key; did you mean 'sampleFPS'? keys here: byName, ")
    else:
        assert problems[0].message == message


def test_a_required_key_is_named():
    assert decode(Outer, {}, "p") == (None, [Problem("p.path", "missing, expected text")])
    assert decode(Outer, [], "p") == (None, [Problem("p", "got a list, expected a mapping")])


def test_every_problem_is_told():
    _, problems = decode(Outer, {"inner": {"mode": 1, "factor": "a", "x": 2}, "many": 3, "y": 4}, "p")
    assert [problem.path for problem in problems] == [
        "p.path", "p.inner.mode", "p.inner.factor", "p.inner.x", "p.many", "p.y",
    ]  # fmt: skip


def test_nearest_ignores_case_and_long_words():
    assert nearest("maxnumofendpoints", ["maxNumOfEndpoints"]) == "; did you mean 'maxNumOfEndpoints'?"
    assert nearest("x" * 1_000_000, ["queue-scorer"]) == ""


def test_seen_is_short():
    assert seen("a" * 100) == repr("a" * 57 + "...")
    assert seen(["a"]) == "a list"


@dataclasses.dataclass(frozen=True, kw_only=True)
class AsNamed:
    """A block whose keys are its fields' names."""

    __pydantic_config__ = {key: value for key, value in STRICT.items() if key != "alias_generator"}

    first_token: str = "body"


def test_a_block_without_an_alias_generator_is_written_as_its_fields_are_named():
    assert list(fields_of(AsNamed)) == ["first_token"]
    assert decode(AsNamed, {"first_token": "counter"}, "")[0] == AsNamed(first_token="counter")
    made, (problem,) = decode(AsNamed, {"firstToken": "counter"}, "x")
    assert made is None
    assert str(problem) == "x.firstToken: unknown key; did you mean 'first_token'? keys here: first_token"
