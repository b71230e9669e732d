"""Is each plugin where its type name says, and does it explain itself and its parameters?"""

import ast
import inspect
import sys

import pytest

from tessera.config.discover import discover
from tessera.core.family import Family
from tessera.core.plugin import Dialect, Plugin, registered

discover()

KINDS = {"filter", "scorer", "picker", "producer", "handler", "decider"}
TYPES = {cls.type: cls for cls in registered(Plugin).values()}
MODULES = sorted({cls.__module__ for cls in TYPES.values() if cls.__module__.startswith("tessera.")})


def test_every_kind_is_there():
    kinds = {cls.kind for cls in TYPES.values()}
    assert kinds >= {"filter", "scorer", "picker", "handler", "pricer", "producer", "family", "dialect"}


@pytest.mark.parametrize("type_name", TYPES)
def test_has_a_docstring(type_name):
    cls = TYPES[type_name]
    text = (cls.__doc__ or "").strip()
    # A dataclass without docstring gets its signature as one.
    assert text
    assert not text.startswith(f"{cls.__name__}(")


@pytest.mark.parametrize("type_name", TYPES)
def test_file_has_the_name_of_the_type(type_name):
    cls = TYPES[type_name]
    if issubclass(cls, Family) or not cls.__module__.startswith("tessera."):
        return
    *stem, last = type_name.split("-")
    words = [*stem, last] if last not in KINDS or issubclass(cls, Dialect) else stem
    assert cls.__module__.rsplit(".", 1)[1] == "_".join(words)


@pytest.mark.parametrize("type_name", TYPES)
def test_facts_that_it_reads_have_a_default_producer(type_name):
    cls = TYPES[type_name]
    assert all(isinstance(fact.producer, str) for fact in (*cls.reads, *cls.optional_reads))


@pytest.mark.parametrize("type_name", TYPES)
def test_defaults_are_whole_and_have_no_problems(type_name):
    assert list(TYPES[type_name]().check()) == []


@pytest.mark.parametrize("module", MODULES)
def test_every_parameter_has_a_docstring(module):
    """Of plugins and of the nested blocks of parameters; the schema and docs/plugins are made of them."""
    tree = ast.parse(inspect.getsource(sys.modules[module]))
    missing = [
        f"{cls.name}.{statement.target.id}"
        for cls in ast.walk(tree)
        if isinstance(cls, ast.ClassDef) and _takes_parameters(cls)
        for statement, behind in zip(cls.body, [*cls.body[1:], None], strict=True)
        if _is_parameter(statement) and not _is_docstring(behind)
    ]
    assert missing == []


def _takes_parameters(cls):
    names = {node.id for each in cls.decorator_list for node in ast.walk(each) if isinstance(node, ast.Name)}
    return bool(names & {"plugin", "params"})


def _is_parameter(statement):
    if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
        return False
    return "ClassVar" not in ast.unparse(statement.annotation)


def _is_docstring(statement):
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
