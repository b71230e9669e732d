"""What every picker holds to, whatever it picks by."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tessera.config.discover import discover
from tessera.core.plugin import Picker, registered
from tessera.core.rng import SeededRng

discover()

PICKERS = {cls.type: cls for cls in registered(Picker).values()}
every_picker = pytest.mark.parametrize("type_name", PICKERS)
all_totals = st.lists(st.floats(-1, 10), min_size=1, max_size=9)


def made(type_name, num_winners):
    cls = PICKERS[type_name]
    has_number = any(field.name == "max_num_of_endpoints" for field in dataclasses.fields(cls))
    return (cls(max_num_of_endpoints=num_winners), num_winners) if has_number else (cls(), 1)


@every_picker
@settings(max_examples=40)
@given(totals=all_totals, num_winners=st.integers(1, 12), seed=st.integers(0, 1 << 32))
def test_distinct_valid_indices_the_same_for_one_seed(type_name, build, totals, num_winners, seed):
    candidates = [build.candidate(number + 1) for number in range(len(totals))]
    picker, most = made(type_name, num_winners)
    picked = picker.pick(build.priced(), candidates, totals, SeededRng(seed, "r"))
    assert 1 <= len(picked) <= most
    assert len(set(picked)) == len(picked)
    assert set(picked) <= set(range(len(totals)))
    picker, _ = made(type_name, num_winners)
    assert picker.pick(build.priced(), candidates, totals, SeededRng(seed, "r")) == picked


@every_picker
@pytest.mark.parametrize("total", [0.0, 1.0, 1e-300, 1e300])
def test_the_only_endpoint_wins_whatever_its_total(type_name, total, build):
    picker, _ = made(type_name, 1)
    assert picker.pick(build.priced(), [build.candidate()], [total], SeededRng(1, "r")) == [0]
