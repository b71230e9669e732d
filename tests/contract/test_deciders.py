"""What every decider holds to: it answers for any request, and the items that it chooses are the request's own."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.plugin import Decider, registered

discover()

DECIDERS = {cls.type: cls for cls in registered(Decider).values()}
ROWS = st.lists(
    st.tuples(
        *[st.none() | st.integers(0, 9)] * 2,
        st.none() | st.floats(0, 1),
        st.integers(0, 9),
        st.integers(0, 99_999),
        st.integers(0, 100),
    ),
    min_size=1,
    max_size=7,
)


@pytest.mark.parametrize("type_name", DECIDERS)
@settings(max_examples=30)
@given(rows=ROWS, names=st.lists(st.sampled_from(["m0", "m1", "m2"]), max_size=5))
def test_the_same_answer_twice_and_items_of_the_request(type_name, build, table, rows, names):
    decider = DECIDERS[type_name]()
    stage = build.stage([table(number, row) for number, row in enumerate(rows)])
    request = build.priced(50, [build.item(identifier=name, index=index) for index, name in enumerate(names)])
    assert decider.wants(request, stage) is decider.wants(request, stage)
    chosen = decider.items(request, stage)
    assert chosen == tuple(each for each in request.distinct_items() if each in chosen)
