"""What every filter holds to, whatever it filters by."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.errors import DropReason
from tessera.core.plugin import Filter, registered
from tessera.core.rng import SeededRng

discover()

FILTERS = {cls.type: cls for cls in registered(Filter).values()}
every_filter = pytest.mark.parametrize("type_name", FILTERS)

count = st.integers(0, 1000)
row = st.tuples(
    st.none() | count,
    st.none() | count,
    st.none() | st.floats(0, 1),
    count,
    st.integers(0, 10_000_000),
    st.integers(0, 100),
)


@every_filter
@settings(max_examples=40)
@given(drawn=st.lists(row, max_size=10), seed=st.integers(0, 3), at=st.floats(0, 10))
def test_keeps_an_ordered_sub_list(type_name, build, table, drawn, seed, at):
    candidates = [table(number, each) for number, each in enumerate(drawn)]
    given_to_it = list(candidates)
    request = build.priced(100, items=[build.item(identifier="m0")], at=at)
    kept = FILTERS[type_name]().keep(request, given_to_it, SeededRng(seed, "r"))
    positions = [next(i for i, each in enumerate(candidates) if each is one) for one in kept]
    assert positions == sorted(set(positions))
    assert given_to_it == candidates
    again = FILTERS[type_name]().keep(request, given_to_it, SeededRng(seed, "r"))
    assert [id(each) for each in again] == [id(each) for each in kept]


@every_filter
@settings(max_examples=40)
@given(drawn=st.lists(row, max_size=10))
def test_says_what_it_did_in_one_line_or_nothing(type_name, build, table, drawn):
    candidates = [table(number, each) for number, each in enumerate(drawn)]
    request = build.priced(100, items=[build.item(identifier="m0")])
    one = FILTERS[type_name]()
    kept = one.keep(request, candidates, SeededRng(1, "r"))
    note = one.explain(request, candidates, kept)
    assert note is None or (note.text and "\n" not in note.text and len(note.text) < 500)
    assert one.explain(request, candidates, kept) == note
    assert [id(each) for each in one.keep(request, candidates, SeededRng(1, "r"))] == [id(each) for each in kept]


@every_filter
def test_of_nobody_keeps_nobody(type_name, build):
    one = FILTERS[type_name]()
    assert one.keep(build.priced(), [], SeededRng(1, "r")) == []
    assert one.explain(build.priced(), [], []) is None


@every_filter
@pytest.mark.parametrize("role", range(7))
def test_one_endpoint_of_which_nothing_is_known(type_name, role, build, table):
    one = table(role, (None, None, None, 0, 0, 0))
    assert FILTERS[type_name]().keep(build.priced(), [one], SeededRng(1, "r")) in ([], [one])


@every_filter
def test_says_what_the_client_is_told(type_name):
    assert FILTERS[type_name].rejection in DropReason
